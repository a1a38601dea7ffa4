#include "harness/hosts/card_sampler.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace mkbench {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

CardSampler::CardSampler(ReadCard read, double period_ms)
    : read_(std::move(read)), period_ms_(period_ms), thread_([this] { work(); }) {}

CardSampler::~CardSampler() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CardSampler::begin() {
  {
    const std::lock_guard lock(mutex_);
    readings_.clear();
    watching_ = true;
    ++part_;
  }
  changed_.notify_all();
}

std::optional<Telemetry> CardSampler::end(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  // Even a timed part that ends before the thread has woken up gets one reading.
  changed_.wait_for(lock, patience,
                    [&] { return !reading_ && (!readings_.empty() || !watching_); });
  watching_ = false;
  return fold_readings(readings_);
}

void CardSampler::work() {
  std::unique_lock lock(mutex_);
  Clock::time_point next = Clock::now();
  int part = 0;
  while (!stop_) {
    if (!watching_) {
      changed_.wait(lock, [&] { return stop_ || watching_; });
      continue;
    }
    if (part != part_) next = Clock::now();
    part = part_;
    if (Clock::now() < next) {
      changed_.wait_until(lock, next, [&] { return stop_ || !watching_ || part != part_; });
      continue;
    }
    next += std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double, std::milli>(period_ms_));
    reading_ = true;
    lock.unlock();
    const std::optional<CardReading> one = read_();
    lock.lock();
    reading_ = false;
    next = std::max(next, Clock::now());
    if (part == part_ && watching_) {
      if (one) {
        readings_.push_back(*one);
      } else {
        watching_ = false;  // a driver that does not answer is not asked again in this part
      }
    }
    changed_.notify_all();
  }
}

}  // namespace mkbench
