// What a sample must show before it counts.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "harness/measure/sample.h"
#include "harness/report/verdict.h"

namespace mkbench {

// What judge_sample() has to know of a run besides its ids.
struct Traces {
  int64_t launches = 0;
  int kv_rows = 0;  // prefill tests: rows whose checksum was compared with the first prefill's
  bool kv_equal = true;
  std::string doubt{};  // why the time may be wrong: the clock (TimedCall) or the card
  ClockOverhead overhead{};
};

// The first text that is not empty.
std::string first_said(std::initializer_list<std::string> texts);

// Why the time of a run may be wrong; empty if there is no doubt.
std::string clock_doubt(const Sample& sample, const Traces& traces);

// True if an id is -1, which stands for a step that was not run.
bool has_gap(const std::vector<int32_t>& ids);

// Checks ids, launches, KV rows and clocks of a finished sample, and fills in its validity and
// receipts. Without `expected`, score_runs() judges later whether the ids are right.
Verdict judge_sample(Sample& sample, const Engine& engine, const Traces& traces,
                     const std::optional<std::vector<int32_t>>& expected, int wanted_receipts);

}  // namespace mkbench
