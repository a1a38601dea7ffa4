// libmkbench_python_recorder.so: recorder of launches (device/launch_recorder.h) and NVTX ranges
// (device/nvtx.h) for engines in Python; scripts/host.py loads it.
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "harness/device/launch_recorder.h"
#include "harness/device/nvtx.h"
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

namespace {

std::vector<std::unique_ptr<mkbench::NvtxRange>>& open_ranges() {
  static std::vector<std::unique_ptr<mkbench::NvtxRange>> ranges;
  return ranges;
}

}  // namespace

// Opens a range of the calling thread; it gets a label if `category` is not empty.
extern "C" __attribute__((visibility("default"))) void mkbench_push_range(const char* message,
                                                                          const char* category,
                                                                          int payload) {
  const bool labelled = *category != '\0';
  open_ranges().push_back(labelled
                              ? std::make_unique<mkbench::NvtxRange>(mkbench::RangeLabel{
                                    .message = message, .category = category, .payload = payload})
                              : std::make_unique<mkbench::NvtxRange>(message));
}

// Closes the range that was opened last.
extern "C" __attribute__((visibility("default"))) void mkbench_pop_range() {
  if (!open_ranges().empty()) open_ranges().pop_back();
}
