// The hidden command: a worker reads one job and answers with messages.
#pragma once

#include <nlohmann/json.hpp>

#include "harness/wire/channel.h"

namespace mkbench {

// Reads the job from `job_fd`, does it, reports to `message_fd`. The exit status of the worker
// process: 0 once every result was sent, whatever the verdicts.
int worker_main(int job_fd, int message_fd);

// Does one job of any kind ("probe", "plan", "ceiling", "doctor", "tune", "case") in this process.
void do_job(const nlohmann::json& job, MessageSink& sink);

}  // namespace mkbench
