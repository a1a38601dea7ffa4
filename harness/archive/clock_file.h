// The calibration of this machine's clock, which `mkbench selftest --timing --calibrate` writes to a
// file of the user's and later runs read.
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

// `environment`: of a report.
ClockMachine clock_machine(const nlohmann::json& environment, bool cuda);

struct ClockCalibration : Calibration {
  std::string schema = kClockSchemaId;
  std::string date;  // "2026-11-23T10:00:00Z"
  ClockMachine machine;
  std::string build;   // build_id() of the mkbench that measured
  std::string engine;  // that was measured
  // A/A runs end to end; those of them whose interval does not hold 1, and those with a verdict
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
  bool damaged = false;  // there is a file, and it is not used
};

// Reads the file of this machine. A file that is damaged, or of another card or driver, is not used,
// and the reason names it. Never throws.
FoundClock find_clock(const ClockMachine& machine);

// The margin of comparisons of so many processes of each engine.
SpeedMargin clock_margin(const FoundClock& found, int processes);

// `calibration.clock` of a report: half_width, margin and source of such comparisons, the power of
// their row, the A/A counts of all rows, and what was measured when; without a calibration margin and source, and the reason why a
// file is not used.
nlohmann::json clock_report(const FoundClock& found, int processes);

// The margin that such a `calibration` of a report stands for, with its half-width and the processes
// that are too few computed from the rows; of one without `clock`, that of no calibration. Throws
// Error(kBadInput) that names the field for rows that cannot be read.
SpeedMargin recorded_margin(const nlohmann::json& calibration);

}  // namespace mkbench
