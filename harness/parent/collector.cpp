#include "harness/parent/collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "harness/engines/registry.h"

namespace mkbench {

CaseCollector::CaseCollector(const CaseJob& job) {
  report_.name = case_name(job);
  report_.model = job.model;
  report_.depth = job.n_prompt > 0 ? 0 : first_depth(job);
  report_.n_gen = job.n_prompt > 0 ? 0 : job.n_gen;
  report_.n_prompt = job.n_prompt;
  for (const CaseEngine& engine : job.engines) {
    EngineReport e;
    e.resolved_name = e.worker_name = engine.name;
    e.name = engine.asked.empty() ? engine.name : engine.asked;
    e.role = engine.candidate ? "candidate" : "baseline";
    e.timed = engine.timed();
    e.profile_reason = !engine.candidate ? "only candidates are profiled"
                       : job.profile     ? "not reached"
                                         : kProfileNotAsked;
    e.device = job.device;
    report_.engines.push_back(std::move(e));
  }
}

EngineReport* CaseCollector::engine(const std::string& worker_name) {
  const auto at = std::find_if(report_.engines.begin(), report_.engines.end(),
                               [&](const EngineReport& e) { return e.worker_name == worker_name; });
  return at == report_.engines.end() ? nullptr : &*at;
}

// One overload for each message of a case; the template takes all other messages.
struct CaseCollector::Taker {
  CaseCollector& c;

  void operator()(const StageProgress& m) const { c.progress_ = m; }
  void operator()(const MemoryStated& m) const {
    c.report_.bytes_needed = m.bytes_needed;
    c.report_.bytes_free = m.bytes_free;
  }
  void operator()(const ModelLoaded& m) const {
    c.report_.model_id = m.model_id;
    c.report_.weights_sha256 = m.weights_sha256;
    c.report_.lagset = m.lagset;
    c.shape_ = m.shape;
  }
  void operator()(const ReferencesFound& m) const {
    c.report_.reference = m.reference;
    c.report_.reference_sha256 = m.reference_sha256;
    c.report_.reference_versions = m.reference_versions;
  }
  void operator()(const TimedCheckChosen& m) const {
    c.report_.timed_check = m.timed_check;
    c.report_.ids_sha256 = m.ids_sha256;
    c.report_.generated_text = m.generated_text;
  }
  void operator()(const EngineMade& m) const {
    if (EngineReport* e = c.engine(m.engine)) static_cast<EngineFacts&>(*e) = m.facts;
  }
  void operator()(const ParityJudged& m) const {
    if (EngineReport* e = c.engine(m.engine)) e->parity = m.parity;
  }
  void operator()(const ProfileTaken& m) const {
    EngineReport* e = c.engine(m.engine);
    if (e == nullptr) return;
    e->profile_reason = m.reason;
    if (m.reason.empty()) e->profile = m.profile;
  }
  void operator()(const SampleTaken& m) const {
    EngineReport* e = c.engine(m.engine);
    if (e == nullptr) return;
    e->launches = m.launches;
    std::vector<std::string>& known = e->throttle_reasons;
    if (!m.throttle.empty() && m.throttle != "none" &&
        std::find(known.begin(), known.end(), m.throttle) == known.end()) {
      known.push_back(m.throttle);
    }
    e->samples.push_back(m.sample);
  }
  void operator()(const VerdictGiven& m) const {
    if (m.engine.empty()) return c.strike(nullptr, m.verdict, m.reason);
    EngineReport* e = c.engine(m.engine);
    if (e == nullptr) return;
    e->verdict = m.verdict;
    if (!m.reason.empty()) e->reasons.push_back(m.reason);
  }
  void operator()(const CaseInterrupted&) const { c.interrupted_ = true; }
  void operator()(const Done&) const { c.done_ = true; }
  void operator()(const Garbage& m) const {
    c.report_.reasons.push_back(fmt::format("message not understood: {}: {}", m.problem, m.text));
  }
  template <typename Other>
  void operator()(const Other&) const {
    c.report_.reasons.push_back(fmt::format("message of type '{}' in a case", Other::kType));
  }
};

void CaseCollector::take(const FromHost& message) { std::visit(Taker{*this}, message); }

// "during timing of host-twin, position 12, layer 3, phase o_proj"
std::string CaseCollector::where() const {
  if (!progress_) return "before it reported anything";
  std::string text = "during " + progress_->stage;
  if (!progress_->engine.empty()) text += " of " + progress_->engine;
  if (progress_->position) text += fmt::format(", position {}", *progress_->position);
  if (progress_->layer) text += fmt::format(", layer {}", *progress_->layer);
  if (!progress_->phase.empty()) text += ", phase " + progress_->phase;
  return text;
}

// The engine that the last progress message named.
EngineReport* CaseCollector::running_engine() {
  return progress_ ? engine(engine_of_run(progress_->engine)) : nullptr;
}

// Gives `verdict` to one engine, or to the whole case where `guilty` is null. Engines that were not
// judged yet get a reason that says so; measurements of the other engines stay in the report.
void CaseCollector::strike(EngineReport* guilty, Verdict verdict, const std::string& reason) {
  if (guilty != nullptr) {
    // An earlier parity failure stays: the graver of the two verdicts counts.
    const bool failed = guilty->parity && !times_allowed(guilty->parity->verdict);
    guilty->verdict = failed ? worst({verdict, guilty->parity->verdict}) : verdict;
    guilty->reasons.push_back(reason);
    if (failed) {
      guilty->reasons.push_back(fmt::format(
          "before that {}: {}", verdict_name(guilty->parity->verdict), guilty->parity->reason));
    }
  } else {
    report_.verdict = verdict;
    report_.reasons.push_back(reason);
  }
  for (EngineReport& e : report_.engines) {
    if (&e == guilty || e.verdict != Verdict::kSkipped || !e.reasons.empty()) continue;
    if (verdict == Verdict::kInvalidReference) e.verdict = Verdict::kNotJudged;
    e.reasons.push_back(guilty != nullptr
                            ? fmt::format("not reached: the worker ended with {}", guilty->name)
                            : "not reached: " + reason);
  }
}

// The verdict of a host's end goes to the engine that was running. An engine that was only being
// profiled has passed already: it keeps its verdict and goes without a profile.
void CaseCollector::blame(Verdict verdict, const std::string& reason) {
  EngineReport* running = running_engine();
  if (running != nullptr && progress_->stage.starts_with(kProfileStage)) {
    running->profile_reason = fmt::format("{}: {}", verdict_name(verdict), reason);
  } else {
    strike(running, verdict, reason);
  }
}

void CaseCollector::finish(const WorkerEnd& end, double deadline_s) {
  using How = WorkerEnd::How;
  if (end.how == How::kInterrupted) {
    finish_in_process(true);
    return;
  }
  if (end.how == How::kHung) {
    blame(Verdict::kHang,
          fmt::format("no progress for {:.1f} s, killed at the deadline of {:g} s {}",
                      end.silent_seconds, deadline_s, where()));
  } else if (end.how == How::kTimedOut) {
    blame(Verdict::kTimeout,
          fmt::format("still at work, killed at the deadline of {:g} s {}", deadline_s, where()));
  } else if (end.how == How::kSignalled) {
    blame(Verdict::kRuntimeError,
          fmt::format("the worker died by {} {}", signal_text(end.code), where()));
  } else if (end.code != 0 || !(done_ || interrupted_)) {
    blame(Verdict::kRuntimeError,
          fmt::format("the worker left with exit status {} {}", end.code, where()));
  }
  finish_in_process(interrupted_);
}

void CaseCollector::finish_in_process(bool interrupted) {
  interrupted_ = interrupted_ || interrupted;
  for (EngineReport& e : report_.engines) {
    if (e.verdict == Verdict::kSkipped && e.reasons.empty()) {
      e.reasons.push_back(interrupted_ ? "interrupted before it was judged" : "not reached");
    }
  }
}

std::optional<JudgedCase> parity_memo(const CaseReport& c) {
  JudgedCase memo{{c.reference, c.reference_sha256, c.reference_versions}, {}};
  for (const EngineReport& e : c.engines) {
    if (!e.parity || e.parity->verdict != Verdict::kPass || e.parity->reference_sha256.empty())
      return std::nullopt;
    JudgedEngine& judged = memo.engines[e.worker_name];
    judged = {e, *e.parity};
    if (judged.parity.judged_in.empty()) judged.parity.judged_in = c.name;
    judged.parity.rows.clear();  // the table is in the report of the case that was judged
    judged.parity.first_divergence.reset();
  }
  return memo;
}

}  // namespace mkbench
