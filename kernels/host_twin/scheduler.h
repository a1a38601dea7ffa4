// Runs logical blocks as coroutines on a team of threads: a thread runs a block until the block
// waits, then takes the next block whose wait is over.
#pragma once

#include <atomic>
#include <condition_variable>
#include <coroutine>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/host_twin/exchange.h"

namespace mkbench::host_twin {

// The kernel body of one block: a coroutine that starts suspended and waits at exchanges only. It
// is destroyed with this object wherever it stands, so an aborted launch leaks nothing.
class BlockTask {
 public:
  struct promise_type {
    std::exception_ptr error;
    BlockTask get_return_object() { return BlockTask(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { error = std::current_exception(); }
  };
  using Handle = std::coroutine_handle<promise_type>;

  explicit BlockTask(Handle handle) : handle_(handle) {}
  BlockTask(BlockTask&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  BlockTask& operator=(BlockTask&&) = delete;
  ~BlockTask() {
    if (handle_) handle_.destroy();
  }

  bool done() const { return handle_.done(); }
  void resume() { handle_.resume(); }
  const std::exception_ptr& error() const { return handle_.promise().error; }

 private:
  Handle handle_;
};

// The team of threads. It lives as long as the scheduler, because creating the threads for every
// decode() would take longer than a token.
class Scheduler {
 public:
  // A team of `threads` threads, including the caller of run().
  explicit Scheduler(int threads);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  // Runs tasks[b] as block b of `exchange` to the end. When no block arrives at an exchange
  // for `stall_ms`, all threads stop, the tasks stay where they stand, and the fault is returned.
  // Rethrows what a task has thrown.
  std::optional<Fault> run(std::span<BlockTask> tasks, const Exchange& exchange, int stall_ms);

 private:
  // Only the thread that claims a block may resume it, so two threads never run one block. Blocks
  // are not bound to threads: while the system has taken one thread off its core, the other threads
  // run all blocks. With bound blocks an exchange took a whole time slice on a loaded machine (six
  // runnable processes a core).
  struct alignas(64) Claim {
    std::atomic<bool> taken{false};
  };

  void helper_loop(int worker);
  void work(int worker);
  bool resume_ready(int worker);
  bool resume_if_ready(size_t block);
  void raise_fault();

  std::span<BlockTask> tasks_;
  std::unique_ptr<Claim[]> claims_;  // [claim_count_], one for each task at least
  size_t claim_count_ = 0;
  std::atomic<size_t> unfinished_{0};  // number of tasks that have not finished
  const Exchange* exchange_ = nullptr;
  int stall_ms_ = 0;
  std::atomic<bool> abort_{false};
  std::optional<Fault> fault_;
  std::exception_ptr error_;

  std::mutex mutex_;  // guards all members below, and fault_ and error_ while a launch runs
  std::condition_variable start_, finished_;
  int64_t launch_ = 0;
  int helpers_running_ = 0;
  bool stop_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace mkbench::host_twin
