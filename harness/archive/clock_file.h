// The calibration of this machine's clock, which `mkbench selftest --timing --calibrate` writes to
// the user's data folder and later runs read.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "harness/measure/calibration.h"

namespace mkbench {

inline constexpr char kClockSchemaId[] = "mkbench.clock";

// What a calibration holds for: a GPU with its uuid and driver, or a processor with its kernel.
struct ClockMachine {
  std::string device, uuid, driver;
};

// `environment`: that part of a report.
ClockMachine clock_machine(const nlohmann::json& environment, bool cuda);

struct ClockCalibration : Calibration {
  std::string schema = kClockSchemaId;
  std::string date;  // "2026-11-23T10:00:00Z"
  ClockMachine machine;
  std::string build;   // build_id() of the mkbench that measured
  std::string engine;  // the engine that was measured
  // End-to-end A/A runs; how many of them had an interval without 1, and how many the verdict
  // FASTER or SLOWER.
  int live = 0, live_excluding_one = 0, live_faster_or_slower = 0;
};

template <typename V>
void describe_fields(V& v, Tag<ClockCalibration>) {
  using C = ClockCalibration;
  v.field("schema", &C::schema);
  v.field("date", &C::date);
  v.field("machine", &C::machine);
  v.field("build", &C::build);
  v.field("engine", &C::engine);
  describe_fields(v, Tag<Calibration>());
  v.field("live", &C::live);
  v.field("live_excluding_one", &C::live_excluding_one);
  v.field("live_faster_or_slower", &C::live_faster_or_slower);
}
template <typename V>
void describe_fields(V& v, Tag<ClockMachine>) {
  list_fields(v, "device", &ClockMachine::device, "uuid", &ClockMachine::uuid, "driver",
              &ClockMachine::driver);
}

// <user_data_dir()>/calibration/<device and uuid>.json; empty where there is no such folder.
std::filesystem::path clock_path(const ClockMachine& machine);

// Writes the file of the calibration's machine, whole or not at all, and returns its path. Throws
// Error(kRuntime) with errno's text, and where neither XDG_DATA_HOME nor HOME is set.
std::filesystem::path write_clock(const ClockCalibration& calibration);

struct FoundClock {
  std::optional<ClockCalibration> calibration;
  std::string reason;    // why there is none
  bool damaged = false;  // there is a file, but it was rejected
};

// Reads the file of this machine. A file that is damaged, or of another card or driver, is not
// used, and the reason names it. Never throws.
FoundClock find_clock(const ClockMachine& machine);

// The margin of comparisons with `processes` processes of each engine.
SpeedMargin clock_margin(const FoundClock& found, int processes);

// `calibration.clock` of a report: margin, half_width and source for comparisons with `processes`
// processes, the power of their row, the A/A counts of all rows, and what was measured when.
// Without a calibration: margin and source, and the reason why a file is not used.
nlohmann::json clock_report(const FoundClock& found, int processes);

// The margin that a report's `calibration` records; half-width and least number of processes are
// computed from its rows. Without `clock`: the margin of a machine without calibration. Throws
// Error(kBadInput) that names the field for rows that cannot be read.
SpeedMargin recorded_margin(const nlohmann::json& calibration);

}  // namespace mkbench
