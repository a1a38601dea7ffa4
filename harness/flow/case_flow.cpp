#include "harness/flow/case_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "harness/engines/plugin_file.h"
#include "harness/flow/ablations.h"
#include "harness/flow/audit.h"
#include "harness/flow/blocks.h"
#include "harness/flow/contestant.h"
#include "harness/flow/format_cost.h"
#include "harness/flow/gate.h"
#include "harness/flow/launches.h"
#include "harness/flow/only.h"
#include "harness/flow/replication.h"
#include "harness/flow/state_receipt.h"
#include "harness/flow/stated_weights.h"
#include "harness/flow/timed_scoring.h"
#include "harness/flow/timed_truth.h"
#include "harness/flow/trials.h"
#include "harness/flow/watch.h"
#include "harness/judge/repeats.h"
#include "harness/report/report.h"
#include "references/base/sha256.h"
#include "references/model_row.h"
#include "references/snapshot.h"

namespace mkbench {
namespace {

class CaseFlow {
 public:
  CaseFlow(const CaseJob& job, const FlowServices& services, EventSink& sink)
      : job_(job), services_(services), sink_(sink), watch_(sink) {
    for (const CaseEngine& engine : job.engines) contestants_.emplace_back(engine);
    no_ceiling_ = job.no_ceiling;
  }

  void run() {
    const ModelConfig planned = services_.config(job_.model);
    check_positions(planned);
    state_memory(planned);
    if (job_.only) return repeat_one_step();
    if (!job_.judged && !refuse_unfit(planned)) return;
    load(job_.judged ? timing_model() : parity_model(job_.model), first_depth(job_));
    if (!take_values()) return static_cast<void>(has_candidates());
    const CaseReferences references = job_.judged ? take_judged() : judge_all();
    if (job_.whole_parity) return tell_cost(references);
    if (!goes_on()) return;
    make_timed_engines();
    const TruthOf truth_of = truth_by_process(job_, weights_);
    const TimedTruth& truth = truth_of(0);
    sink_.send(TimedCheckChosen{
        truth.check(), sha256_hex(truth.prompt.data(), truth.prompt.size() * sizeof(int32_t))});
    if (!goes_on()) return;
    const auto open = [this](Contestant& c) { make_engine(c); };
    std::vector<TimedRun> runs = run_blocks(job_, services_, truth_of, weights_.config.shape.vocab,
                                            with_ceiling(timed_engines()), open, watch_, sink_);
    ceiling_.engine.reset();
    if (job_.ablations && !job_.one_at_a_time)
      run_ablations(job_, services_, living_candidates(), watch_, sink_);
    if (worth_timing(job_, timed_engines()))
      trace_launches(job_, services_, truth, timed_engines(), open, watch_, sink_);
    close_engines();  // they have no more work: make room for the truth
    const std::vector<WrongRun> wrong =
        truth.lagset.empty() ? score_runs(runs, truth, references.all, services_, weights_,
                                          context_, contestants_, watch_, sink_)
                             : closed_form_wrongs(runs, truth_of, contestants_);
    tell_wrong_runs(job_, services_, truth_of, weights_, references.all, context_, wrong,
                    contestants_, open, watch_, sink_);
    tell_cost(references);
    audit();
  }

  // Hashes each candidate's ids and logits on the repeated prompts, in a process that has done
  // nothing else.
  RepeatHashes hash_repeats() {
    load(parity_model(job_.model), first_depth(job_));
    const CaseReferences references = find_case_references(job_, services_, weights_);
    choose_context(references);
    const ModelShape& shape = weights_.config.shape;
    RepeatHashes answer;
    for (Contestant& c : contestants_) {
      if (!c.candidate) continue;
      try {
        make_engine(c);
        watch_.begin("repeats", c.name, c.engine.get());
        Findings findings;
        const FittingReferences fitting =
            references_within(references.all, c.engine->capabilities().max_context);
        answer[c.name].sha256 =
            hash_runs(*c.engine, repeated_prompts(job_, shape, fitting.all), shape.vocab, findings);
      } catch (const std::exception& error) {
        answer[c.name].problem = error.what();
      }
      watch_.end();
      c.engine.reset();
    }
    return answer;
  }

 private:
  int tokens() const { return timed_tokens(job_); }

  Model timing_model() const {
    return salted(model_at_depth(job_.model, first_depth(job_)), job_.salt);
  }

  void check_stop() const {
    if (services_.stop()) throw Interrupted{};
  }

  // Refuses a context longer than the model allows, naming both lengths; nothing is truncated.
  void check_positions(const ModelConfig& config) const {
    const int64_t needed = int64_t{first_depth(job_)} + tokens();
    if (config.max_positions <= 0 || needed <= config.max_positions) return;
    throw Error(
        ErrorKind::kBadInput,
        fmt::format("model {}: a depth of {} and {} tokens need {} positions, "
                    "max_position_embeddings is {}",
                    job_.model.name, first_depth(job_), tokens(), needed, config.max_positions));
  }

  // Why an outline has no ceiling; empty if it has one.
  std::string no_ceiling_of(const ModelConfig& config) const {
    if (!config.reads.known()) return "what a step reads is not known: " + config.reads.unknown;
    return served_from_l2(static_cast<double>(config.bytes_per_step(first_depth(job_))),
                          static_cast<double>(job_.l2_bytes));
  }

  void refuse_ceiling(const std::string& why) {
    no_ceiling_ = why;
    if (!why.empty()) sink_.send(VerdictGiven{ceiling_.name, Verdict::kSkipped, why});
  }

  // Sends how much memory the case will take and how much is free, before anything is loaded.
  void state_memory(const ModelConfig& config) {
    const CaseMemory memory = case_memory(job_, services_, config);
    sink_.send(MemoryStated{memory.taken(), memory.free});
    if (no_ceiling_.empty()) {
      if (config.is_outline()) refuse_ceiling(no_ceiling_of(config));
      if (no_ceiling_.empty() && !memory.ceiling_fits())
        refuse_ceiling(ceiling_refusal(job_, memory));
    }
    if (!memory.fits())
      throw Error(ErrorKind::kEnvUnfit, memory_refusal(job_, services_, config, memory));
  }

  // Refuses the engines that have no code for the model, before anything is loaded. False if no
  // candidate is left.
  bool refuse_unfit(const ModelConfig& config) {
    for (Contestant& c : contestants_) {
      if (c.judges) continue;
      try {
        services_.bytes({.name = c.name, .max_context = 1}, config);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kBadInput) throw;
        fail_engine(sink_, c, Verdict::kBadInput, error.what());
      }
    }
    return has_candidates();
  }

  // Whether a candidate is left; where none is, the other engines are told.
  bool has_candidates() {
    if (worth_timing(job_, living_candidates())) return true;
    for (Contestant* c : living([](const Contestant&) { return true; }))
      sink_.send(
          VerdictGiven{c->name, c->verdict,
                       "neither judged nor timed: no candidate is left (--time-anyway goes on)"});
    return false;
  }

  // For --truth dequantised: takes what the candidate says that its weights stand for. False if it fails.
  bool take_values() {
    if (!job_.model.dequantised) return true;
    context_ = timed_context();
    const auto found = take_stated_weights(
        services_, living_candidates(), [this](Contestant& c) { make_engine(c); }, sink_);
    if (found && found->declared) {
      weights_.config.reads = services_.config(job_.model).reads;
      if (no_ceiling_.empty()) refuse_ceiling(no_ceiling_of(weights_.config));
      tell_model();
    }
    return !living_candidates().empty();
  }

  void load(const Model& model, int depth) {
    check_stop();
    watch_.begin("loading " + model.name, "", nullptr);
    const RangeGuard range = services_.range("load");
    weights_ = services_.load(model, depth);
    loaded_ = model.name;
    tell_model();
  }

  void tell_model() {
    sink_.send(ModelLoaded{weights_.name, weights_.sha256, weights_.lagset, weights_.salt,
                           weights_.head, weights_.config, weights_.model_type,
                           weights_.not_covered, weights_.notes, weights_.rounded});
  }

  void send_references(const CaseReferences& references) {
    ReferencesFound found;
    found.live_check = references.live_check;
    const auto append = [](std::string& list, const std::string& item) {
      if (!item.empty() && list.find(item) == std::string::npos)
        list += (list.empty() ? "" : ", ") + item;
    };
    if (references.live) append(found.reference, "live");
    for (const GreedyReference& reference : references.all) {
      append(found.reference, reference.path.filename().string());
      append(found.reference_sha256, reference.sha256);
      append(found.reference_versions, reference.versions);
    }
    sink_.send(found);
  }

  void make_engine(Contestant& c) {
    check_stop();
    watch_.begin("upload", c.name, nullptr);
    const RangeGuard range = services_.range("upload");
    c.engine = services_.make_engine({.name = c.name,
                                      .max_context = context_,
                                      .depth = c.ceiling ? first_depth(job_) : 0,
                                      .settings = c.ceiling ? ceiling_pattern_ : "",
                                      .fault = fault_of(job_, c.name)},
                                     weights_);
    check_room(c);
    c.can = c.engine->capabilities();
    EngineFacts facts = services_.facts(*c.engine);
    if (c.ceiling) ceiling_pattern_ = facts.settings;
    facts.own_weights = c.own_weights;
    facts.declared_bytes = c.declared_bytes;
    if (!is_file_engine(c.name)) facts.resolved_name = c.name;
    sink_.send(EngineMade{c.name, facts});
    sink_.send(MemoryHeld{services_.held_bytes()});
  }

  void check_room(const Contestant& c) const {
    const int room = c.engine->capabilities().max_context, needed = first_depth(job_) + tokens();
    if (!c.timed() || job_.whole_parity || job_.only || room >= needed) return;
    throw Error(ErrorKind::kBadInput,
                fmt::format("engine {}: positions of this case: found {}, wanted at most its "
                            "max_context, {}: a smaller -d, -n or -p",
                            c.name, needed, room));
  }

  // Judges every engine, the judge itself first: if the judge fails, no other engine is judged.
  void gate(CaseReferences& references) {
    Gate the_gate(job_, services_, weights_, references, context_, watch_, sink_);
    for (Contestant& c : contestants_) {
      if (!c.judges) continue;
      guard_engine(sink_, c, [&] { make_engine(c); });
      if (c.alive && the_gate.pass_judge(c)) {
        if (job_.one_at_a_time) {
          the_gate.drop_judge();
          c.engine.reset();
        }
        continue;
      }
      const Verdict of_others =
          c.verdict == Verdict::kInvalidReference ? Verdict::kNotJudged : Verdict::kSkipped;
      for (Contestant& other : contestants_) {
        if (other.alive && &other != &c) {
          fail_engine(sink_, other, of_others,
                      fmt::format("the baseline {} did not pass its own gate", c.name));
        }
      }
      return;
    }
    for (Contestant& c : contestants_) {
      if (c.judges || !c.alive) continue;
      guard_engine(sink_, c, [&] { make_engine(c); });
      if (c.alive) the_gate.judge_engine(c);
      if (!c.alive || job_.one_at_a_time) c.engine.reset();
    }
  }

  // Judges the parity of every engine, on the weights from which the references were made.
  CaseReferences judge_all() {
    check_positions(weights_.config);
    CaseReferences references = find_case_references(job_, services_, weights_);
    if (!job_.only_prompt.empty()) keep_prompt(job_, references.all);
    send_references(references);
    choose_context(references);
    gate(references);
    if (references.live) send_references(references);
    return references;
  }

  void repeat_one_step() {
    const bool by_name = job_.only->prompt_ids.empty();
    load(by_name ? parity_model(job_.model) : salted(job_.model, job_.only->salt), 0);
    if (!take_values()) return static_cast<void>(has_candidates());
    CaseReferences references;
    if (by_name) references = find_case_references(job_, services_, weights_);
    context_ = context_for(only_positions(job_, references.all) + 1, weights_.config.max_positions);
    run_only(
        job_, services_, weights_, references.all, context_, contestants_,
        [this](Contestant& c) { make_engine(c); }, watch_, sink_);
  }

  void choose_context(const CaseReferences& references) {
    const int parity_context = context_for(
        parity_positions(references, job_, weights_.config.shape), weights_.config.max_positions);
    context_ = std::max(timed_context(), parity_context);
  }

  // Takes over what an earlier case has found of these engines; every timed token is checked anew.
  CaseReferences take_judged() {
    check_positions(weights_.config);
    context_ = timed_context();
    sink_.send(job_.judged->references);
    for (Contestant& c : contestants_) {
      const JudgedEngine& judged = job_.judged->engines.at(c.name);
      c.own_weights = judged.facts.own_weights;
      c.declared_bytes = judged.facts.declared_bytes;
      sink_.send(EngineMade{c.name, judged.facts});
      sink_.send(ParityJudged{c.name, judged.parity});
      c.verdict = job_.judged->references.is_live() ? Verdict::kPassLive : Verdict::kPass;
      sink_.send(VerdictGiven{c.name, c.verdict, ""});
    }
    // Timed tokens of analytic weights are checked by the closed form, which needs no reference.
    return is_analytic(job_.model.row) ? CaseReferences{}
                                       : find_case_references(job_, services_, weights_);
  }

  int timed_context() const {
    return context_for(timed_positions(job_), weights_.config.max_positions);
  }

  // Makes the engines that are timed, and closes all others. Analytic weights are timed with a salt
  // and the lag set of their depth, and judged with neither: the shapes are equal.
  void make_timed_engines() {
    const Model timed = timing_model();
    const bool other_weights = loaded_ != timed.name || weights_.salt != timed.salt;
    close_engines([&](const Contestant& c) { return other_weights || !c.timed(); });
    if (other_weights) {
      weights_ = ModelWeights{};
      load(timed, first_depth(job_));
    }
    if (blocks_make_engines()) return;
    for (Contestant* c : timed_engines()) {
      if (!c->engine) guard_engine(sink_, *c, [&] { make_engine(*c); });
    }
  }

  // Whether run_blocks() opens the engines itself, each in more than one process.
  bool blocks_make_engines() const { return job_.one_at_a_time || process_count(job_) > 1; }

  // The engines of the blocks; the ceiling is the last one, if it is timed.
  std::vector<Contestant*> with_ceiling(std::vector<Contestant*> engines) {
    if (!no_ceiling_.empty()) return engines;
    if (!blocks_make_engines()) guard_engine(sink_, ceiling_, [&] { make_engine(ceiling_); });
    if (ceiling_.alive) engines.push_back(&ceiling_);
    return engines;
  }

  void close_engines(const std::function<bool(const Contestant&)>& which = [](const Contestant&) {
    return true;
  }) {
    watch_.end();
    for (Contestant& c : contestants_) {
      if (which(c)) c.engine.reset();
    }
  }

  void tell_cost(const CaseReferences& references) {
    if (!tells_cost(job_, living_candidates())) return;
    close_engines();
    sink_.send(FormatCostFound{
        cost_of_format(job_, services_, weights_, references.all, context_, watch_)});
  }

  // Later cases take over that these engines read the weights, like their parity.
  void audit() {
    if (!job_.audited || job_.judged) return;
    weights_ = ModelWeights{};
    audit_candidates(job_, services_, living_candidates(), watch_, sink_);
  }

  // Whether there is anything to time; a baseline that is left alone is told why it is not timed.
  bool goes_on() {
    const std::vector<Contestant*> engines = timed_engines();
    if (worth_timing(job_, engines)) return !engines.empty();
    for (Contestant* c : engines)
      sink_.send(
          VerdictGiven{c->name, c->verdict,
                       "not timed: no candidate is left (--time-anyway times it nevertheless)"});
    return false;
  }

  template <typename Want>
  std::vector<Contestant*> living(const Want& want) {
    std::vector<Contestant*> found;
    for (Contestant& c : contestants_) {
      if (c.alive && want(c)) found.push_back(&c);
    }
    return found;
  }
  std::vector<Contestant*> living_candidates() {
    return living([](const Contestant& c) { return c.candidate; });
  }
  std::vector<Contestant*> timed_engines() {
    return living([](const Contestant& c) { return c.timed(); });
  }

  const CaseJob& job_;
  const FlowServices& services_;
  EventSink& sink_;
  ModelWeights weights_;
  std::string loaded_;  // the model that weights_ belong to
  std::vector<Contestant> contestants_;
  Contestant ceiling_{{.name = kCeilingName, .asked = kCeilingName, .ceiling = true}};
  std::string ceiling_pattern_;  // found in the ceiling's first process, reused in the others
  std::string no_ceiling_;       // why no ceiling is timed; empty if one is
  int context_ = 0;
  ProgressWatch watch_;  // last member: its thread ends before the engines are destroyed
};

}  // namespace

RepeatHashes hash_case_repeats(const CaseJob& job, const FlowServices& services, EventSink& sink) {
  return CaseFlow(job, services, sink).hash_repeats();
}

void run_case(const CaseJob& job, const FlowServices& services, EventSink& sink) {
  try {
    CaseFlow(job, services, sink).run();
    sink.send(Done{});
  } catch (const Interrupted&) {
    sink.send(CaseInterrupted{});
  } catch (const Error& error) {
    sink.send(VerdictGiven{"", verdict_of(error.kind()), error.what()});
    sink.send(Done{});
  } catch (const std::bad_alloc&) {
    sink.send(VerdictGiven{"", Verdict::kEnvUnfit, "out of host memory"});
    sink.send(Done{});
  } catch (const std::exception& error) {
    sink.send(VerdictGiven{"", Verdict::kRuntimeError, error.what()});
    sink.send(Done{});
  }
}

}  // namespace mkbench
