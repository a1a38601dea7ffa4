#include <fmt/format.h>

#include "harness/parent/commands/commands.h"
#include "harness/parent/launch.h"
#include "harness/report/verdict.h"
#include "references/base/error.h"

namespace mkbench {

int doctor_command(const Options& options) {
  CaseJob job;
  job.kind = "doctor";
  job.gpu = options.gpu;
  const WorkerAnswer answer = ask_worker(job, "doctor", options.timeout_s);
  if (answer.interrupted) return exit_code(Verdict::kInterrupted);
  if (!answer.ok) {
    throw Error(answer.hung ? ErrorKind::kHang : ErrorKind::kRuntime, "doctor: " + answer.problem);
  }
  for (const auto& line : answer.message["lines"]) fmt::print("{}\n", line.get<std::string>());
  const bool ready = answer.message.value("ready", false);
  // Without --device cuda a machine without a GPU is a machine for the host twin.
  return ready || options.device != DeviceChoice::kCuda ? 0
                                                        : exit_code(Verdict::kUnsupportedDevice);
}

}  // namespace mkbench
