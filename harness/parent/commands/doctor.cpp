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
  // A machine without a GPU can still run the host twin, so it only fails under --device cuda.
  return answer.message->ready || options.device != DeviceChoice::kCuda
             ? 0
             : exit_code(Verdict::kUnsupportedDevice);
}

}  // namespace mkbench
