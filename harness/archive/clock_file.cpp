#include "harness/archive/clock_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "harness/report/report.h"
#include "references/base/error.h"
#include "references/base/json_fields.h"
#include "references/base/json_strict.h"
#include "references/user_folders.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

std::string text_at(const nlohmann::json& environment, const char* part, const char* name) {
  const auto found = environment.find(part);
  return found != environment.end() && found->is_object() ? found->value(name, "") : "";
}

// Keeps letters, digits, '.' and '_'. Each run of other characters becomes one '-', but is dropped
// at either end of the text. The result is cut after 200 characters.
std::string file_name(const std::string& text) {
  std::string name;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_';
    if (plain) name += c;
    if (!plain && !name.empty() && name.back() != '-') name += '-';
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.substr(0, 200);
}

void need(bool holds, const std::string& field, const std::string& found,
          const std::string& wanted) {
  if (!holds)
    throw Error(ErrorKind::kBadInput, fmt::format("{}: found {}, wanted {}", field, found, wanted));
}

void need_same(const std::string& field, const std::string& found, const std::string& wanted) {
  need(found == wanted, field, in_quotes(found), in_quotes(wanted));
}

void check(const ClockCalibration& c, const ClockMachine& machine) {
  need_same("schema", c.schema, kClockSchemaId);
  need_same("machine.device", c.machine.device, machine.device);
  need_same("machine.uuid", c.machine.uuid, machine.uuid);
  need_same("machine.driver", c.machine.driver, machine.driver);
  need(!c.rows.empty(), "rows", "none", "at least one");
  int before = 0;
  for (size_t i = 0; i < c.rows.size(); ++i) {
    const CalibrationRow& row = c.rows[i];
    need(row.processes > before, fmt::format("rows[{}].processes", i),
         std::to_string(row.processes), fmt::format("more than {}", before));
    before = row.processes;
    need(row.half_width > 0 && row.half_width < 1, fmt::format("rows[{}].half_width", i),
         fmt::format("{:g}", row.half_width), "a share between 0 and 1");
  }
  const std::vector<std::string> problems = calibration_problems(c);
  need(problems.empty(), "its A/A comparisons", problems.empty() ? "" : problems.front(),
       "a calibration that was accepted");
}

}  // namespace

ClockMachine clock_machine(const nlohmann::json& environment, bool cuda) {
  if (!cuda)
    return {text_at(environment, "cpu", "name"), "", text_at(environment, "cpu", "kernel")};
  return {text_at(environment, "gpu", "name"), text_at(environment, "gpu", "uuid"),
          text_at(environment, "gpu", "driver")};
}

fs::path clock_path(const ClockMachine& machine) {
  const fs::path data = user_data_dir();
  const std::string name = file_name(machine.device + " " + machine.uuid);
  if (data.empty() || name.empty()) return {};
  return data / "calibration" / (name + ".json");
}

fs::path write_clock(const ClockCalibration& calibration) {
  const fs::path path = clock_path(calibration.machine);
  if (path.empty()) {
    throw Error(ErrorKind::kRuntime,
                "calibration: no folder for it: neither XDG_DATA_HOME nor HOME is set, or the "
                "device has no name");
  }
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) {
    throw Error(ErrorKind::kRuntime, fmt::format("calibration: cannot make {}: {}",
                                                 path.parent_path().string(), error.message()));
  }
  write_text(path, json_fields::write(calibration).dump(2) + "\n");
  return path;
}

FoundClock find_clock(const ClockMachine& machine) {
  FoundClock found;
  const fs::path path = clock_path(machine);
  std::error_code ignored;
  if (path.empty() || !fs::exists(path, ignored)) {
    found.reason = SpeedMargin{}.source;
    return found;
  }
  try {
    auto calibration = json_fields::read_as<ClockCalibration>(read_json_strict(path), "");
    check(calibration, machine);
    found.calibration = std::move(calibration);
  } catch (const std::exception& error) {
    found.damaged = true;
    const std::string what = error.what();
    found.reason = fmt::format("{}{} (not used)",
                               what.starts_with(path.string()) ? "" : path.string() + ": ", what);
  }
  return found;
}

SpeedMargin clock_margin(const FoundClock& found, int processes) {
  if (!found.calibration)
    return {0, found.damaged ? "this machine's calibration is not used" : found.reason};
  return margin_of(*found.calibration, processes,
                   fmt::format("A/A of {} processes, {}", found.calibration->processes,
                               found.calibration->date));
}

nlohmann::json clock_report(const FoundClock& found, int processes) {
  const SpeedMargin margin = clock_margin(found, processes);
  if (!found.calibration) {
    nlohmann::json without = {{"margin", margin.value()}, {"source", margin.source}};
    if (found.damaged) without["reason"] = found.reason;
    return without;
  }
  const ClockCalibration& c = *found.calibration;
  const CalibrationRow& row = *row_of_processes(c, processes);
  nlohmann::json copies = nlohmann::json::array();
  for (const CopiesRow& one : c.rows) copies.push_back(json_fields::write(one));
  return {{"margin", margin.value()},
          {"half_width", row.half_width},
          {"source", margin.source},
          {"date", c.date},
          {"build", c.build},
          {"driver", c.machine.driver},
          {"engine", c.engine},
          {"alpha", c.alpha},
          {"processes", row.processes},
          {"power", json_fields::write(row.power)},
          {"rows", copies}};
}

namespace {

// The A/A rows in `clock`, and the process count of the row from which its half_width comes. Empty
// if the run had no calibration, and for older reports, which have no rows.
Calibration recorded_copies(const nlohmann::json& clock) {
  Calibration copies;
  const auto rows = clock.find("rows");
  if (rows == clock.end()) return copies;
  const auto at = [](const char* name) { return fmt::format("calibration.clock.{}", name); };
  copies.alpha = json_fields::read_as<double>(clock.value("alpha", nlohmann::json()), at("alpha"));
  copies.processes =
      json_fields::read_as<int>(clock.value("processes", nlohmann::json()), at("processes"));
  for (const CopiesRow& row : json_fields::read_as<std::vector<CopiesRow>>(*rows, at("rows")))
    copies.rows.push_back({row, 0, {}});
  return copies;
}

}  // namespace

SpeedMargin recorded_margin(const nlohmann::json& calibration) {
  SpeedMargin margin;
  if (!calibration.is_object() || !calibration.contains("clock")) return margin;
  const nlohmann::json& clock = calibration["clock"];
  if (!clock.is_object()) return margin;
  if (clock.contains("source") && clock["source"].is_string())
    margin.source = clock["source"].get<std::string>();
  if (clock.contains("half_width") && clock["half_width"].is_number())
    margin.half_width = clock["half_width"].get<double>();
  const Calibration copies = recorded_copies(clock);
  return copies.rows.empty() ? margin : margin_of(copies, copies.processes, margin.source);
}

}  // namespace mkbench
