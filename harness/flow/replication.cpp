#include "harness/flow/replication.h"

#include <algorithm>
#include <numeric>

namespace mkbench {
namespace {

// Blocks of a process under --blocks; a remainder goes to the first processes.
int blocks_of_process(const CaseJob& job, int process) {
  const int processes = process_count(job);
  return job.blocks / processes + (process < job.blocks % processes ? 1 : 0);
}

// Blocks by time: whether a process that has run `blocks` blocks runs another. sample_s: seconds of
// samples of the fastest engine; blocks_s: seconds since the process's first block began.
bool needs_block(const CaseJob& job, int blocks, double sample_s, double blocks_s) {
  if (blocks < kLeastBlocks) return true;
  const double processes = process_count(job);
  return sample_s < kSampleS / processes && blocks_s < kMostBlocksS / processes;
}

// Half-width of the interval, relative to its middle; absent without an interval.
std::optional<double> relative_half(const std::optional<Interval>& ci, double middle) {
  if (!ci) return std::nullopt;
  return (ci->high - ci->low) / 2 / middle;
}

}  // namespace

int process_count(const CaseJob& job) {
  if (job.one_at_a_time) return std::max(1, job.blocks);
  return std::max(1, job.blocks_by_time ? job.processes : std::min(job.processes, job.blocks));
}

int blocks_by_time(const CaseJob& job, const std::vector<double>& sample_s) {
  if (sample_s.empty()) return kLeastBlocks;
  const double least = *std::min_element(sample_s.begin(), sample_s.end());
  const double all = std::accumulate(sample_s.begin(), sample_s.end(), 0.0);
  int blocks = kLeastBlocks;
  while (all > 0 && needs_block(job, blocks, blocks * least, blocks * all)) ++blocks;
  return blocks;
}

bool BlockSchedule::begin_process() {
  const int processes = process_count(job_);
  if (process_ + 1 >= processes && (processes == 1 || !wants_more())) return false;
  ++process_;
  block_of_process_ = -1;
  begin_s_.reset();
  return true;
}

bool BlockSchedule::begin_block() {
  if (!begin_s_) begin_s_ = now_();
  ++block_of_process_;
  if (!wants_block()) return false;
  ++block_;
  return true;
}

bool BlockSchedule::wants_block() {
  const int processes = process_count(job_);
  if (!job_.blocks_by_time || job_.one_at_a_time) {
    return block_of_process_ < blocks_of_process(job_, std::min(process_, processes - 1)) ||
           (processes == 1 && wants_more());
  }
  if (process_ > 0) return block_of_process_ < blocks_of_first_;
  double least_s = kSampleS;
  for (const Contestant* c : engines_) {
    if (c->alive && !c->ceiling) least_s = std::min(least_s, sample_s(c->name));
  }
  blocks_of_first_ = block_of_process_;
  return needs_block(job_, block_of_process_, least_s, now_() - *begin_s_) ||
         (processes == 1 && wants_more());
}

bool BlockSchedule::wants_more() const {
  return job_.target_rel_ci > 0 && block_ + 1 < job_.max_blocks && !narrow_enough();
}

void BlockSchedule::count(const Sample& sample) {
  taken_[sample.engine][sample.block] = {sample.process, sample.ms_per_token(),
                                         sample.times.host_ms / 1000};
}

void BlockSchedule::forget(int block) {
  for (auto& [engine, blocks] : taken_) blocks.erase(block);
}

ByProcess BlockSchedule::by_process(const TakenBlocks& blocks) {
  ByProcess times;
  for (const auto& [block, taken] : blocks) {
    const auto process = static_cast<size_t>(taken.process);
    times.resize(std::max(times.size(), process + 1));
    times[process].push_back(taken.ms_per_token);
  }
  return times;
}

double BlockSchedule::sample_s(const std::string& engine) const {
  const auto found = taken_.find(engine);
  if (found == taken_.end()) return 0;
  return std::accumulate(found->second.begin(), found->second.end(), 0.0,
                         [&](double s, const auto& one) {
                           return s + (one.second.process == process_ ? one.second.sample_s : 0);
                         });
}

const std::vector<int>& BlockSchedule::order(int number) {
  if (number >= std::ssize(orders_)) {  // a longer list begins with the same orders
    orders_ = block_orders(static_cast<int>(engines_.size()), 2 * number + 16, job_.random_order,
                           job_.seed);
  }
  return orders_[static_cast<size_t>(number)];
}

std::vector<int> BlockSchedule::opening() const {
  // The cases of a run share its seed, but not their draws.
  const uint64_t seed = job_.prompt_seed + static_cast<uint64_t>(job_.depth + job_.n_prompt);
  const int engines = static_cast<int>(engines_.size());
  std::vector<int> order = block_orders(engines, process_ / 2 + 1, true, seed).back();
  if (process_ % 2 == 1) std::reverse(order.begin(), order.end());
  return order;
}

// True if the interval of every speed-up over the first engine is as narrow as --target-rel-ci
// asks; if that engine is alone or has failed, the intervals of the engines' times count instead.
bool BlockSchedule::narrow_enough() const {
  const auto times = [&](const Contestant* c) {
    const auto found = taken_.find(c->name);
    return found != taken_.end() ? by_process(found->second) : ByProcess{};
  };
  const Contestant* first = engines_.front();
  const ByProcess base = times(first);
  const bool alone = std::none_of(engines_.begin() + 1, engines_.end(),
                                  [](const Contestant* c) { return !c->ceiling; });
  for (const Contestant* c : engines_) {
    if (!c->alive || c->ceiling || (c == first && !alone)) continue;
    const ByProcess own = times(c);
    std::optional<double> half;
    if (c != first && first->alive) {
      std::vector<PairedBlocks> pairs;
      for (size_t p = 0; p < std::min(own.size(), base.size()); ++p)
        pairs.push_back({base[p], own[p]});
      const PairedSpeedup s = paired_speedup(pairs, job_.confidence, std::nullopt);
      half = relative_half(s.ci, s.speedup);
    } else {
      const Summary s = summarize_processes(own, job_.confidence);
      half = relative_half(s.ci, s.mean);
    }
    if (!half || *half > job_.target_rel_ci) return false;
  }
  return true;
}

}  // namespace mkbench
