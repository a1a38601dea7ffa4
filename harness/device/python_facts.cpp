#include "harness/device/python_facts.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <sstream>
#include <string_view>
#include <utility>

#include "harness/device/program_output.h"
#include "harness/report/known_errors.h"

namespace mkbench {
namespace {

using nlohmann::json;

std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// The object under that name; an empty one without it.
json part_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_object() ? *found : json::object();
}

// The judgement of one Python.
class PythonJudge {
 public:
  PythonJudge(const PythonFacts& facts, const DeviceInfo* card, std::string driver, Items& items)
      : facts_(facts), card_(card), driver_(std::move(driver)), items_(items) {
    const std::string told = text_at(part_of(facts.told, "python"), "executable");
    python_ = told.empty() ? facts.program : told;
  }

  void judge() {
    if (facts_.told.empty()) {
      items_.note("Python", facts_.problem, "--python PATH names another one");
      return;
    }
    items_.fine("Python", fmt::format("{} ({})", text_at(part_of(facts_.told, "python"), "version"),
                                      python_));
    if (facts_.told.contains("torch")) judge_torch(part_of(facts_.told, "torch"));
    if (facts_.told.contains("transformers")) judge_package("transformers", "transformers");
    if (facts_.told.contains("bitsandbytes") &&
        judge_package("bitsandbytes", "bitsandbytes, which QLoRA quantises with")) {
      judge_nf4(part_of(part_of(facts_.told, "bitsandbytes"), "nf4"));
    }
    if (!facts_.problem.empty()) {
      const KnownError* known = find_known_error(facts_.problem);
      items_.warning("Python", facts_.problem,
                     known ? command_of(*known) : python_ + " -m pip check");
    }
  }

 private:
  // A command of the table, for the Python that is judged.
  std::string command_of(const KnownError& error) const {
    constexpr std::string_view kPython = "python -m ";
    const std::string command(error.command);
    return command.starts_with(kPython) ? python_ + command.substr(kPython.size() - 4) : command;
  }

  std::string install(std::string_view package) const {
    return fmt::format("{} -m pip install {}", python_, package);
  }

  // A row for an error text: what the table knows of it, or `otherwise`.
  void explain(const std::string& topic, const std::string& text, const std::string& message,
               const std::string& otherwise) {
    const KnownError* known = find_known_error(message);
    items_.warning(topic, text,
                   known ? fmt::format("{} ({}): {}", known->cause,
                                       error_class_name(known->error_class), command_of(*known))
                         : otherwise);
  }

  // True where the package is there and works so far.
  bool judge_package(const char* name, const std::string& what) {
    const json facts = part_of(facts_.told, name);
    const std::string error = text_at(facts, "error");
    if (error.empty()) {
      items_.fine(name, text_at(facts, "version"));
      return true;
    }
    if (facts.value("missing", false)) {
      items_.note(name, "not installed: " + what, install(name));
    } else {
      explain(name, "cannot be imported: " + error, error, install("--upgrade ") + name);
    }
    return false;
  }

  void judge_torch(const json& torch) {
    const std::string error = text_at(torch, "error");
    if (!error.empty()) {
      if (torch.value("missing", false)) {
        items_.note("torch", "not installed", install(kTorchRequirement));
      } else {
        explain("torch", "cannot be imported: " + error, error,
                install("--force-reinstall ") + std::string(kTorchRequirement));
      }
      return;
    }
    const std::string cuda = text_at(torch, "cuda"), code = text_at(torch, "architectures");
    const std::string wheel =
        cuda.empty() ? text_at(torch, "version") + ", a wheel for the CPU"
                     : fmt::format("{}, a wheel for CUDA {} with code for {}",
                                   text_at(torch, "version"), cuda, code.empty() ? "none" : code);
    judge_card(torch, wheel, cuda, code);
    judge_matmul(part_of(torch, "matmul"));
  }

  // The card, as mkbench sees it, else as torch does.
  struct Seen {
    std::string name;  // empty: none
    int major = 0, minor = 0;
  };
  Seen card_of(const json& torch) const {
    if (card_ != nullptr) return {card_->name, card_->sm_major, card_->sm_minor};
    const auto capability = torch.find("capability");
    if (capability == torch.end() || !capability->is_array() || capability->size() != 2) return {};
    return {text_at(torch, "name"), capability->at(0).get<int>(), capability->at(1).get<int>()};
  }

  // What torch and the card are to each other; the traps are those that end a rented hour.
  void judge_card(const json& torch, const std::string& wheel, const std::string& cuda,
                  const std::string& code) {
    const Seen seen = card_of(torch);
    const std::string card = !seen.name.empty()
                                 ? fmt::format("{} (sm_{}{})", seen.name, seen.major, seen.minor)
                             : !driver_.empty() ? "the card of driver " + driver_
                                                : "";
    const std::vector<std::string> parts = split_architectures(code);
    if (card.empty()) {
      items_.fine("torch", wheel + "; no GPU is seen here");
    } else if (cuda.empty()) {
      explain("torch",
              fmt::format("{} beside {}: everything runs on the CPU without a word", wheel, card),
              "Torch not compiled with CUDA enabled", "");
    } else if (!seen.name.empty() && !parts.empty() &&
               std::none_of(parts.begin(), parts.end(), [&](const std::string& a) {
                 return architecture_runs_on(a, seen.major, seen.minor);
               })) {
      constexpr char kNoImage[] = "no kernel image is available for execution on the device";
      explain("torch", fmt::format("{}; none for {}: \"{}\"", wheel, card, kNoImage), kNoImage, "");
    } else if (torch.value("available", false)) {
      items_.fine("torch", fmt::format("{}; sees {}", wheel, text_at(torch, "name")));
    } else {
      const std::string said = text_at(torch, "init_error");
      const std::string why = said.empty() ? "No CUDA GPUs are available" : said;
      explain("torch", fmt::format("{}; does not see {}: {}", wheel, card, why), why,
              "nvidia-smi; unset CUDA_VISIBLE_DEVICES");
    }
  }

  void judge_matmul(const json& check) {
    if (check.empty()) return;
    const std::string device = text_at(check, "device"), error = text_at(check, "error");
    if (!error.empty()) {
      explain("matmul", fmt::format("on {}: {}", device, error), error, "nvidia-smi");
    } else if (!check.value("ok", false)) {
      items_.warning("matmul",
                     fmt::format("on {}: elements are wrong, their sum is {}, wanted {}", device,
                                 check.value("got", 0.0), check.value("wanted", 0.0)),
                     install("--force-reinstall ") + std::string(kTorchRequirement));
    } else {
      items_.fine("matmul", fmt::format("bf16 on {}: sum {}, as expected{}", device,
                                        check.value("got", 0.0), not_on_a_card(device)));
    }
  }

  void judge_nf4(const json& check) {
    const std::string device = text_at(check, "device"), error = text_at(check, "error");
    if (!error.empty()) {
      explain("NF4", fmt::format("on {}: {}", device, error), error,
              install("--upgrade bitsandbytes"));
    } else if (!check.value("ok", false)) {
      items_.warning("NF4",
                     fmt::format("on {}: the numbers that came back are not NF4's, largest error "
                                 "{:.3f} of a block's largest number",
                                 device, check.value("largest", 0.0)),
                     install("--upgrade bitsandbytes"));
    } else {
      items_.fine("NF4", fmt::format("quantised and restored on {}: largest error {:.3f} of a "
                                     "block's largest number, as NF4 permits{}",
                                     device, check.value("largest", 0.0), not_on_a_card(device)));
    }
  }

  static const char* not_on_a_card(const std::string& device) {
    return device == "cpu" ? "; not run on a card" : "";
  }

  const PythonFacts& facts_;
  const DeviceInfo* card_;
  const std::string driver_;
  Items& items_;
  std::string python_;
};

}  // namespace

PythonFacts read_python_facts(const std::string& program, const std::string& lines, int end) {
  PythonFacts facts{.program = program, .problem = "", .told = json::object()};
  std::string stage = "its start";
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const json fact = json::parse(line, nullptr, false);
    if (!fact.is_object()) continue;  // a package may print, too
    if (fact.contains("stage")) stage = text_at(fact, "stage");
    for (const auto& [name, value] : fact.items()) {
      if (name != "stage") facts.told[name] = value;
    }
  }
  if (WIFEXITED(end) && WEXITSTATUS(end) == 0 && stage == "end") return facts;
  if (WIFSIGNALED(end) && WTERMSIG(end) == SIGALRM) {
    facts.problem = fmt::format("{} took too long at {}", program, stage);
  } else if (WIFSIGNALED(end)) {
    facts.problem = fmt::format("{} died by signal {} ({}) at {}", program, WTERMSIG(end),
                                strsignal(WTERMSIG(end)), stage);
  } else {
    constexpr int kNotFound = 127, kNotExecutable = 126;  // of the shell
    const int status = WEXITSTATUS(end);
    facts.problem = status == kNotFound || status == kNotExecutable
                        ? fmt::format("{} cannot be run", program)
                        : fmt::format("{} ended with exit status {} at {}", program, status, stage);
  }
  return facts;
}

PythonFacts ask_python(const std::string& program, const std::string& script, int gpu,
                       bool architectures_only) {
  std::vector<std::string> command = {program, script, "--gpu", std::to_string(gpu)};
  if (architectures_only) command.emplace_back("--architectures");
  const ProgramOutput output = program_output(command);
  if (output.end == -1) return {program, "no process for " + program, json::object()};
  return read_python_facts(program, output.text, output.end);
}

std::string architectures_of(const PythonFacts& facts, const std::string& version) {
  const json torch = part_of(facts.told, "torch");
  const std::string found = text_at(torch, "version");
  return found.substr(0, found.find('+')) == version ? text_at(torch, "architectures") : "";
}

std::vector<DoctorItem> judge_python(const PythonFacts& facts, const DeviceInfo* card,
                                     const std::string& driver) {
  std::vector<DoctorItem> rows;
  Items items(rows);
  PythonJudge(facts, card, driver, items).judge();
  return rows;
}

}  // namespace mkbench
