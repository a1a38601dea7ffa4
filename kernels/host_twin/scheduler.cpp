#include "kernels/host_twin/scheduler.h"

#include <chrono>

namespace mkbench::host_twin {
namespace {

using Clock = std::chrono::steady_clock;

// The pauses of a thread that finds no block to resume. The thread first polls without a pause (an
// exchange takes about a microsecond), then yields its core, then sleeps, so that a hang does not keep
// all cores busy until the watchdog's time is up.
class IdleTimer {
 public:
  void reset() { polls_ = 0; }

  // Pauses. Returns true once `arrivals` has not changed for `stall_ms`.
  bool pause(uint64_t arrivals, int stall_ms) {
    if (polls_ == 0 || arrivals != arrivals_) {
      polls_ = 0;
      arrivals_ = arrivals;
    }
    ++polls_;
    if (polls_ <= kSpins) return false;
    if (polls_ == kSpins + 1) since_ = Clock::now();
    const auto idle = Clock::now() - since_;
    if (idle > kYieldTime) {
      std::this_thread::sleep_for(kNap);
    } else {
      std::this_thread::yield();
    }
    return idle > std::chrono::milliseconds(stall_ms);
  }

 private:
  static constexpr int kSpins = 200;
  static constexpr std::chrono::milliseconds kYieldTime{5};
  static constexpr std::chrono::microseconds kNap{100};
  int64_t polls_ = 0;
  uint64_t arrivals_ = 0;
  Clock::time_point since_;
};

}  // namespace

Scheduler::Scheduler(int threads) {
  helpers_.reserve(static_cast<size_t>(threads - 1));
  for (int worker = 1; worker < threads; ++worker) {
    helpers_.emplace_back([this, worker] { helper_loop(worker); });
  }
}

Scheduler::~Scheduler() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& t : helpers_) t.join();
}

std::optional<Fault> Scheduler::run(std::span<BlockTask> tasks, const Exchange& exchange,
                                    int stall_ms) {
  {
    std::lock_guard lock(mutex_);
    tasks_ = tasks;
    if (tasks.size() > claim_count_) {
      claims_ = std::make_unique<Claim[]>(tasks.size());
      claim_count_ = tasks.size();
    }
    unfinished_.store(tasks.size(), std::memory_order_relaxed);
    exchange_ = &exchange;
    stall_ms_ = stall_ms;
    abort_.store(false, std::memory_order_relaxed);
    fault_.reset();
    error_ = nullptr;
    helpers_running_ = static_cast<int>(helpers_.size());
    ++launch_;
  }
  start_.notify_all();
  work(0);
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return helpers_running_ == 0; });
  tasks_ = {};
  if (error_) std::rethrow_exception(error_);
  return fault_;
}

void Scheduler::helper_loop(int worker) {
  int64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    start_.wait(lock, [&] { return stop_ || launch_ != seen; });
    if (stop_) return;
    seen = launch_;
    lock.unlock();
    work(worker);
    lock.lock();
    if (--helpers_running_ == 0) finished_.notify_one();
  }
}

// Resumes `block` if its wait is over and no other thread has claimed it.
bool Scheduler::resume_if_ready(size_t block) {
  const int index = static_cast<int>(block);
  if (!exchange_->passed(index)) return false;
  // The claim's acquire and release order this thread's accesses to the coroutine's frame and to
  // the block's scratch after those of the thread that ran the block last.
  std::atomic<bool>& taken = claims_[block].taken;
  if (taken.exchange(true, std::memory_order_acquire)) return false;
  BlockTask& task = tasks_[block];
  // Checked again: before this claim another thread may have run the block to its next wait or its
  // end.
  const bool ready = !task.done() && exchange_->passed(index);
  if (ready) {
    task.resume();
    if (task.done()) unfinished_.fetch_sub(1, std::memory_order_relaxed);
    if (task.error()) {
      std::lock_guard lock(mutex_);
      if (!error_) error_ = task.error();
      abort_.store(true, std::memory_order_relaxed);
    }
  }
  taken.store(false, std::memory_order_release);
  return ready;
}

// Goes over all blocks once. Threads start at different blocks, so that they seldom collide.
bool Scheduler::resume_ready(int worker) {
  const size_t count = tasks_.size();
  const size_t first = count * static_cast<size_t>(worker) / static_cast<size_t>(threads());
  bool resumed = false;
  for (size_t i = 0; i < count && !abort_.load(std::memory_order_relaxed); ++i) {
    resumed |= resume_if_ready((first + i) % count);
  }
  return resumed;
}

void Scheduler::work(int worker) {
  IdleTimer idle;
  while (!abort_.load(std::memory_order_relaxed)) {
    if (resume_ready(worker)) {
      idle.reset();
    } else if (unfinished_.load(std::memory_order_relaxed) == 0) {
      return;
    } else if (idle.pause(exchange_->arrivals(), stall_ms_)) {
      raise_fault();
    }
  }
}

void Scheduler::raise_fault() {
  std::lock_guard lock(mutex_);
  // Only the first thread writes the fault. If a block has thrown, none does: the block's error is
  // the reason.
  if (!abort_.load(std::memory_order_relaxed)) fault_ = exchange_->find_fault();
  abort_.store(true, std::memory_order_relaxed);
}

}  // namespace mkbench::host_twin
