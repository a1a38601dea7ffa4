// Reads the card from a thread of its own while a timed part runs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "harness/device/telemetry.h"

namespace mkbench {

class CardSampler {
 public:
  // Milliseconds from one reading to the next.
  static constexpr double kPeriodMs = 15;

  explicit CardSampler(ReadCard read, double period_ms = kPeriodMs);
  ~CardSampler();
  CardSampler(const CardSampler&) = delete;
  CardSampler& operator=(const CardSampler&) = delete;

  // The first reading is taken at once.
  void begin();
  // Waits, at most `patience`, for the first reading and for one in progress, and sums up all
  // readings since begin(); nullopt if none has succeeded.
  std::optional<Telemetry> end(std::chrono::milliseconds patience = std::chrono::seconds(1));

 private:
  void work();

  const ReadCard read_;
  const double period_ms_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false, watching_ = false, reading_ = false;
  int part_ = 0;  // number of begin() calls; a reading that ends in a later part is dropped
  std::vector<CardReading> readings_;
  std::thread thread_;
};

}  // namespace mkbench
