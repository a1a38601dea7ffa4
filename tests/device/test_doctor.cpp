// The doctor's judgement of given facts, so that every machine can be a fake one.
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/catch2.h"
#include "tests/support/fake_machine.h"
#include "tests/support/micro_model.h"

using namespace mkbench;
using namespace mkbench::testing;

namespace {

// A machine with a change, and the row that tells of it.
struct Change {
  const char* what;
  std::function<void(DoctorInputs&, DoctorReport&)> change;
  const char* topic;
  Finding finding;
  const char* text;        // a part
  const char* what_to_do;  // a part

  // Makes the change, and wants the row of the machine that is judged then.
  void check(DoctorInputs& in, DoctorReport& report) const {
    change(in, report);
    judge_machine(in, report);
    const DoctorItem* item = find_item(report, topic, finding);
    REQUIRE(item != nullptr);
    CHECK_THAT(item->text, ContainsText(text));
    CHECK_THAT(item->what_to_do, ContainsText(what_to_do));
  }
};

std::string text_of(const DoctorReport& report) {
  std::string all;
  for (const std::string& line : doctor_lines(report)) all += line + "\n";
  return all;
}

constexpr char kWindowsLib[] = "/usr/lib/wsl/lib/libcuda.so.1";
constexpr char kLinuxLib[] = "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14";

void without_card(DoctorReport& report) {
  report.devices = {};
  report.devices.runtime_cuda_version = 13000;
  report.checked = false;
}

DeviceInfo& card(DoctorReport& report) { return report.devices.devices[0]; }

}  // namespace

TEST_CASE("a healthy machine is ready") {
  DoctorReport report = healthy();
  judge_machine(inputs(), report);
  CHECK(report.gpu_ready);
  for (const DoctorItem& item : report.items) {
    CAPTURE(item.topic, item.text);
    CHECK(item.finding == Finding::kFine);
    CHECK(item.what_to_do.empty());
  }
  CHECK(report.next.find("cpu") == std::string::npos);
  for (const char* topic : {"WSL2", "container"}) CHECK(find_row(report.items, topic) == nullptr);
}

TEST_CASE("each problem of the card is one row, and with --device cpu none is a problem") {
  using In = DoctorInputs&;
  using Rep = DoctorReport&;
  const Change changes[] = {
      {"no driver", [](In, Rep r) { without_card(r); }, "driver", Finding::kProblem,
       "no NVIDIA driver", "--gpus all"},
      {"a driver without its library",
       [](In, Rep r) { without_card(r), r.devices.driver_version = "580.65.06"; }, "driver",
       Finding::kProblem, "libcuda.so.1 not found", "--gpus all"},
      {"driver too old", [](In, Rep r) { r.devices.driver_cuda_version = 12080; }, "driver",
       Finding::kProblem, "too old for CUDA 13.0", "scripts/setup.sh --cuda 12.8"},
      {"runtime too old", [](In, Rep r) { r.devices.runtime_cuda_version = 12060; }, "runtime",
       Finding::kProblem, "wanted 12.8 or later", "scripts/setup.sh"},
      {"no code of ours", [](In in, Rep) { in.our_architectures = "80"; }, "GPU 0",
       Finding::kProblem, "this binary holds code for 80", "MKBENCH_CUDA_ARCHITECTURES"},
      {"a card that does not exist", [](In in, Rep) { in.gpu = 7; }, "GPU 7", Finding::kProblem,
       "GPU 7 was asked for", "--list-devices"},
      {"no code in libtorch", [](In in, Rep) { in.torch_architectures = "sm_80 sm_100"; },
       "libtorch", Finding::kProblem,
       "sm_90 is NOT SUPPORTED by this libtorch: its kernels would end with \"no kernel image is "
       "available for execution on the device\"",
       "scripts/setup.sh"},
      {"libtorch that sees no GPU", [](In in, Rep) { in.torch_cuda_available = false; }, "libtorch",
       Finding::kProblem, "does not see the GPU", "unset CUDA_VISIBLE_DEVICES"},
      {"libtorch for the CPU",
       [](In in, Rep) { in.torch_cuda_version = in.torch_architectures = ""; }, "libtorch",
       Finding::kProblem, "a build for the CPU beside a GPU", "scripts/setup.sh"},
      {"our operation fails",
       [](In, Rep r) { r.check = {.ok = false, .got = 0, .wanted = 5, .error = "the sum is 0"}; },
       "operation", Finding::kProblem, "the sum is 0", "dmesg"},
      {"libtorch's product fails",
       [](In, Rep r) {
         r.torch_check = {.ok = false, .error = "CUDA error: no kernel image is available"};
       },
       "torch matmul", Finding::kProblem, "no kernel image", "wheel: "},
      {"too little memory", [](In, Rep r) { card(r).free_bytes = int64_t{1} << 30; }, "GPU memory",
       Finding::kProblem, "needs 4.0 GiB, free 1.0 GiB", "smaller --model"},
      {"a card on which nobody may compute",
       [](In, Rep r) { card(r).state.compute_mode = "prohibited"; }, "GPU 0", Finding::kProblem,
       "compute mode prohibited", "nvidia-smi -i 0 -c DEFAULT"},
      {"WSL1", [](In, Rep r) { r.machine.wsl.version = 1; }, "WSL2", Finding::kProblem, "WSL1",
       "wsl --set-version"},
      {"WSL2 without Windows' driver", [](In, Rep r) { r.machine.wsl.version = 2; }, "WSL2",
       Finding::kProblem, "without Windows' driver", "driver in Windows, none in Linux"},
  };
  for (const Change& row : changes) {
    CAPTURE(row.what);
    DoctorReport report = healthy();
    DoctorInputs in = inputs();
    row.check(in, report);
    CHECK(report.problems() == 1);  // told once
    CHECK_FALSE(report.gpu_ready);
    CHECK_THAT(report.next, ContainsText("--device cpu"));
    in.cpu_only = true;
    judge_machine(in, report);
    CHECK(report.problems() == 0);
    CHECK_THAT(report.verdict, ContainsText("ready for the CPU"));
  }
}

TEST_CASE("what slows or may harm a run is a warning, and the machine stays ready") {
  using In = DoctorInputs&;
  using Rep = DoctorReport&;
  const Change changes[] = {
      {"another process",
       [](In, Rep r) { card(r).state.processes = {{.pid = 42, .name = "python", .bytes = 1}}; },
       "GPU 0", Finding::kWarning, "1 other process(es): 42 python", "--gpu chooses another"},
      {"limited clocks",
       [](In, Rep r) {
         card(r).state.throttle_reasons = 0x4;
         card(r).state.throttle_text = throttle_text(0x4);
       },
       "GPU 0", Finding::kWarning, "clocks limited by: power cap", "cool the card"},
      {"a lowered power limit",
       [](In, Rep r) {
         card(r).state.power_limit_w = 400;
         card(r).state.default_power_limit_w = 575;
       },
       "GPU 0", Finding::kWarning, "400 W, default 575 W", "nvidia-smi -i 0 -pl 575"},
      {"a memory clock that is held back",
       [](In, Rep r) {
         card(r).state.memory_clock_mhz = 949;
         card(r).state.max_memory_clock_mhz = 1000;
         card(r).pin_gb_per_s = 2000;
       },
       "GPU 0", Finding::kWarning,
       "memory at 949 of 1000 MHz while it computes: its pins give 1898 of 2000 GB/s",
       "nvidia-smi -i 0 -rmc"},
      {"a megakernel whose pace is a guess",
       [](In in, Rep) { in.ring_pace = "predicted, not measured"; }, "megakernel", Finding::kNote,
       "its pace on this card: predicted, not measured", "mkbench tune"},
      {"little host memory", [](In, Rep r) { r.machine.memory_free = 1 << 20; }, "host memory",
       Finding::kWarning, "free 0.0 GiB of", "close other programs"},
      {"little host memory under WSL2",
       [](In, Rep r) {
         r.machine.memory_free = 1000;
         r.machine.wsl = {.version = 2, .windows_libcuda = kWindowsLib, .linux_libcuda = ""};
       },
       "host memory", Finding::kWarning, "free", ".wslconfig"},
      {"a full disk", [](In, Rep r) { r.machine.disk_free = 1000; }, "disk", Finding::kWarning,
       "0.0 GB free of", "--out"},
      {"a driver for Linux that is not loaded",
       [](In, Rep r) {
         r.machine.wsl = {.version = 2, .windows_libcuda = kWindowsLib, .linux_libcuda = kLinuxLib};
       },
       "WSL2", Finding::kWarning, "libcuda.so.550.54.14", "apt-get purge"},
  };
  for (const Change& row : changes) {
    CAPTURE(row.what);
    DoctorReport report = healthy();
    DoctorInputs in = inputs();
    row.check(in, report);
    CHECK(report.gpu_ready);
  }
  DoctorReport report = healthy();
  card(report).exclusive = true;
  card(report).state.compute_mode = "exclusive";
  report.machine.container = "docker";
  report.machine.shared_total = 64'000'000;
  judge_machine(inputs(), report);
  CHECK(report.gpu_ready);
  CHECK_THAT(text_of(report), ContainsText("engines are opened one at a time"));
  CHECK_THAT(text_of(report), ContainsText("docker, /dev/shm 0.1 GB"));
}

TEST_CASE("under WSL2 Windows' driver is as it should be, hidden, or not found") {
  DoctorReport report = healthy();
  Wsl& wsl = report.machine.wsl;
  wsl = {.version = 2, .windows_libcuda = kWindowsLib, .linux_libcuda = ""};
  judge_machine(inputs(), report);
  CHECK(report.gpu_ready);
  CHECK(find_item(report, "WSL2", Finding::kFine) != nullptr);
  CHECK(find_item(report, "WSL2 limits", Finding::kNote) != nullptr);
  CHECK(to_json(report)["machine"]["wsl"]["windows_libcuda"] == kWindowsLib);
  without_card(report);
  judge_machine(inputs(), report);
  REQUIRE(find_item(report, "WSL2", Finding::kWarning) != nullptr);
  CHECK_THAT(find_item(report, "WSL2", Finding::kWarning)->what_to_do,
             ContainsText("LD_LIBRARY_PATH=/usr/lib/wsl/lib"));
  wsl.linux_libcuda = kLinuxLib;
  judge_machine(inputs(), report);
  REQUIRE(find_item(report, "WSL2", Finding::kProblem) != nullptr);
  CHECK_THAT(find_item(report, "WSL2", Finding::kProblem)->text, ContainsText("hides Windows'"));
}

TEST_CASE("where a host does not start, the doctor shows the loader's text and what to do") {
  const std::string loader = "error while loading shared libraries: libx.so.1: cannot open";
  DoctorReport report = healthy();
  DoctorInputs in = inputs();
  SECTION("the host of CUDA engines: nothing is known of the card") {
    report.devices = {};
    report.checked = false;
    in.card_problem = loader;
    judge_machine(in, report);
    const DoctorItem* item = find_item(report, "CUDA engines", Finding::kProblem);
    REQUIRE(item != nullptr);
    CHECK(item->text == loader);
    CHECK_THAT(item->what_to_do, ContainsText("scripts/setup.sh"));
    CHECK(report.usability.reason == loader);
    // The driver's version alone is judged by the lanes.
    CHECK(find_item(report, "driver", Finding::kProblem) != nullptr);
    report.devices.driver_version = "550.54.14";
    judge_machine(in, report);
    REQUIRE(find_item(report, "driver", Finding::kProblem) != nullptr);
    CHECK_THAT(find_item(report, "driver", Finding::kProblem)->what_to_do, ContainsText("570"));
    report.devices.driver_version = "570.86.10";
    judge_machine(in, report);
    CHECK(find_item(report, "driver", Finding::kFine) != nullptr);
    // What only that host could have said is not shown as a fact.
    for (const char* topic : {"runtime", "GPU 0", "operation"})
      CHECK(find_row(report.items, topic) == nullptr);
    CHECK(find_item(report, "libtorch", Finding::kFine) != nullptr);
  }
  SECTION("the host of libtorch: the card is judged all the same, and the CPU needs it too") {
    in.torch_problem = loader;
    judge_machine(in, report);
    const DoctorItem* item = find_item(report, "libtorch", Finding::kProblem);
    REQUIRE(item != nullptr);
    CHECK(item->text == loader);
    CHECK_THAT(item->what_to_do, ContainsText("scripts/setup.sh"));
    CHECK(report.usability.usable());
    CHECK(find_item(report, "runtime", Finding::kFine) != nullptr);
    CHECK(find_item(report, "libtorch", Finding::kFine) == nullptr);
    in.cpu_only = true;
    judge_machine(in, report);
    CHECK(report.problems() == 1);
  }
  CHECK_FALSE(report.gpu_ready);
  CHECK_THAT(report.next, ContainsText("scripts/setup.sh"));  // no run is possible
}

TEST_CASE("libtorch's code for the card is told, PTX of an older one too") {
  DoctorInputs in = inputs();
  DoctorReport report = rented(13000, "580.65.06");
  judge_machine(in, report);
  CHECK_THAT(text_of(report), ContainsText("sm_120 is SUPPORTED by this libtorch"));
  in.torch_architectures = "sm_90 compute_90";
  judge_machine(in, report);
  CHECK_THAT(text_of(report), ContainsText("sm_120 is SUPPORTED by this libtorch"));
  report.devices = machine({});
  judge_machine(in, report);
  CHECK_THAT(text_of(report), ContainsText("sm_90 compute_90"));
  CHECK(text_of(report).find("SUPPORTED") == std::string::npos);
}

TEST_CASE("a toolkit is judged by the lane of the driver") {
  struct Row {
    int driver_cuda;
    const char* driver;
    const char* nvcc;  // version; empty: none
    Finding finding;
    const char* part;
  };
  const Row rows[] = {
      {13000, "580.65.06", "13.0", Finding::kFine, "CUDA 13.0"},
      {13000, "580.65.06", "12.8", Finding::kFine, "scripts/setup.sh --cuda 12.8"},
      {13000, "580.65.06", "12.4", Finding::kWarning, "older than 12.8"},
      {13000, "580.65.06", "", Finding::kFine, "scripts/setup.sh installs a compiler"},
      {12080, "570.86.10", "12.8", Finding::kFine, "CUDA 12.8"},
      {12080, "570.86.10", "13.0", Finding::kWarning, "newer than the driver runs"},
      {12080, "570.86.10", "", Finding::kWarning, "no nvcc"},
      {12090, "575.51.03", "12.9", Finding::kFine, "CUDA 12.9"},
      {0, "", "", Finding::kFine, "scripts/setup.sh installs a compiler"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.driver, row.nvcc);
    DoctorReport report = rented(row.driver_cuda, row.driver);
    report.toolkit = *row.nvcc == 0 ? Toolkit{} : Toolkit{"/opt/cuda/bin/nvcc", row.nvcc};
    judge_machine(inputs(), report);
    const DoctorItem* item = find_item(report, "toolkit", row.finding);
    REQUIRE(item != nullptr);
    CHECK_THAT(item->text, ContainsText(row.part));
    if (row.finding == Finding::kWarning && row.driver_cuda == 12080)
      CHECK_THAT(item->what_to_do, ContainsText("cuda-toolkit-12-8"));
  }
}

TEST_CASE("lines and JSON tell the same, and what --strict would do") {
  DoctorReport report = healthy();
  card(report).free_bytes = 0;
  judge_machine(inputs(), report);
  REQUIRE(report.problems() == 1);
  const nlohmann::json j = to_json(report);
  const std::string lines = text_of(report);
  for (const DoctorItem& item : report.items) {
    CHECK(lines.find(item.text) != std::string::npos);
    CHECK(lines.find(item.what_to_do) != std::string::npos);
  }
  CHECK(lines.find(report.verdict) != std::string::npos);
  CHECK(lines.find("--strict") == std::string::npos);
  const std::vector<std::string> strict = doctor_lines(report, /*strict_would_fail=*/true);
  CHECK(std::count(strict.begin(), strict.end(),
                   "strict:  1 problem: with --strict the exit code is 6") == 1);
  CHECK(j["items"].size() == report.items.size());
  CHECK(j["verdict"] == report.verdict);
  CHECK(j["gpu_ready"] == false);
  CHECK(j["devices"][0]["sm"] == "9.0");
  CHECK(j["devices"][0]["ecc"].is_null());
}

TEST_CASE("the toolkit is the one of CUDA_HOME before PATH") {
  const TemporaryFolder root;
  const std::filesystem::path nvcc = root.path() / "bin" / "nvcc";
  std::filesystem::create_directories(nvcc.parent_path());
  write_file(nvcc, "#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.131'\n");
  chmod(nvcc.c_str(), 0755);
  const char* before = std::getenv("CUDA_HOME");
  const std::string saved = before == nullptr ? "" : before;
  setenv("CUDA_HOME", root.path().c_str(), 1);
  const Toolkit toolkit = find_toolkit();
  before == nullptr ? unsetenv("CUDA_HOME") : setenv("CUDA_HOME", saved.c_str(), 1);
  CHECK(toolkit.nvcc == nvcc.string());
  CHECK(toolkit.version == "12.4");
}
