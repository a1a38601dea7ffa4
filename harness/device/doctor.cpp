#include "harness/device/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/device/doctor_parts.h"
#include "harness/report/known_errors.h"
#include "references/base/data_root.h"

namespace mkbench {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

int count_problems(const std::vector<DoctorItem>& items) {
  return static_cast<int>(std::count_if(items.begin(), items.end(), [](const DoctorItem& item) {
    return item.finding == Finding::kProblem;
  }));
}

void add_lines(const std::vector<DoctorItem>& items, std::vector<std::string>& lines) {
  for (const DoctorItem& item : items) {
    lines.push_back(
        fmt::format("- {:<9}{:<13} {}", finding_text(item.finding), item.topic, item.text));
    if (!item.what_to_do.empty()) {
      lines.push_back(fmt::format("{:<25}-> {}", "", advice_here(item.what_to_do)));
    }
  }
}

void conclude(const DoctorInputs& inputs, DoctorReport& report) {
  const bool no_run = !inputs.torch_problem.empty() || !inputs.card_problem.empty();
  report.gpu_ready = report.usability.usable() && report.checked && report.check.ok &&
                     !inputs.cpu_only && report.problems() == 0;
  if (no_run) {
    report.verdict = "nothing can be judged: a program of mkbench cannot start";
    report.next = advice_here("scripts/setup.sh");
  } else if (report.gpu_ready) {
    report.verdict = fmt::format("ready on GPU {}", inputs.gpu);
    report.next = "mkbench --compare eager";
  } else {
    report.verdict = inputs.cpu_only
                         ? "ready for the CPU, where the host twin runs instead of the megakernel"
                         : "no usable GPU (see the problems above); on the CPU, the host twin runs "
                           "instead of the megakernel";
    report.next = "mkbench --compare eager --device cpu";
  }
}

}  // namespace

const char* finding_text(Finding finding) {
  constexpr const char* kTexts[] = {"ok", "note", "warning", "problem"};
  return kTexts[static_cast<size_t>(finding)];
}

std::string gib(int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / kGiB);
}

namespace doctor {

std::string advice_for(const std::string& message, const std::string& otherwise) {
  const KnownError* known = find_known_error(message);
  if (known == nullptr || known->command.starts_with("scripts/setup.sh")) return otherwise;
  return advice_text(*known);
}

void add_of_card(const DoctorInputs& inputs, Items& items, const std::string& topic,
                 const std::string& text, const std::string& what_to_do) {
  if (inputs.cpu_only) {
    items.note(topic, text);
  } else {
    items.problem(topic, text, what_to_do);
  }
}

}  // namespace doctor

int DoctorReport::problems() const { return count_problems(items); }
int DoctorReport::unmet() const { return count_problems(required); }

void judge_machine(const DoctorInputs& inputs, DoctorReport& report) {
  report.items.clear();
  Items items(report.items);
  doctor::judge_cards(inputs, report, items);
  doctor::judge_toolkit(report, items);
  doctor::judge_code(inputs, report, items);
  doctor::judge_memory(inputs, report, items);
  doctor::judge_surroundings(report, items);
  doctor::judge_wsl(inputs, report, items);
  doctor::judge_container(report, items);
  report.required = judge_requirements(inputs.required, report.devices, inputs.gpu, report.machine);
  report.python_items.clear();
  if (report.python)
    report.python_items = judge_python(*report.python, find_device(report.devices, inputs.gpu),
                                       report.devices.driver_version);
  conclude(inputs, report);
}

std::vector<std::string> doctor_lines(const DoctorReport& report, bool strict_would_fail) {
  std::vector<std::string> lines = {"# mkbench doctor", ""};
  add_lines(report.items, lines);
  if (!report.required.empty()) lines.insert(lines.end(), {"", "## Required", ""});
  add_lines(report.required, lines);
  if (report.python)
    lines.insert(lines.end(), {"", "## Python, for training (mkbench runs without)", ""});
  add_lines(report.python_items, lines);
  lines.insert(lines.end(), {"", "verdict: " + report.verdict});
  if (strict_would_fail) {
    lines.push_back(fmt::format("strict:  {} problem{}: with --strict the exit code is 6",
                                report.problems(), report.problems() == 1 ? "" : "s"));
  }
  lines.push_back("next:    " + report.next);
  return lines;
}

nlohmann::json to_json(const std::vector<DoctorItem>& items) {
  nlohmann::json list = nlohmann::json::array();
  for (const DoctorItem& item : items) {
    list.push_back({{"topic", item.topic},
                    {"finding", finding_text(item.finding)},
                    {"text", item.text},
                    {"what_to_do", item.what_to_do}});
  }
  return list;
}

nlohmann::json to_json(const DoctorReport& report) {
  nlohmann::json devices = nlohmann::json::array();
  for (const DeviceInfo& d : report.devices.devices) devices.push_back(to_json(d));
  const HostMachine& m = report.machine;
  nlohmann::json python = nullptr;
  if (report.python) {
    python = {{"program", report.python->program},
              {"problem", report.python->problem},
              {"facts", report.python->told},
              {"items", to_json(report.python_items)}};
  }
  return {
      {"driver", report.devices.driver_version},
      {"driver_cuda", report.devices.driver_cuda_version == 0
                          ? nlohmann::json(nullptr)
                          : nlohmann::json(cuda_version_text(report.devices.driver_cuda_version))},
      {"runtime_cuda", cuda_version_text(report.devices.runtime_cuda_version)},
      {"toolkit", {{"nvcc", report.toolkit.nvcc}, {"version", report.toolkit.version}}},
      {"devices", devices},
      {"machine",
       {{"cores", m.cores},
        {"memory_total_bytes", m.memory_total},
        {"memory_free_bytes", m.memory_free},
        {"disk_folder", m.disk_folder},
        {"disk_total_bytes", m.disk_total},
        {"disk_free_bytes", m.disk_free},
        {"shared_memory_bytes", m.shared_total},
        {"wsl", to_json(m.wsl)},
        {"container", m.container}}},
      {"items", to_json(report.items)},
      {"required", to_json(report.required)},
      {"python", python},
      {"problems", report.problems()},
      {"unmet", report.unmet()},
      {"gpu_ready", report.gpu_ready},
      {"verdict", report.verdict},
      {"next", report.next}};
}

}  // namespace mkbench
