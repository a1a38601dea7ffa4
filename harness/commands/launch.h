// Small jobs for a worker whose whole answer is one message: probes of the machine, plans, the
// doctor.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "harness/worker/job.h"
#include "references/error.h"

namespace mkbench {

struct WorkerAnswer {
  bool ok = false;
  nlohmann::json message;                // of the type asked for, when ok
  std::string problem;                   // one line, when not
  ErrorKind kind = ErrorKind::kRuntime;  // of the problem
  bool hung = false;                     // killed at the deadline
  bool interrupted = false;
};

// Runs `job` in a worker (in this process when asked) and returns its message of type `type`.
WorkerAnswer ask_worker(const CaseJob& job, const std::string& type, double deadline_s,
                        bool in_process);

}  // namespace mkbench
