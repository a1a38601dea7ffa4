// Small jobs for a worker whose whole answer is one message: probes of the machine, plans, the
// doctor.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "harness/wire/channel.h"
#include "harness/wire/job.h"
#include "references/base/error.h"

namespace mkbench {

struct WorkerAnswer {
  bool ok = false;
  nlohmann::json message;                // of the type asked for, when ok
  std::string problem;                   // one line, when not
  ErrorKind kind = ErrorKind::kRuntime;  // of the problem
  bool hung = false;                     // killed at the deadline
  bool interrupted = false;
};

// Does one job in this process: what a worker runs. main() hands it to the commands, so that the
// parent's library needs no engine.
using DoJob = void (*)(const nlohmann::json& job, MessageSink& sink);

// Runs `job` in a worker (in this process where `in_process` is given) and returns its message of
// type `type`.
WorkerAnswer ask_worker(const CaseJob& job, const std::string& type, double deadline_s,
                        DoJob in_process = nullptr);

}  // namespace mkbench
