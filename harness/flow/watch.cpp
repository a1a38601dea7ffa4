#include "harness/flow/watch.h"

#include <chrono>

namespace mkbench {

ProgressWatch::ProgressWatch(EventSink& sink) : sink_(sink), thread_([this] { poll(); }) {}

ProgressWatch::~ProgressWatch() {
  stop_ = true;
  thread_.join();
}

void ProgressWatch::begin(const std::string& stage, const std::string& engine_name,
                          const Engine* engine) {
  const std::lock_guard lock(mutex_);
  stage_ = stage;
  engine_name_ = engine_name;
  engine_ = engine;
  done_ = total_ = 0;
  last_ = Progress{};
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
  if (last_.position >= 0) message.position = last_.position;
  if (last_.layer >= 0) message.layer = last_.layer;
  message.phase = last_.phase;
  sink_.send(message);
}

void ProgressWatch::poll() {
  while (!stop_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const std::lock_guard lock(mutex_);
    if (engine_ == nullptr) continue;
    const Progress now = engine_->progress();
    const bool moved =
        now.position != last_.position || now.layer != last_.layer || now.phase != last_.phase;
    if (!moved) continue;
    last_ = now;
    send_locked();
  }
}

}  // namespace mkbench
