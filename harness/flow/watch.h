// Reports how far the running engine is, for the display of progress.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "harness/flow/events.h"
#include "references/engine.h"

namespace mkbench {

// Sends a StageProgress at each new stage, and five times a second when the engine has moved.
class ProgressWatch {
 public:
  explicit ProgressWatch(EventSink& sink);
  ~ProgressWatch();
  ProgressWatch(const ProgressWatch&) = delete;
  ProgressWatch& operator=(const ProgressWatch&) = delete;

  // From now on `engine_name` (may be empty) is in `stage`; `engine` may be null. A stage must be
  // ended (or replaced) before its engine is destroyed.
  void begin(const std::string& stage, const std::string& engine_name, const Engine* engine);
  void end() { begin("", "", nullptr); }
  // Sets how far the stage has come.
  void count(int done, int total);
  // Sends where the engine is if it has moved; the watch's own thread calls this.
  void look();

 private:
  void send_locked();

  EventSink& sink_;
  std::mutex mutex_;
  const Engine* engine_ = nullptr;
  std::string stage_, engine_name_;
  int done_ = 0, total_ = 0;
  int last_position_ = -1, last_layer_ = -1;
  std::string last_phase_;
  bool stop_ = false;
  std::condition_variable stopped_;
  std::thread thread_;
};

// Ends the stage when it goes out of scope. Declare it after the stage's engine: then it is
// destroyed before the engine, even if an exception is thrown.
class WatchEnd {
 public:
  explicit WatchEnd(ProgressWatch& watch) : watch_(watch) {}
  ~WatchEnd() { watch_.end(); }
  WatchEnd(const WatchEnd&) = delete;
  WatchEnd& operator=(const WatchEnd&) = delete;

 private:
  ProgressWatch& watch_;
};

}  // namespace mkbench
