#include "harness/flow/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>

#include "harness/flow/late_ids.h"
#include "harness/flow/state_receipt.h"
#include "harness/judge/parity.h"
#include "harness/measure/sample.h"
#include "harness/measure/statistics.h"
#include "harness/report/report.h"

namespace mkbench {
namespace {

constexpr int kMostRepeats = 2;    // how often a sample is repeated when its clocks disagree
constexpr int kOverheadRuns = 20;  // decodes of one token that measure what the clocks differ by

// What judge_sample() needs of a run besides its ids.
struct Traces {
  int64_t launches = 0;
  int kv_rows = 0;  // prefill tests: rows whose checksum was compared with the first prefill's
  bool kv_equal = true;
  std::string doubt{};  // why the time may be wrong: of the clock (TimedCall) or of the card
  ClockOverhead overhead{};
};

std::string first_said(std::initializer_list<std::string> texts) {
  const auto said = std::find_if(texts.begin(), texts.end(),
                                 [](const std::string& text) { return !text.empty(); });
  return said != texts.end() ? *said : "";
}

std::string clock_doubt(const Sample& sample, const Traces& traces) {
  const std::string clocks = clock_disagreement(sample.times, traces.overhead);
  return clocks.empty() ? traces.doubt : clocks;
}

// -1 stands for a step that was not run.
bool has_gap(const std::vector<int32_t>& ids) {
  return std::find(ids.begin(), ids.end(), -1) != ids.end();
}

// Checks a finished sample, gravest failure first, and fills in its validity and receipts. Without
// `expected` the ids are left to score_runs().
Verdict judge_sample(Sample& sample, const Engine& engine, const Traces& traces,
                     const std::optional<std::vector<int32_t>>& expected, int wanted_receipts) {
  const auto invalid = [&](Verdict verdict, std::string reason) {
    sample.valid = false;
    sample.invalid_reason = std::move(reason);
    return verdict;
  };
  const ReceiptCheck receipts = expected ? check_receipts(sample.ids, *expected) : ReceiptCheck{};
  sample.receipts_checked = receipts.checked + traces.kv_rows;
  sample.receipts_wrong = receipts.wrong;
  if (has_gap(sample.ids)) {
    return invalid(
        Verdict::kIntegrity,
        "a receipt is -1: the step was not run (poison), or a logit of it was not a number");
  }
  if (engine.capabilities().one_launch ? traces.launches != 1 : traces.launches < 1) {
    return invalid(Verdict::kIntegrity,
                   fmt::format("launch counter: {} launches for one decode{}", traces.launches,
                               engine.capabilities().one_launch ? ", wanted 1" : ""));
  }
  const bool came = sample.ids.size() == static_cast<size_t>(wanted_receipts);
  if (!came || (expected && !receipts.ok())) {
    const auto at = static_cast<size_t>(receipts.first_wrong.value_or(0));
    return invalid(Verdict::kFailToken, came ? fmt::format("receipt: token {} is {}, wanted {}", at,
                                                           sample.ids[at], expected->at(at))
                                             : fmt::format("receipts: found {}, wanted {}",
                                                           sample.ids.size(), wanted_receipts));
  }
  if (!traces.kv_equal) {
    return invalid(Verdict::kNondeterministic, "KV rows differ from those of the first prefill");
  }
  const std::string clocks = clock_doubt(sample, traces);
  if (!clocks.empty()) return invalid(Verdict::kIntegrity, clocks);
  if (!expected) return invalid(Verdict::kPass, kUnscored);
  sample.valid = true;
  return Verdict::kPass;
}

class BlockRunner {
 public:
  BlockRunner(const CaseJob& job, const FlowServices& services, const TimedTruth& truth, int vocab,
              std::vector<Contestant*> engines, const std::function<void(Contestant&)>& open,
              ProgressWatch& watch, EventSink& sink)
      : job_(job),
        services_(services),
        truth_(truth),
        vocab_(vocab),
        engines_(std::move(engines)),
        open_(open),
        watch_(watch),
        sink_(sink),
        tokens_(job.n_prompt > 0 ? kPrefillCheckTokens : job.n_gen),
        late_ids_(truth.late_ids, services.random) {}

  std::vector<TimedRun> run() {
    services_.begin_timing();
    for (Contestant* c : engines_) {
      if (!job_.one_at_a_time) guard_engine(sink_, *c, [&] { prepare(*c); });
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
    return std::move(runs_);
  }

 private:
  void check_stop() const {
    if (services_.stop()) throw Interrupted{};
  }

  void prepare(Contestant& c) {
    check_stop();
    services_.take_turn(*c.engine);
    watch_.begin("prefill", c.name, c.engine.get());
    {
      const RangeGuard range = services_.range("prefill");
      start_afresh(*c.engine, truth_.prompt);
    }
    if (c.engine->capabilities().snapshots) c.start = c.engine->save();
    for (int i = 0; i < job_.warmup; ++i) {
      check_stop();
      watch_.begin("warm-up", c.name, c.engine.get());
      watch_.count(i + 1, job_.warmup);
      const int32_t late = begin_run(c, {});
      decode(c, late, tokens_);
    }
    services_.end_turn(*c.engine);
    measure_overhead(c);
  }

  // Decodes one token several times, each time as a sample is taken.
  void measure_overhead(Contestant& c) {
    if (overheads_.count(c.name) > 0 || job_.n_prompt > 0) return;
    if (c.engine->last_times().event_ms <= 0 && c.engine->last_times().device_ms <= 0) return;
    std::vector<DecodeTimes> times;
    for (int i = 0; i < kOverheadRuns; ++i) {
      check_stop();
      const int32_t late = begin_run(c, {});
      services_.take_turn(*c.engine);
      const TimedCall call = services_.timed(*c.engine, [&] { decode(c, late, 1); });
      times.push_back(c.engine->last_times());
      times.back().host_ms = call.ms;
    }
    overheads_[c.name] = clock_overhead(times);
  }

  // Sets the engine to the end of the timed prompt, outside the timed part, and then draws the id
  // that is to replace the prompt's last one: the block's, or where `block` is absent one of its
  // own. An engine that takes no late id gets it with a new prefill.
  int32_t begin_run(Contestant& c, std::optional<int> block) {
    if (takes_late_id(c)) {
      start_again(*c.engine, c.start, truth_.prompt);
      return draw(block);
    }
    const int32_t late = draw(block);
    start_afresh(*c.engine, truth_.ending_with(late));
    return late;
  }

  static bool takes_late_id(const Contestant& c) { return c.engine->capabilities().late_id; }

  int32_t draw(std::optional<int> block) {
    if (!block) return late_ids_.draw();
    const auto [found, is_new] = block_ids_.try_emplace(*block, 0);
    if (is_new) found->second = late_ids_.draw();
    return found->second;
  }

  static std::vector<int32_t> decode(Contestant& c, int32_t late, int n) {
    return takes_late_id(c) ? c.engine->decode_late(late, n) : c.engine->decode(n);
  }

  void run_block(int block, const std::vector<int>& order) {
    for (size_t place = 0; place < order.size(); ++place) {
      Contestant& c = *engines_[static_cast<size_t>(order[place])];
      if (!c.alive) continue;
      check_stop();
      guard_engine(sink_, c, [&] {
        const RangeGuard range = services_.range("engine");
        if (job_.one_at_a_time) {
          open_(c);
          prepare(c);
        }
        watch_.begin("timing", c.name, c.engine.get());
        watch_.count(block + 1, std::max(job_.blocks, block + 1));
        take_sample(c, block, static_cast<int>(place));
      });
      if (job_.one_at_a_time) {
        watch_.end();
        c.engine.reset();
      }
    }
  }

  // Where the system suspends this process for a moment, the clocks of the run disagree, and where
  // it suspends the host that tries the card, the card looks busy: the run is dropped and repeated,
  // at most kMostRepeats times, and the sample says how often.
  void take_sample(Contestant& c, int block, int place) {
    for (int repeats = 0;; ++repeats) {
      Sample sample;
      sample.engine = c.name;
      sample.block = block;
      sample.order = place;
      sample.repeats = repeats;
      // Another engine of the block may have shown its answer after the block's id: a repeat draws
      // an id of its own.
      const std::optional<int> of_block = repeats == 0 ? std::optional(block) : std::nullopt;
      int32_t late = 0;
      Traces traces = job_.n_prompt > 0 ? time_prefill(c, of_block, late, sample)
                                        : time_decode(c, of_block, late, sample);
      if (takes_late_id(c)) sample.late_id = late;
      traces.overhead = overheads_[c.name];
      launches_[c.name] += traces.launches;
      c.engine->audit();
      Verdict verdict =
          judge_sample(sample, *c.engine, traces, truth_.expected(late, tokens_), tokens_);
      const std::string clocks = clock_doubt(sample, traces);
      const bool dropped =
          !clocks.empty() && sample.invalid_reason == clocks && repeats < kMostRepeats;
      TimedRun run{.sample = {}, .last_id = late, .path = sample.ids, .dropped = dropped};
      if (verdict == Verdict::kPass) verdict = check_state(c, late, sample, run.path);
      run.sample = sample;
      if (std::ssize(sample.ids) == tokens_ && !has_gap(sample.ids)) runs_.push_back(run);
      if (dropped) continue;
      finish(c, sample, verdict);
      return;
    }
  }

  Traces time_decode(Contestant& c, std::optional<int> block, int32_t& late, Sample& sample) {
    Engine& engine = *c.engine;
    late = begin_run(c, block);
    services_.take_turn(engine);
    const int64_t before = engine.launch_count();
    const TimedCall call = services_.timed(engine, [&] { sample.ids = decode(c, late, tokens_); });
    const std::string left = services_.end_turn(engine);
    sample.tokens = tokens_;
    sample.times = engine.last_times();
    keep_time(call, sample);
    return {.launches = engine.launch_count() - before, .doubt = first_said({call.doubt, left})};
  }

  // Times a prefill and the first token after it: an engine that puts its prefill off until the
  // token pays for it on the clock. The untimed tokens that follow show that its KV rows are right.
  Traces time_prefill(Contestant& c, std::optional<int> block, int32_t& late, Sample& sample) {
    Engine& engine = *c.engine;
    std::vector<int32_t> prompt = truth_.prompt;
    if (!takes_late_id(c)) prompt.back() = late = draw(block);
    engine.reset();
    engine.poison();
    services_.take_turn(engine);
    const TimedCall call = services_.timed(engine, [&] { engine.prefill(prompt); });
    if (takes_late_id(c)) late = draw(block);
    const int64_t before = engine.launch_count();
    const TimedCall first = services_.timed(engine, [&] { sample.ids = decode(c, late, 1); });
    const std::string left = services_.end_turn(engine);  // the decode below would wait for work
    const int64_t launches = engine.launch_count() - before;
    keep_time(call, sample);
    sample.prefill_ms = call.ms;
    sample.times.host_ms += first.ms;
    sample.tokens = job_.n_prompt;
    const std::vector<int32_t> more = engine.decode(tokens_ - 1);
    sample.ids.insert(sample.ids.end(), more.begin(), more.end());
    // The KV rows must equal those of the first prefill, whose continuation is checked too.
    const bool compared = engine.capabilities().snapshots;
    return {.launches = launches,
            .kv_rows = compared ? job_.n_prompt : 0,
            .kv_equal = !compared || has_first_rows(c),
            .doubt = first_said({call.doubt, first.doubt, left})};
  }

  static bool has_first_rows(Contestant& c) {
    try {
      c.engine->restore(c.start);
      return true;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kIntegrity) throw;
      return false;
    }
  }

  // Takes the state receipt of a decode in the first block, and of a share of the others that is
  // drawn after the decode. `path` gains the ids that are to be scored with the sample's.
  Verdict check_state(Contestant& c, int32_t late, Sample& sample, std::vector<int32_t>& path) {
    if (job_.n_prompt > 0 || (sample.block > 0 && services_.random(kReceiptShare) != 0))
      return Verdict::kPass;
    StateReceipt receipt = take_state_receipt(*c.engine, vocab_, sample.ids, [&] {
      if (!takes_late_id(c)) return start_afresh(*c.engine, truth_.ending_with(late));
      start_again(*c.engine, c.start, truth_.prompt);
      c.engine->set_pending(late);
    });
    sample.state_checked = receipt.compared;
    path.insert(path.end(), receipt.further.begin(), receipt.further.end());
    const auto expected = truth_.expected(late, static_cast<int>(path.size()));
    if (expected && receipt.problem.empty() && path != *expected)
      receipt.problem = "state receipt: the ids after those of the timed run are wrong";
    if (receipt.problem.empty()) return Verdict::kPass;
    sample.valid = false;
    sample.invalid_reason = receipt.problem;
    return Verdict::kIntegrity;
  }

  // The harness's clock around the call counts, not the host time that the engine reports.
  void keep_time(const TimedCall& call, Sample& sample) {
    if (!first_begin_ms_) first_begin_ms_ = call.begin_ms;
    sample.start_ms = call.begin_ms - *first_begin_ms_;
    sample.times.host_ms = call.ms;
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

  // True where every speed-up's interval (with one engine, the interval of its time) is as narrow
  // as --target-rel-ci asks.
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
  const int vocab_;
  std::vector<Contestant*> engines_;
  const std::function<void(Contestant&)>& open_;
  ProgressWatch& watch_;
  EventSink& sink_;
  const int tokens_;
  LateIds late_ids_;
  std::map<int, int32_t> block_ids_;
  std::vector<TimedRun> runs_;
  std::optional<double> first_begin_ms_;  // when the first timed call of the case began
  std::map<std::string, int64_t> launches_;
  std::map<std::string, ClockOverhead> overheads_;  // by engine
  std::map<std::string, std::vector<double>> ms_per_token_;
};

}  // namespace

std::vector<TimedRun> run_blocks(const CaseJob& job, const FlowServices& services,
                                 const TimedTruth& truth, int vocab,
                                 std::vector<Contestant*> engines,
                                 const std::function<void(Contestant&)>& open, ProgressWatch& watch,
                                 EventSink& sink) {
  return BlockRunner(job, services, truth, vocab, std::move(engines), open, watch, sink).run();
}

}  // namespace mkbench
