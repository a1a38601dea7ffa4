// How the blocks of a case are spread over the processes of its engines, and when there are enough.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/flow/contestant.h"
#include "harness/flow/job.h"
#include "harness/judge/budget.h"
#include "harness/measure/sample.h"
#include "harness/measure/two_level.h"

namespace mkbench {

// Number of processes on a GPU without --processes.
inline constexpr int kGpuProcesses = 5;
// Blocks by time: a process begins blocks until its fastest engine has kSampleS seconds of samples
// or kMostBlocksS are over (eager takes 5 s for a sample of 128 tokens); several processes divide
// these seconds. Each process has at least kLeastBlocks blocks.
inline constexpr double kSampleS = 3, kMostBlocksS = 40;
inline constexpr int kLeastBlocks = 2;

// Number of processes in which each engine is timed, as planned before the first block. With one
// engine open at a time, every turn has its own process.
int process_count(const CaseJob& job);
// Blocks of each process, chosen by time, for engines whose samples take `sample_s` seconds.
int blocks_by_time(const CaseJob& job, const std::vector<double>& sample_s);

// Decides which block of which process comes next. With blocks by time, the first process sets the
// number for all; else job.blocks are spread over the processes. --target-rel-ci adds processes
// like the last one, or blocks if there is only one process, up to job.max_blocks.
class BlockSchedule {
 public:
  // Job and engines outlive the schedule.
  BlockSchedule(const CaseJob& job, const std::vector<Contestant*>& engines, Now now)
      : job_(job), engines_(engines), now_(std::move(now)) {}
  // Moves to the next process, or to the process's next block; false if there are enough.
  bool begin_process();
  bool begin_block();
  // Takes in the sample of an engine that is still alive.
  void count(const Sample& sample);
  // Forgets the samples of a block that will be run again.
  void forget(int block);

  int process() const { return process_; }
  int block() const { return block_; }  // over all processes
  int block_of_process() const { return block_of_process_; }
  // Indices of the engines, in the order of block `number`.
  const std::vector<int>& order(int number);
  // Indices of the engines, in the order in which this process starts, opens and warms them. It is
  // drawn by the run's prompt seed; each second process has the one before it backwards, so that no
  // engine comes first in all of them.
  std::vector<int> opening() const;

 private:
  struct Taken {
    int process;
    double ms_per_token, sample_s;
  };
  using TakenBlocks = std::map<int, Taken>;

  static ByProcess by_process(const TakenBlocks& blocks);
  double sample_s(const std::string& engine) const;  // in this process
  bool wants_block();
  bool wants_more() const;
  bool narrow_enough() const;

  const CaseJob& job_;
  const std::vector<Contestant*>& engines_;
  const Now now_;
  int process_ = -1, block_ = -1, block_of_process_ = -1;
  int blocks_of_first_ = 0;                   // number of blocks in the first process
  std::optional<double> begin_s_;             // when the first block of the process began
  std::map<std::string, TakenBlocks> taken_;  // by engine
  std::vector<std::vector<int>> orders_;
};

}  // namespace mkbench
