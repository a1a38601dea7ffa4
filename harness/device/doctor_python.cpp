// Judges the Python that runs engines written in Python by the facts that scripts/doctor_python.py
// prints. mkbench runs without that Python, so no row is a problem.
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <sstream>
#include <string_view>

#include "harness/device/doctor.h"
#include "harness/device/program_output.h"
#include "harness/report/known_errors.h"

namespace mkbench {
namespace {

using nlohmann::json;

std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// The object under that name; an empty one if there is none.
json part_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_object() ? *found : json::object();
}

class PythonJudge {
 public:
  PythonJudge(const PythonFacts& facts, const DeviceInfo* card, const std::string& driver)
      : facts_(facts), card_(card), driver_(driver) {
    const std::string told = text_at(part_of(facts.told, "python"), "executable");
    python_ = told.empty() ? facts.program : told;
  }

  std::vector<DoctorItem> judge() {
    if (facts_.told.empty())
      return {{"Python", Finding::kNote, facts_.problem, "--python PATH names another one"}};
    fine("Python",
         fmt::format("{} ({})", text_at(part_of(facts_.told, "python"), "version"), python_));
    if (is_there("torch", std::string(kTorchRequirement))) {
      const json torch = part_of(facts_.told, "torch");
      judge_torch(torch);
      judge_matmul(part_of(torch, "matmul"));
    }
    if (is_there("transformers", "transformers"))
      fine("transformers", text_at(part_of(facts_.told, "transformers"), "version"));
    if (!facts_.problem.empty())
      explain("Python", facts_.problem, facts_.problem, python_ + " -m pip check");
    return rows_;
  }

 private:
  void fine(const char* topic, std::string text) {
    rows_.push_back({topic, Finding::kFine, std::move(text), ""});
  }

  // Adds a warning. It advises what the table of known errors has for `message`, with commands for
  // the judged Python, else `otherwise`.
  void explain(const char* topic, std::string text, const std::string& message,
               std::string otherwise) {
    if (const KnownError* known = find_known_error(message)) {
      constexpr std::string_view kPython = "python ";
      otherwise = fmt::format("{} ({}): {}", known->cause, known->error_class,
                              known->command.starts_with(kPython)
                                  ? python_ + known->command.substr(kPython.size() - 1)
                                  : known->command);
    }
    rows_.push_back({topic, Finding::kWarning, std::move(text), std::move(otherwise)});
  }

  // True if the package was asked for and can be imported; adds a row if it cannot.
  bool is_there(const char* name, const std::string& requirement) {
    const json facts = part_of(facts_.told, name);
    const std::string error = text_at(facts, "error");
    const std::string install = python_ + " -m pip install ";
    if (facts.value("missing", false)) {
      rows_.push_back({name, Finding::kNote, "not installed", install + requirement});
    } else if (!error.empty()) {
      explain(name, "cannot be imported: " + error, error,
              install + "--force-reinstall " + requirement);
    }
    return facts_.told.contains(name) && error.empty();
  }

  // Looks for reasons why torch cannot use the card; each can waste an hour on a rented machine.
  void judge_torch(const json& torch) {
    constexpr char kNoImage[] = "no kernel image is available for execution on the device";
    const std::string cuda = text_at(torch, "cuda"), code = text_at(torch, "architectures");
    const std::string wheel =
        cuda.empty() ? text_at(torch, "version") + ", a wheel for the CPU"
                     : fmt::format("{}, a wheel for CUDA {} with code for {}",
                                   text_at(torch, "version"), cuda, code.empty() ? "none" : code);
    // The card as mkbench sees it; if mkbench sees none, as torch does.
    std::string name;
    int major = 0, minor = 0;
    const json capability = torch.value("capability", json::array());
    if (card_ != nullptr) {
      name = card_->name, major = card_->sm_major, minor = card_->sm_minor;
    } else if (capability.size() == 2) {
      name = text_at(torch, "name"), major = capability[0], minor = capability[1];
    }
    const std::string card = !name.empty()      ? fmt::format("{} (sm_{}{})", name, major, minor)
                             : !driver_.empty() ? "the card of driver " + driver_
                                                : "";
    const std::vector<std::string> parts = split_architectures(code);
    if (card.empty()) {
      fine("torch", wheel + "; no GPU is seen here");
    } else if (cuda.empty()) {
      explain("torch",
              fmt::format("{} beside {}: everything runs on the CPU without a word", wheel, card),
              "Torch not compiled with CUDA enabled", "");
    } else if (!name.empty() && !parts.empty() &&
               std::none_of(parts.begin(), parts.end(), [&](const std::string& a) {
                 return architecture_runs_on(a, major, minor);
               })) {
      explain("torch", fmt::format("{}; none for {}: \"{}\"", wheel, card, kNoImage), kNoImage, "");
    } else if (torch.value("available", false)) {
      fine("torch", fmt::format("{}; sees {}", wheel, text_at(torch, "name")));
    } else {
      const std::string said = text_at(torch, "init_error");
      const std::string why = said.empty() ? "No CUDA GPUs are available" : said;
      explain("torch", fmt::format("{}; does not see {}: {}", wheel, card, why), why,
              "nvidia-smi; unset CUDA_VISIBLE_DEVICES");
    }
  }

  void judge_matmul(const json& check) {
    if (check.empty()) return;
    const std::string where = "on " + text_at(check, "device"), error = text_at(check, "error");
    if (!error.empty()) {
      explain("matmul", where + ": " + error, error, "nvidia-smi");
    } else if (!check.value("ok", false)) {
      explain("matmul",
              fmt::format("{}: elements are wrong, their sum is {}, wanted {}", where,
                          check.value("got", 0.0), check.value("wanted", 0.0)),
              "",
              fmt::format("{} -m pip install --force-reinstall {}", python_, kTorchRequirement));
    } else {
      fine("matmul", fmt::format("bf16 {}: sum {}, as expected", where, check.value("got", 0.0)));
    }
  }

  const PythonFacts& facts_;
  const DeviceInfo* card_;
  const std::string& driver_;
  std::string python_;
  std::vector<DoctorItem> rows_;
};

}  // namespace

PythonFacts read_python_facts(const std::string& program, const std::string& lines, int end) {
  PythonFacts facts{.program = program, .problem = "", .told = json::object()};
  std::string stage = "its start";
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    json fact = json::parse(line, nullptr, false);
    if (!fact.is_object()) continue;  // a package may print, too
    if (fact.contains("stage")) stage = text_at(fact, "stage");
    fact.erase("stage");
    facts.told.update(fact);
  }
  const int status = WEXITSTATUS(end);
  if (WIFEXITED(end) && status == 0 && stage == "end") return facts;
  if (WIFSIGNALED(end) && WTERMSIG(end) == SIGALRM) {
    facts.problem = fmt::format("{} took too long at {}", program, stage);
  } else if (WIFSIGNALED(end)) {
    facts.problem = fmt::format("{} died by signal {} ({}) at {}", program, WTERMSIG(end),
                                strsignal(WTERMSIG(end)), stage);
  } else if (status == 127 || status == 126) {  // program_output(): not found, not executable
    facts.problem = fmt::format("{} cannot be run", program);
  } else {
    facts.problem = fmt::format("{} ended with exit status {} at {}", program, status, stage);
  }
  return facts;
}

PythonFacts ask_python(const std::string& program, const std::string& script, int gpu,
                       bool architectures_only) {
  std::vector<std::string> command = {program, script, "--gpu", std::to_string(gpu)};
  if (architectures_only) command.emplace_back("--architectures");
  const ProgramOutput output = program_output(command);
  return read_python_facts(program, output.text, output.end);
}

std::string architectures_of(const PythonFacts& facts, const std::string& version) {
  const json torch = part_of(facts.told, "torch");
  const std::string found = text_at(torch, "version");
  return found.substr(0, found.find('+')) == version ? text_at(torch, "architectures") : "";
}

std::vector<DoctorItem> judge_python(const PythonFacts& facts, const DeviceInfo* card,
                                     const std::string& driver) {
  return PythonJudge(facts, card, driver).judge();
}

}  // namespace mkbench
