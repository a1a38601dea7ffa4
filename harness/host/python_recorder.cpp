// libmkbench_python_recorder.so: the recorder of launches (device/launch_recorder.h) for engines in
// Python; scripts/host.py loads it.
#include <exception>
#include <string>

#include "harness/device/launch_recorder.h"
#include "references/base/json_fields.h"

// Runs `work`, which must not throw, and returns what it handed to the card: a LaunchTrace as JSON.
// The text is valid until the next call.
extern "C" __attribute__((visibility("default"))) const char* mkbench_record_launches(
    void (*work)()) {
  static std::string text;
  mkbench::LaunchTrace trace;
  try {
    trace = mkbench::record_launches(work);
  } catch (const std::exception& error) {
    trace.problem = error.what();
  }
  text = mkbench::json_fields::write(trace).dump(-1, ' ', false,
                                                 nlohmann::json::error_handler_t::replace);
  return text.c_str();
}
