#include "harness/flow/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "harness/flow/block_conditions.h"
#include "harness/flow/ceiling.h"
#include "harness/flow/late_ids.h"
#include "harness/flow/observed.h"
#include "harness/flow/replication.h"
#include "harness/flow/sample_check.h"
#include "harness/flow/state_receipt.h"
#include "harness/flow/warm_up.h"
#include "harness/measure/sample.h"
#include "harness/measure/statistics.h"
#include "harness/report/report.h"

namespace mkbench {
namespace {

constexpr int kMostRepeats = 2;  // of a sample whose times are in doubt: see take_sample()
// After kLeastOverheadRuns decodes, measuring the clock overhead stops once it took kMostOverheadS.
constexpr int kLeastOverheadRuns = 5;
constexpr double kMostOverheadS = 5;

class BlockRunner {
 public:
  BlockRunner(const CaseJob& job, const FlowServices& services, const TruthOf& truth_of, int vocab,
              std::vector<Contestant*> engines, const std::function<void(Contestant&)>& open,
              ProgressWatch& watch, EventSink& sink)
      : job_(job),
        services_(services),
        truth_of_(truth_of),
        truth_(&truth_of(0)),
        vocab_(vocab),
        engines_(std::move(engines)),
        open_(open),
        watch_(watch),
        sink_(sink),
        tokens_(job.n_prompt > 0 ? kPrefillCheckTokens : job.n_gen),
        late_ids_(truth_->late_ids, draws_of(services)),
        untimed_ids_(late_ids_.split()),
        schedule_(job, engines_, clock_of(services)),
        observed_(job, services, vocab, sink) {}

  std::vector<TimedRun> run() {
    services_.begin_timing();
    services_.watch_card(job_.telemetry != TelemetryMode::kOff);  // also in measure_overhead()
    while (has_engines() && schedule_.begin_process()) {
      begin_process();
      while (has_engines() && schedule_.begin_block()) {
        const RangeGuard range = services_.range("block");
        run_block(schedule_.block());
        while (const std::optional<UnfitBlock> unfit = conditions_.drop_one()) {
          drop_block(*unfit);
          run_block(unfit->block);
        }
      }
      for (Contestant* c : engines_) confirm_overhead(*c);
    }
    watch_.end();
    return std::move(runs_);
  }

 private:
  // Blocks go on while any engine other than the ceiling is in the case, and any candidate.
  bool has_engines() const {
    return worth_timing(job_, engines_) &&
           std::any_of(engines_.begin(), engines_.end(),
                       [](const Contestant* c) { return c->alive && !c->ceiling; });
  }

  void check_stop() const {
    if (services_.stop()) throw Interrupted{};
  }

  // With one engine open at a time, run_block() opens each engine for its turn.
  void begin_process() {
    truth_ = &truth_of_(schedule_.process());
    if (job_.one_at_a_time) return;
    compared_.clear();
    std::vector<Contestant*> opening;
    for (const int place : schedule_.opening())
      opening.push_back(engines_[static_cast<size_t>(place)]);
    if (process_count(job_) > 1) open_afresh(opening);
    for (Contestant* c : opening) {
      if (c->alive) guard_engine(sink_, *c, [&] { prepare(*c); });
    }
  }

  // The order decides where an engine lies in the card's memory.
  void open_afresh(const std::vector<Contestant*>& opening) {
    watch_.end();
    std::vector<std::string> names;
    for (Contestant* c : opening) {
      c->engine.reset();
      services_.end_process(c->name);
      if (c->alive) names.push_back(c->name);
    }
    services_.expect(names);
    for (Contestant* c : opening) {
      if (c->alive) guard_engine(sink_, *c, [&] { open_(*c); });
    }
  }

  void prepare(Contestant& c) {
    check_stop();
    sink_.send(ProcessBegun{c.name, schedule_.process(), services_.facts(*c.engine).process});
    if (job_.observed && c.candidate) {
      watch_.begin("handing over logits", c.name, c.engine.get());
      observed_.measure_handover(c, schedule_.process(), [&] { return untimed_ids_.draw(); });
    }
    services_.take_turn(*c.engine);
    watch_.begin("prefill", c.name, c.engine.get());
    {
      const RangeGuard range = services_.range("prefill");
      start_afresh(*c.engine, truth_->prompt);
    }
    if (c.engine->capabilities().snapshots) c.start = c.engine->save();
    if (job_.warmup_by_time) warm_up_by_time(c);
    for (int i = 0; !job_.warmup_by_time && i < job_.warmup; ++i) {
      check_stop();
      watch_.begin("warm-up", c.name, c.engine.get());
      watch_.count(i + 1, job_.warmup);
      const int32_t late = begin_run(c, {});
      decode(c, late, tokens_);
    }
    services_.end_turn(*c.engine);
    if (compared_.insert(c.name).second) measure_overhead(c);
  }

  void warm_up_by_time(Contestant& c) {
    watch_.begin("warm-up", c.name, c.engine.get());
    const bool prefills = job_.n_prompt > 0;
    const auto run = [&](int tokens) -> WarmRun {
      check_stop();
      int32_t late = 0;
      if (!prefills) late = begin_run(c, {});
      if (prefills) c.engine->reset(), c.engine->poison();
      const TimedCall call = services_.timed(*c.engine, [&] {
        if (prefills)
          c.engine->prefill(truth_->prompt);
        else
          decode(c, late, tokens);
      });
      return {call.ms, c.engine->last_times().sm_ghz};
    };
    WarmUp result = warm_up(prefills ? 1 : tokens_, run, clock_of(services_));
    result.process = schedule_.process();
    sink_.send(WarmedUp{c.name, result});
  }

  // Decodes one token several times, each timed like a sample. The overhead comes from all such
  // decodes so far: if the host's state changed between them, the overhead's spread is wider.
  void measure_overhead(Contestant& c) {
    if (job_.n_prompt > 0) return;
    const auto has_clocks = [&] {
      return c.engine->last_times().event_ms > 0 || c.engine->last_times().device_ms > 0;
    };
    if ((job_.warmup_by_time || job_.warmup > 0) && !has_clocks()) return;
    std::vector<DecodeTimes>& times = one_token_[c.name];
    const double begin = services_.now();
    for (int i = 0; i < kOverheadRuns; ++i) {
      // Cut short for an engine that takes seconds a token: the overhead is microseconds.
      if (i >= kLeastOverheadRuns && services_.now() - begin > kMostOverheadS) break;
      check_stop();
      const int32_t late = begin_run(c, {});
      services_.take_turn(*c.engine);
      const TimedCall call = services_.timed(*c.engine, [&] { decode(c, late, 1); });
      if (!has_clocks()) return;
      times.push_back(c.engine->last_times());
      times.back().host_ms = call.ms;
    }
    const double crossing_sd_us = services_.facts(*c.engine).process.crossing_sd_us;
    overheads_[c.name] = clock_overhead(times, crossing_sd_us / 1e3);
    sink_.send(ClocksCompared{c.name, overheads_[c.name]});
  }

  // Measures the overhead again if all samples together contradict it.
  void confirm_overhead(Contestant& c) {
    if (!c.alive || !c.engine || overheads_.count(c.name) == 0) return;
    std::vector<Sample> samples;
    for (const TimedRun& run : runs_) {
      if (run.sample.engine == c.name && !run.dropped) samples.push_back(run.sample);
    }
    if (lasting_disagreement(samples, overheads_[c.name]).empty()) return;
    guard_engine(sink_, c, [&] { measure_overhead(c); });
  }

  // Forgets a block that will be run again. Its engines have seen its late id, so the block draws
  // another one.
  void drop_block(const UnfitBlock& unfit) {
    block_ids_.erase(unfit.block);
    for (TimedRun& run : runs_) {
      if (run.sample.block == unfit.block && !has_failed(run.sample)) run.dropped = true;
    }
    schedule_.forget(unfit.block);
    sink_.send(BlockDropped{unfit.block, unfit.engine, unfit.reason});
  }

  // Sets the engine to the end of the timed prompt, outside the timed part, then draws the id that
  // replaces the prompt's last one: the id of `block` or, without `block`, an id for this run
  // alone. An engine that takes no late id gets the id by a new prefill.
  int32_t begin_run(Contestant& c, std::optional<int> block) {
    if (takes_late_id(c)) {
      start_again(*c.engine, c.start, truth_->prompt);
      return draw(block);
    }
    const int32_t late = draw(block);
    start_afresh(*c.engine, truth_->ending_with(late));
    return late;
  }

  // begin_run() with an id that is drawn already, and pending afterwards.
  void restart(Contestant& c, int32_t late) const {
    if (!takes_late_id(c)) return start_afresh(*c.engine, truth_->ending_with(late));
    start_again(*c.engine, c.start, truth_->prompt);
    c.engine->set_pending(late);
  }

  static bool takes_late_id(const Contestant& c) { return c.engine->capabilities().late_id; }

  int32_t draw(std::optional<int> block) {
    if (!block) return untimed_ids_.draw();
    const auto [found, is_new] = block_ids_.try_emplace(*block, 0);
    if (is_new) found->second = late_ids_.draw();
    return found->second;
  }

  static std::vector<int32_t> decode(Contestant& c, int32_t late, int n) {
    return takes_late_id(c) ? c.engine->decode_late(late, n) : c.engine->decode(n);
  }

  void run_block(int block) {
    const std::vector<int> order = schedule_.order(block);
    services_.watch_card(is_watched(job_.telemetry, block));
    for (size_t place = 0; place < order.size(); ++place) {
      Contestant& c = *engines_[static_cast<size_t>(order[place])];
      if (!has_engines()) return;
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
        if (c.ceiling) {
          take_ceiling(c, block, static_cast<int>(place));
        } else {
          take_sample(c, block, static_cast<int>(place));
          observe(c, block);
        }
      });
      if (job_.one_at_a_time) {
        watch_.end();
        c.engine.reset();
        services_.end_process(c.name);
      }
    }
  }

  void name_sample(const Contestant& c, int block, int place, Sample& sample) const {
    sample.engine = c.name;
    sample.process = schedule_.process();
    sample.block = block;
    sample.order = place;
  }

  // The ceiling has no ids and no state to be checked.
  void take_ceiling(Contestant& c, int block, int place) {
    Sample sample = ceiling_sample([&](Sample& pass) {
      check_stop();
      int32_t late = 0;
      pass.block = block;
      Traces traces = time_decode(c, std::nullopt, late, pass);
      traces.overhead = overheads_[c.name];
      return clock_doubt(pass, traces);
    });
    name_sample(c, block, place, sample);
    sink_.send(SampleTaken{c.name, sample, c.engine->launch_count()});
  }

  // If the system suspends this process for a moment, the clocks of the run disagree; if it
  // suspends the host that probes the card, the card looks busy. Such a run is dropped and
  // repeated, at most kMostRepeats times, and the sample records how often.
  void take_sample(Contestant& c, int block, int place) {
    for (int repeats = 0;; ++repeats) {
      Sample sample;
      name_sample(c, block, place, sample);
      sample.repeats = repeats;
      // A repeat draws its own id: another engine of the block may have revealed the answer to the
      // block's id.
      const std::optional<int> of_block = repeats == 0 ? std::optional(block) : std::nullopt;
      int32_t late = 0;
      Traces traces = job_.n_prompt > 0 ? time_prefill(c, of_block, late, sample)
                                        : time_decode(c, of_block, late, sample);
      if (takes_late_id(c)) sample.late_id = late;
      traces.overhead = overheads_[c.name];
      launches_[c.name] += traces.launches;
      c.engine->audit();
      Verdict verdict =
          judge_sample(sample, *c.engine, traces, truth_->expected(late, tokens_), tokens_);
      const std::string clocks = clock_doubt(sample, traces);
      const bool dropped =
          !clocks.empty() && sample.invalid_reason == clocks && repeats < kMostRepeats;
      TimedRun run{.sample = {}, .last_id = late, .path = sample.ids, .dropped = dropped};
      if (verdict == Verdict::kPass) verdict = check_state(c, late, sample, run.path);
      run.sample = sample;
      if (std::ssize(sample.ids) == tokens_ && !has_gap(sample.ids)) runs_.push_back(run);
      if (dropped) {
        if (!clock_disagreement(sample.times, traces.overhead).empty()) measure_overhead(c);
        continue;
      }
      finish(c, sample, verdict);
      return;
    }
  }

  void observe(Contestant& c, int block) {
    const int process = schedule_.process();
    const int of_process = job_.one_at_a_time ? 0 : schedule_.block_of_process();
    if (!observed_.is_due(c, process, block, of_process)) return;
    observed_.observe(c, process, block, [&] { restart(c, draw({})); });
  }

  Traces time_decode(Contestant& c, std::optional<int> block, int32_t& late, Sample& sample) {
    Engine& engine = *c.engine;
    late = begin_run(c, block);
    services_.label_next(engine, block_label(c.name, first_depth(job_), sample.block));
    services_.take_turn(engine);
    const int64_t before = engine.launch_count();
    const TimedCall call = services_.timed(engine, [&] { sample.ids = decode(c, late, tokens_); });
    const std::string left = services_.end_turn(engine);
    sample.tokens = tokens_;
    sample.times = engine.last_times();
    keep_time(call, sample);
    return {.launches = engine.launch_count() - before, .doubt = first_said({call.doubt, left})};
  }

  // Times a prefill and the first token after it: an engine that puts prefill work off until then
  // gains nothing. The untimed tokens that follow show that its KV rows are right.
  Traces time_prefill(Contestant& c, std::optional<int> block, int32_t& late, Sample& sample) {
    Engine& engine = *c.engine;
    std::vector<int32_t> prompt = truth_->prompt;
    if (!takes_late_id(c)) prompt.back() = late = draw(block);
    engine.reset();
    engine.poison();
    services_.take_turn(engine);
    const TimedCall call = services_.timed(engine, [&] { engine.prefill(prompt); });
    if (takes_late_id(c)) late = draw(block);
    const int64_t before = engine.launch_count();
    const TimedCall first = services_.timed(engine, [&] { sample.ids = decode(c, late, 1); });
    const std::string left = services_.end_turn(engine);  // a later decode would hide leftover work
    const int64_t launches = engine.launch_count() - before;
    keep_time(call, sample);
    sample.prefill_ms = call.ms;
    sample.times.host_ms += first.ms;
    sample.tokens = job_.n_prompt;
    const std::vector<int32_t> more = engine.decode(tokens_ - 1);
    sample.ids.insert(sample.ids.end(), more.begin(), more.end());
    // Besides the ids, the KV rows are checked: they must equal those behind the first prefill.
    const bool compared = engine.capabilities().snapshots && engine.capabilities().deterministic;
    return {.launches = launches,
            .kv_rows = compared ? job_.n_prompt : 0,
            .kv_equal = !compared || has_rows_of(engine, tokens_, [&] { restart(c, late); }),
            .doubt = first_said({call.doubt, first.doubt, left})};
  }

  // Takes the state receipt in the first block of each process (of the case, if every block has its
  // own process) and in a share of the other blocks, drawn after the decode. Appends to `path` the
  // ids that are to be scored with the sample's.
  Verdict check_state(Contestant& c, int32_t late, Sample& sample, std::vector<int32_t>& path) {
    const int before = job_.one_at_a_time ? sample.block : schedule_.block_of_process();
    if (job_.n_prompt > 0 || (before > 0 && services_.random(kReceiptShare) != 0))
      return Verdict::kPass;
    StateReceipt receipt =
        take_state_receipt(*c.engine, vocab_, sample.ids, [&] { restart(c, late); });
    sample.state_checked = receipt.compared;
    path.insert(path.end(), receipt.further.begin(), receipt.further.end());
    const auto expected = truth_->expected(late, static_cast<int>(path.size()));
    if (expected && receipt.problem.empty() && path != *expected)
      receipt.problem = "state receipt: wrong ids after the timed run";
    if (receipt.problem.empty()) return Verdict::kPass;
    sample.valid = false;
    sample.invalid_reason = receipt.problem;
    return receipt.repeats ? Verdict::kIntegrity : Verdict::kNondeterministic;
  }

  // Keeps the harness's clock around the call, not the host time that the engine reports.
  void keep_time(const TimedCall& call, Sample& sample) {
    if (!first_begin_ms_) first_begin_ms_ = call.begin_ms;
    sample.start_ms = call.begin_ms - *first_begin_ms_;
    sample.times.host_ms = call.ms;
    sample.card = call.card;
  }

  void finish(Contestant& c, const Sample& sample, Verdict verdict) {
    sink_.send(SampleTaken{c.name, sample, launches_[c.name]});
    if (verdict != Verdict::kPass) {
      fail_engine(sink_, c, verdict,
                  fmt::format("block {}: {}", sample.block, sample.invalid_reason));
      return;
    }
    schedule_.count(sample);
    conditions_.take(sample);
  }

  const CaseJob& job_;
  const FlowServices& services_;
  const TruthOf& truth_of_;
  const TimedTruth* truth_;  // truth of the current process
  const int vocab_;
  std::vector<Contestant*> engines_;
  const std::function<void(Contestant&)>& open_;
  ProgressWatch& watch_;
  EventSink& sink_;
  const int tokens_;
  LateIds late_ids_;  // for the blocks
  // For untimed runs: the other half of the pool, so that they do not use up the blocks' ids.
  LateIds untimed_ids_;
  BlockSchedule schedule_;
  std::map<int, int32_t> block_ids_;
  std::vector<TimedRun> runs_;
  std::optional<double> first_begin_ms_;  // when the first timed call of the case began
  std::map<std::string, int64_t> launches_;
  std::set<std::string> compared_;  // engines whose overhead was measured in this process
  std::map<std::string, std::vector<DecodeTimes>> one_token_;  // for overheads_, by engine
  std::map<std::string, ClockOverhead> overheads_;             // by engine
  BlockConditions conditions_;
  ObservedDecodes observed_;
};

}  // namespace

std::vector<TimedRun> run_blocks(const CaseJob& job, const FlowServices& services,
                                 const TruthOf& truth_of, int vocab,
                                 std::vector<Contestant*> engines,
                                 const std::function<void(Contestant&)>& open, ProgressWatch& watch,
                                 EventSink& sink) {
  return BlockRunner(job, services, truth_of, vocab, std::move(engines), open, watch, sink).run();
}

}  // namespace mkbench
