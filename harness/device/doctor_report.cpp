// The doctor's report as lines for people and as JSON.
#include <fmt/format.h>

#include <algorithm>

#include "harness/device/doctor.h"
#include "references/base/data_root.h"

namespace mkbench {
namespace {

const char* finding_text(Finding finding) {
  constexpr const char* kTexts[] = {"ok", "note", "warning", "problem"};
  return kTexts[static_cast<size_t>(finding)];
}

int count_problems(const std::vector<DoctorItem>& items) {
  return static_cast<int>(std::count_if(items.begin(), items.end(), [](const DoctorItem& item) {
    return item.finding == Finding::kProblem;
  }));
}

void add_lines(const char* title, const std::vector<DoctorItem>& items,
               std::vector<std::string>& lines) {
  if (items.empty()) return;
  lines.insert(lines.end(), {title, ""});
  for (const DoctorItem& item : items) {
    lines.push_back(
        fmt::format("- {:<9}{:<13} {}", finding_text(item.finding), item.topic, item.text));
    if (!item.what_to_do.empty()) {
      lines.push_back(fmt::format("{:<25}-> {}", "", advice_here(item.what_to_do)));
    }
  }
  lines.emplace_back();
}

nlohmann::json rows_json(const std::vector<DoctorItem>& items) {
  nlohmann::json list = nlohmann::json::array();
  for (const DoctorItem& item : items) {
    list.push_back({{"topic", item.topic},
                    {"finding", finding_text(item.finding)},
                    {"text", item.text},
                    {"what_to_do", item.what_to_do}});
  }
  return list;
}

nlohmann::json machine_json(const HostMachine& m) {
  return {{"cores", m.cores},
          {"memory_total_bytes", m.memory_total},
          {"memory_free_bytes", m.memory_free},
          {"disk_folder", m.disk_folder},
          {"disk_total_bytes", m.disk_total},
          {"disk_free_bytes", m.disk_free},
          {"shared_memory_bytes", m.shared_total},
          {"wsl",
           {{"version", m.wsl.version},
            {"windows_libcuda", m.wsl.windows_libcuda},
            {"linux_libcuda", m.wsl.linux_libcuda}}},
          {"container", m.container}};
}

}  // namespace

int DoctorReport::problems() const { return count_problems(items); }

std::vector<std::string> doctor_lines(const DoctorReport& report, bool strict_would_fail) {
  std::vector<std::string> lines;
  add_lines("# mkbench doctor", report.items, lines);
  add_lines("## Python, for engines in Python (mkbench runs without)", report.python_items, lines);
  lines.push_back("verdict: " + report.verdict);
  if (strict_would_fail) {
    lines.push_back(fmt::format("strict:  {} problem{}: with --strict the exit code is 6",
                                report.problems(), report.problems() == 1 ? "" : "s"));
  }
  lines.push_back("next:    " + report.next);
  return lines;
}

nlohmann::json to_json(const DoctorReport& report) {
  nlohmann::json devices = nlohmann::json::array();
  for (const DeviceInfo& d : report.devices.devices) devices.push_back(to_json(d));
  nlohmann::json python = nullptr, driver_cuda = nullptr;
  if (report.python) {
    python = {{"program", report.python->program},
              {"problem", report.python->problem},
              {"facts", report.python->told},
              {"items", rows_json(report.python_items)}};
  }
  if (report.devices.driver_cuda_version != 0)
    driver_cuda = cuda_version_text(report.devices.driver_cuda_version);
  return {{"driver", report.devices.driver_version},
          {"driver_cuda", driver_cuda},
          {"runtime_cuda", cuda_version_text(report.devices.runtime_cuda_version)},
          {"toolkit", {{"nvcc", report.toolkit.nvcc}, {"version", report.toolkit.version}}},
          {"devices", devices},
          {"machine", machine_json(report.machine)},
          {"items", rows_json(report.items)},
          {"python", python},
          {"problems", report.problems()},
          {"gpu_ready", report.gpu_ready},
          {"verdict", report.verdict},
          {"next", report.next}};
}

}  // namespace mkbench
