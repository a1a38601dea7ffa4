#include "harness/host/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <new>
#include <thread>

#include "harness/judge/parity.h"
#include "harness/measure/sample.h"
#include "harness/measure/statistics.h"
#include "harness/report/report.h"

namespace mkbench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostRepeats = 2;  // of a sample whose clocks disagree

double ms_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

// --test-worker MODE:ENGINE, in the second block (the first where there is one only): what the
// parent must cope with.
void misbehave(const CaseJob& job, const std::string& engine, int block) {
  const size_t colon = job.test_worker.find(':');
  if (colon == std::string::npos || job.test_worker.substr(colon + 1) != engine) return;
  const std::string mode = job.test_worker.substr(0, colon);
  if (mode == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(300));
  if (block != std::min(1, job.blocks - 1)) return;
  if (mode == "hang") {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
  if (mode == "crash") std::raise(SIGSEGV);
  if (mode == "kill") std::raise(SIGKILL);
  if (mode == "memory") throw std::bad_alloc();
}

// What a run left behind besides its ids.
struct Traces {
  int64_t launches = 0;
  int kv_rows = 0;  // of a prefill test: rows whose checksum was compared with the first prefill's
  bool kv_equal = true;
};

// Checks of a finished sample, worst first. Fills validity and receipts.
Verdict judge_sample(Sample& sample, const Engine& engine, const Traces& traces,
                     const std::vector<int32_t>& expected, int wanted_receipts) {
  const auto invalid = [&](Verdict verdict, std::string reason) {
    sample.valid = false;
    sample.invalid_reason = std::move(reason);
    return verdict;
  };
  const ReceiptCheck receipts = check_receipts(sample.ids, expected);
  sample.receipts_checked = receipts.checked + traces.kv_rows;
  sample.receipts_wrong = receipts.wrong;
  if (std::find(sample.ids.begin(), sample.ids.end(), -1) != sample.ids.end()) {
    return invalid(
        Verdict::kIntegrity,
        "a receipt is -1: the step was not run (poison), or a logit of it was not a number");
  }
  if (engine.capabilities().one_launch ? traces.launches != 1 : traces.launches < 1) {
    return invalid(Verdict::kIntegrity,
                   fmt::format("launch counter: {} launches for one decode{}", traces.launches,
                               engine.capabilities().one_launch ? ", wanted 1" : ""));
  }
  if (!receipts.ok() || receipts.checked != wanted_receipts) {
    const auto at = static_cast<size_t>(receipts.first_wrong.value_or(0));
    return invalid(
        Verdict::kFailToken,
        at < sample.ids.size() && at < expected.size()
            ? fmt::format("receipt: token {} is {}, wanted {}", at, sample.ids[at], expected[at])
            : fmt::format("receipts: found {}, wanted {}", sample.ids.size(), expected.size()));
  }
  if (!traces.kv_equal) {
    return invalid(Verdict::kNondeterministic, "KV rows differ from those of the first prefill");
  }
  const std::string clocks = clock_disagreement(sample.times);
  if (!clocks.empty()) return invalid(Verdict::kIntegrity, clocks);
  sample.valid = true;
  return Verdict::kPass;
}

class BlockRunner {
 public:
  BlockRunner(const CaseJob& job, const FlowServices& services, const TimedTruth& truth,
              std::vector<Contestant*> engines, ProgressWatch& watch, MessageSink& sink)
      : job_(job),
        services_(services),
        truth_(truth),
        engines_(std::move(engines)),
        watch_(watch),
        sink_(sink),
        tokens_(job.n_prompt > 0 ? kPrefillCheckTokens : job.n_gen) {}

  void run() {
    for (Contestant* c : engines_) {
      guard_engine(sink_, *c, [&] { prepare(*c); });
    }
    const std::vector<std::vector<int>> orders =
        block_orders(static_cast<int>(engines_.size()), std::max(job_.blocks, job_.max_blocks),
                     job_.random_order, job_.seed);
    for (int block = 0; block < static_cast<int>(orders.size()); ++block) {
      if (block >= job_.blocks && (job_.target_rel_ci <= 0 || narrow_enough())) break;
      const RangeGuard range = services_.range("block");
      run_block(block, orders[static_cast<size_t>(block)]);
    }
    watch_.end();
  }

 private:
  void check_stop() const {
    if (services_.stop()) throw Interrupted{};
  }

  void prepare(Contestant& c) {
    check_stop();
    watch_.begin("prefill", c.name, c.engine.get());
    {
      const RangeGuard range = services_.range("prefill");
      c.engine->reset();
      c.engine->poison();
      c.engine->prefill(truth_.prompt);
    }
    if (c.engine->capabilities().snapshots) c.start = c.engine->save();
    for (int i = 0; i < job_.warmup; ++i) {
      check_stop();
      watch_.begin("warm-up", c.name, c.engine.get());
      watch_.count(i + 1, job_.warmup);
      start_again(c);
      c.engine->decode(tokens_);
    }
  }

  // To the end of the timed prompt. An engine without snapshots prefills again, off the clock.
  void start_again(Contestant& c) const {
    if (c.engine->capabilities().snapshots) {
      c.engine->restore(c.start);
      c.engine->poison();
      return;
    }
    c.engine->reset();
    c.engine->poison();
    c.engine->prefill(truth_.prompt);
  }

  void run_block(int block, const std::vector<int>& order) {
    for (size_t place = 0; place < order.size(); ++place) {
      Contestant& c = *engines_[static_cast<size_t>(order[place])];
      if (!c.alive) continue;
      check_stop();
      watch_.begin("timing", c.name, c.engine.get());
      watch_.count(block + 1, std::max(job_.blocks, block + 1));
      guard_engine(sink_, c, [&] {
        misbehave(job_, c.name, block);
        const RangeGuard range = services_.range("engine");
        take_sample(c, block, static_cast<int>(place));
      });
    }
  }

  // A host that is taken away for a moment shows as clocks that disagree: such a run is dropped and
  // made again, a few times at most, and the sample says how often.
  void take_sample(Contestant& c, int block, int place) {
    for (int repeats = 0;; ++repeats) {
      Sample sample;
      sample.engine = c.name;
      sample.block = block;
      sample.order = place;
      sample.repeats = repeats;
      const Traces traces = job_.n_prompt > 0 ? time_prefill(c, sample) : time_decode(c, sample);
      launches_[c.name] += traces.launches;
      c.engine->audit();
      const Verdict verdict =
          judge_sample(sample, *c.engine, traces, truth_.expected_of(c.name), tokens_);
      const std::string clocks = clock_disagreement(sample.times);
      const bool only_clocks = !clocks.empty() && sample.invalid_reason == clocks;
      if (only_clocks && repeats < kMostRepeats) continue;
      finish(c, sample, verdict);
      return;
    }
  }

  Traces time_decode(Contestant& c, Sample& sample) {
    Engine& engine = *c.engine;
    start_again(c);
    services_.flush_l2();
    const int64_t before = engine.launch_count();
    const RangeGuard range = services_.range("decode");
    const auto begin = Clock::now();
    sample.ids = engine.decode(tokens_);
    const auto end = Clock::now();
    sample.tokens = tokens_;
    sample.start_ms = ms_between(case_start_, begin);
    sample.times = engine.last_times();
    // The engine's own idea of host time is not asked: the clock around the call is the harness's.
    sample.times.host_ms = ms_between(begin, end);
    return {.launches = engine.launch_count() - before};
  }

  // A prefill test: the tokens that follow, untimed, show that the KV rows are right.
  Traces time_prefill(Contestant& c, Sample& sample) {
    Engine& engine = *c.engine;
    engine.reset();
    engine.poison();
    services_.flush_l2();
    {
      const RangeGuard range = services_.range("prefill");
      const auto begin = Clock::now();
      engine.prefill(truth_.prompt);
      const auto end = Clock::now();
      sample.start_ms = ms_between(case_start_, begin);
      sample.times.host_ms = ms_between(begin, end);
    }
    sample.tokens = job_.n_prompt;
    // Every row equals that of the prefill whose continuation is checked too.
    const bool compared = engine.capabilities().snapshots;
    const bool equal = !compared || engine.save().kv_checksum == c.start.kv_checksum;
    const int64_t before = engine.launch_count();
    sample.ids = engine.decode(tokens_);
    return {.launches = engine.launch_count() - before,
            .kv_rows = compared ? job_.n_prompt : 0,
            .kv_equal = equal};
  }

  void finish(Contestant& c, const Sample& sample, Verdict verdict) {
    sink_.send(SampleTaken{c.name, sample, launches_[c.name], services_.throttle()});
    if (verdict != Verdict::kPass) {
      fail_engine(sink_, c, verdict,
                  fmt::format("block {}: {}", sample.block, sample.invalid_reason));
      return;
    }
    ms_per_token_[c.name].push_back(sample.ms_per_token());
  }

  // Whether every comparison's interval (or, with one engine, its own) is as narrow as
  // --target-rel-ci asks.
  bool narrow_enough() {
    const std::vector<double>& base = ms_per_token_[engines_.front()->name];
    for (const Contestant* c : engines_) {
      if (!c->alive || (c == engines_.front() && engines_.size() > 1)) continue;
      const std::vector<double>& own = ms_per_token_[c->name];
      const bool paired = c != engines_.front() && engines_.front()->alive;
      double half = 0;
      if (paired) {
        const PairedSpeedup s = paired_speedup(base, own, job_.confidence, job_.seed);
        const std::optional<Interval> ci = s.ci ? s.ci : s.bca_ci;
        if (!ci) return false;
        half = (ci->high - ci->low) / 2 / s.speedup;
      } else {
        const Summary s = summarize(own, job_.confidence);
        if (!s.ci) return false;
        half = (s.ci->high - s.ci->low) / 2 / s.mean;
      }
      if (half > job_.target_rel_ci) return false;
    }
    return true;
  }

  const CaseJob& job_;
  const FlowServices& services_;
  const TimedTruth& truth_;
  std::vector<Contestant*> engines_;
  ProgressWatch& watch_;
  MessageSink& sink_;
  const int tokens_;
  const Clock::time_point case_start_ = Clock::now();
  std::map<std::string, int64_t> launches_;
  std::map<std::string, std::vector<double>> ms_per_token_;
};

}  // namespace

void run_blocks(const CaseJob& job, const FlowServices& services, const TimedTruth& truth,
                std::vector<Contestant*> engines, ProgressWatch& watch, MessageSink& sink) {
  BlockRunner(job, services, truth, std::move(engines), watch, sink).run();
}

}  // namespace mkbench
