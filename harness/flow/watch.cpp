#include "harness/flow/watch.h"

#include <chrono>

namespace mkbench {

ProgressWatch::ProgressWatch(EventSink& sink)
    : sink_(sink), thread_([this] {
        const auto over = [this] {
          std::unique_lock lock(mutex_);
          return stopped_.wait_for(lock, std::chrono::milliseconds(200), [this] { return stop_; });
        };
        while (!over()) look();
      }) {}

ProgressWatch::~ProgressWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void ProgressWatch::begin(const std::string& stage, const std::string& engine_name,
                          const Engine* engine) {
  const std::lock_guard lock(mutex_);
  stage_ = stage;
  engine_name_ = engine_name;
  engine_ = engine;
  done_ = total_ = 0;
  last_position_ = last_layer_ = -1;
  last_phase_.clear();
  if (!stage.empty()) send_locked();
}

void ProgressWatch::count(int done, int total) {
  const std::lock_guard lock(mutex_);
  done_ = done;
  total_ = total;
  send_locked();
}

void ProgressWatch::send_locked() {
  StageProgress message{.stage = stage_, .engine = engine_name_};
  if (total_ > 0) {
    message.done = done_;
    message.total = total_;
  }
  if (last_position_ >= 0) message.position = last_position_;
  if (last_layer_ >= 0) message.layer = last_layer_;
  message.phase = last_phase_;
  sink_.send(message);
}

void ProgressWatch::look() {
  const std::lock_guard lock(mutex_);
  if (engine_ == nullptr) return;
  const Progress now = engine_->progress();
  if (now.position == last_position_ && now.layer == last_layer_ && now.phase == last_phase_)
    return;
  last_position_ = now.position;
  last_layer_ = now.layer;
  last_phase_ = now.phase;  // a copy: the engine may free what it returned a view of
  send_locked();
}

}  // namespace mkbench
