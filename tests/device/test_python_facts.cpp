// The section Python of the doctor, from facts of Pythons that are not there.
#include <csignal>
#include <string>

#include "tests/support/catch2.h"
#include "tests/support/fake_machine.h"

using namespace mkbench;
using namespace mkbench::testing;
using nlohmann::json;

namespace {

constexpr char kProgram[] = "/opt/py/bin/python";

// A Python with everything, on a machine with a card.
json whole() {
  return json::parse(R"({
    "python": {"version": "3.12.3", "executable": "/opt/py/bin/python3.12"},
    "torch": {"version": "2.9.1+cu128", "cuda": "12.8", "available": true, "devices": 1,
              "architectures": "sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120",
              "name": "NVIDIA GeForce RTX 5090", "capability": [12, 0],
              "matmul": {"device": "cuda:0", "ok": true, "got": -32768, "wanted": -32768}},
    "transformers": {"version": "5.17.0"}})");
}

std::vector<DoctorItem> judge(const json& told, const DeviceInfo* card) {
  return judge_python({kProgram, "", told}, card, "");
}

const DeviceInfo kCard = device(0, "NVIDIA GeForce RTX 5090", 12, 0);

// The row of that topic; no row may ever be a problem.
DoctorItem row(const std::vector<DoctorItem>& rows, const std::string& topic) {
  for (const DoctorItem& item : rows) CHECK(item.finding != Finding::kProblem);
  const DoctorItem* item = find_row(rows, topic);
  REQUIRE(item != nullptr);
  CHECK((item->finding == Finding::kFine) == item->what_to_do.empty());
  return *item;
}

}  // namespace

TEST_CASE("a Python with everything is fine in every row") {
  const std::vector<DoctorItem> rows = judge(whole(), &kCard);
  CHECK(rows.size() == 4);
  for (const DoctorItem& item : rows) CHECK(item.finding == Finding::kFine);
  CHECK_THAT(row(rows, "torch").text, ContainsText("2.9.1+cu128, a wheel for CUDA 12.8"));
  CHECK_THAT(row(rows, "torch").text, ContainsText("sees NVIDIA GeForce RTX 5090"));
}

TEST_CASE("the traps of torch are named, each with a command for that Python") {
  json told = whole();
  json& torch = told["torch"];
  const auto warns = [&](const DeviceInfo* card, const char* part, const char* todo) {
    const DoctorItem item = row(judge(told, card), "torch");
    CHECK(item.finding == Finding::kWarning);
    CHECK_THAT(item.text, ContainsText(part));
    CHECK_THAT(item.what_to_do, ContainsText(todo));
  };
  SECTION("no code for the card") {
    torch["architectures"] = "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90";
    warns(&kCard, "no kernel image is available for execution on the device",
          "/opt/py/bin/python3.12 -m pip install --force-reinstall torch==");
  }
  SECTION("a wheel for the CPU beside a GPU") {
    torch["version"] = "2.9.1+cpu";
    torch["cuda"] = nullptr;
    torch["available"] = false;
    for (const char* gone : {"name", "capability"}) torch.erase(gone);
    warns(&kCard, "everything runs on the CPU without a word", "--force-reinstall torch==");
    // Without a GPU the same wheel is what one wants.
    CHECK(row(judge(told, nullptr), "torch").finding == Finding::kFine);
  }
  SECTION("no code for a card that torch alone sees") {
    torch["architectures"] = "sm_80 sm_90";
    warns(nullptr, "none for NVIDIA GeForce RTX 5090 (sm_120)", "(wheel)");
  }
  SECTION("a wheel for the CPU beside a driver, where mkbench's CUDA sees no card") {
    torch["cuda"] = nullptr;
    for (const char* gone : {"name", "capability"}) torch.erase(gone);
    const DoctorItem item = row(judge_python({kProgram, "", told}, nullptr, "570.86"), "torch");
    CHECK(item.finding == Finding::kWarning);
    CHECK_THAT(item.text, ContainsText("beside the card of driver 570.86"));
  }
  SECTION("a driver that is too old for the wheel") {
    torch["available"] = false;
    torch["init_error"] =
        "RuntimeError: The NVIDIA driver on your system is too old (found 12040).";
    warns(&kCard, "driver on your system is too old", "(driver)");
  }
  SECTION("a card that is hidden") {
    torch["available"] = false;
    warns(&kCard, "does not see NVIDIA GeForce RTX 5090 (sm_120)", "unset CUDA_VISIBLE_DEVICES");
  }
  SECTION("a torch that is broken") {
    torch = {{"error", "ImportError: libcudnn.so.9: cannot open shared object file"},
             {"missing", false}};
    warns(&kCard, "cannot be imported: ImportError: libcudnn.so.9", "(CUDA)");
  }
  SECTION("a product that fails") {
    torch["matmul"] = {{"device", "cuda:0"}, {"error", "CUDA error: out of memory"}};
    const DoctorItem item = row(judge(told, &kCard), "matmul");
    CHECK(item.finding == Finding::kWarning);
    CHECK_THAT(item.what_to_do, ContainsText("(memory)"));
  }
  SECTION("a product that is wrong") {
    torch["matmul"]["ok"] = false;
    CHECK(row(judge(told, &kCard), "matmul").finding == Finding::kWarning);
  }
}

TEST_CASE("what is missing is a note with what to install") {
  json told = whole();
  for (const char* name : {"torch", "transformers"}) {
    CAPTURE(name);
    told[name] = {{"error", "ModuleNotFoundError"}, {"missing", true}};
    const DoctorItem item = row(judge(told, &kCard), name);
    CHECK(item.finding == Finding::kNote);
    CHECK_THAT(item.text, ContainsText("not installed"));
    CHECK_THAT(item.what_to_do,
               ContainsText(std::string("/opt/py/bin/python3.12 -m pip install ") + name));
  }
  CHECK(find_row(judge(told, &kCard), "matmul") == nullptr);
}

TEST_CASE("how the script ended is part of what it tells") {
  const std::string begun =
      "{\"python\": {\"version\": \"3.12.3\", \"executable\": \"/p\"}}\nbanner of a package\n"
      "{\"stage\": \"torch\"}\n";
  const auto problem = [&](const std::string& lines, int end) {
    return read_python_facts(kProgram, lines, end).problem;
  };
  CHECK(problem(begun + "{\"stage\": \"end\"}\n", 0).empty());
  CHECK_THAT(problem(begun, 0), ContainsText("exit status 0 at torch"));
  CHECK_THAT(problem(begun, SIGALRM), ContainsText("took too long at torch"));
  CHECK_THAT(problem(begun, SIGSEGV), ContainsText("died by signal 11"));
  CHECK_THAT(problem("", 1 << 8), ContainsText("exit status 1 at its start"));
  CHECK_THAT(problem("", 127 << 8), ContainsText("/opt/py/bin/python cannot be run"));
  // What was told before counts, and the end is told beside it.
  const PythonFacts facts = read_python_facts(kProgram, begun, SIGSEGV);
  const std::vector<DoctorItem> rows = judge_python(facts, nullptr, "");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].finding == Finding::kFine);
  CHECK(rows[1].finding == Finding::kWarning);
  const std::vector<DoctorItem> none =
      judge_python(read_python_facts(kProgram, "", 127 << 8), nullptr, "");
  REQUIRE(none.size() == 1);
  CHECK_THAT(none[0].text, ContainsText("cannot be run"));
}

TEST_CASE("torch's architectures count only for the same version") {
  const PythonFacts facts{kProgram, "", whole()};
  CHECK_THAT(architectures_of(facts, "2.9.1"), ContainsText("sm_120"));
  CHECK(architectures_of(facts, "2.11.0").empty());
  CHECK(architectures_of({}, "2.9.1").empty());
}

TEST_CASE("a program is asked as it is named") {
  const PythonFacts none = ask_python("/no/such/python", "script.py", 0);
  CHECK_THAT(none.problem, ContainsText("/no/such/python cannot be run"));
  // A name with a quote reaches the shell whole.
  CHECK_THAT(ask_python("/no/it's/python", "script.py", 0).problem,
             ContainsText("/no/it's/python cannot be run"));
}
