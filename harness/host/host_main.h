// The hidden command: a host reads one job and answers with messages.
#pragma once

#include "harness/wire/channel.h"
#include "harness/wire/job.h"

namespace mkbench {

// Reads the job from `job_fd`, does it, reports to `message_fd`. The exit status of the host
// process: 0 once every result was sent, whatever the verdicts.
int worker_main(int job_fd, int message_fd);

// Does one job of any kind in this process.
void do_job(const ToHost& job, MessageSink& sink);

}  // namespace mkbench
