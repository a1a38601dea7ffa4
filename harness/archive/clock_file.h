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

// The machine that a calibration is valid for. For a CPU `uuid` is empty and `driver` is the version
// of the operating system.
struct ClockMachine {
  std::string device, uuid, driver;
};

// `environment`: a report's `environment`.
ClockMachine clock_machine(const nlohmann::json& environment, bool cuda);

struct ClockCalibration : Calibration {
  std::string schema = kClockSchemaId;
  std::string date;  // "2026-11-23T10:00:00Z"
  ClockMachine machine;
  std::string build;   // build_id() of the mkbench that measured
  std::string engine;  // the engine that was measured
  // End-to-end A/A runs, how many of their intervals exclude 1, and how many runs had the verdict
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

// <user_data_dir()>/calibration/<device and uuid>.json; empty if the folder or the name is unknown.
std::filesystem::path clock_path(const ClockMachine& machine);

// Writes the file of the calibration's machine, whole or not at all, and returns its path. Throws
// Error(kRuntime) if clock_path() is empty, or with errno's text if writing fails.
std::filesystem::path write_clock(const ClockCalibration& calibration);

struct FoundClock {
  std::optional<ClockCalibration> calibration;
  std::string reason;    // why there is no calibration
  bool damaged = false;  // there is a file, but it was rejected
};

// Reads the file of this machine. A file that is damaged, or from another card or driver, is not
// used, and FoundClock::reason names it. Does not throw for a bad file.
FoundClock find_clock(const ClockMachine& machine);

// The margin of comparisons with `processes` processes of each engine.
SpeedMargin clock_margin(const FoundClock& found, int processes);

// `calibration.clock` of a report: margin, A/A half_width, source and statistical power for
// comparisons with `processes` processes; the calibration's A/A rows for all numbers of processes,
// its alpha, date, build, driver and engine. Without one: margin, source, why a file was not used.
nlohmann::json clock_report(const FoundClock& found, int processes);

// The margin of a report's `calibration`; half-width and least number of processes are computed
// from its rows. Without `clock`: the margin of a machine without calibration. Throws
// Error(kBadInput) that names the field if the rows cannot be read.
SpeedMargin recorded_margin(const nlohmann::json& calibration);

}  // namespace mkbench
