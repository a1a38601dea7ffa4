#include <fmt/format.h>

#include "harness/parent/launch.h"
#include "harness/parent/options.h"
#include "harness/report/verdict.h"
#include "references/base/error.h"

namespace mkbench {

int doctor_command(const Options& options, const Invocation&) {
  const auto answer = ask_worker<DoctorAnswer>(DoctorJob{options.gpu}, options.timeout_s);
  if (answer.interrupted) return exit_code(Verdict::kInterrupted);
  if (!answer.ok()) {
    throw Error(answer.hung ? ErrorKind::kHang : ErrorKind::kRuntime, "doctor: " + answer.problem);
  }
  for (const std::string& line : answer.message->lines) fmt::print("{}\n", line);
  // Without --device cuda a machine without a GPU is a machine for the host twin.
  return answer.message->ready || options.device != DeviceChoice::kCuda
             ? 0
             : exit_code(Verdict::kUnsupportedDevice);
}

}  // namespace mkbench
