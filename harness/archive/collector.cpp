#include "harness/archive/collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "harness/engines/registry.h"
#include "harness/flow/text.h"
#include "references/model/rope.h"
#include "references/model_row.h"
#include "references/synthetic.h"

namespace mkbench {

CaseCollector::CaseCollector(const CaseJob& job) {
  report_.name = case_name(job);
  report_.model = job.model.name;
  report_.depth = job.n_prompt > 0 ? 0 : first_depth(job);
  report_.n_gen = job.n_prompt > 0 ? 0 : job.n_gen;
  report_.n_prompt = job.n_prompt;
  report_.resident = job.one_at_a_time ? "one" : "all";
  report_.ceiling.reason = job.no_ceiling;
  for (const CaseEngine& engine : job.engines) {
    if (job.only && !engine.candidate) continue;  // only candidates are judged
    EngineReport e;
    e.resolved_name = e.flow_name = engine.name;
    e.name = engine.asked.empty() ? engine.name : engine.asked;
    e.role = engine.candidate ? "candidate" : "baseline";
    e.timed = engine.timed();
    e.profile_reason = !engine.candidate ? "only candidates are profiled"
                       : job.ablations   ? "not reached"
                                         : kProfileNotAsked;
    e.device = job.device;
    e.card_reason = !job.cuda()                            ? "no GPU"
                    : job.telemetry == TelemetryMode::kOff ? "--telemetry off"
                                                           : "";
    e.observed.reason = engine.candidate && job.observed ? "not reached" : kObservedNotAsked;
    report_.engines.push_back(std::move(e));
  }
}

EngineReport* CaseCollector::engine(const std::string& flow_name) {
  const auto at = std::find_if(report_.engines.begin(), report_.engines.end(),
                               [&](const EngineReport& e) { return e.flow_name == flow_name; });
  return at == report_.engines.end() ? nullptr : &*at;
}

// One overload for each event of a case.
struct CaseCollector::Taker {
  CaseCollector& c;

  void operator()(const StageProgress&) const {}
  void operator()(const MemoryHeld&) const {}
  void operator()(const MemoryStated& m) const {
    c.report_.bytes_needed = m.bytes_needed;
    c.report_.bytes_free = m.bytes_free;
  }
  void operator()(const ModelLoaded& m) const {
    c.report_.model_id = m.model_id;
    c.report_.weights_sha256 = m.weights_sha256;
    c.report_.lagset = m.lagset;
    c.report_.salt = m.salt;
    c.report_.generator = m.lagset.empty() ? 0 : kSyntheticVersion;
    c.report_.head = m.head;
    c.report_.model_kind = m.kind;
    c.report_.not_covered = m.not_covered;
    c.report_.notes = m.notes;
    c.report_.rounded = m.rounded;
    c.report_.rope_theta = m.config.rope.theta;
    c.report_.rope_theta_key = m.config.rope.theta_key;
    c.report_.rope_scaling = scaling_text(m.config.rope);
    c.report_.reads = m.config.reads;
    c.config_ = m.config;
  }
  void operator()(const ReferencesFound& m) const {
    c.report_.reference = m.reference;
    c.report_.reference_sha256 = m.reference_sha256;
    c.report_.reference_versions = m.reference_versions;
    c.report_.live_check = m.live_check;
  }
  void operator()(const FormatCostFound& m) const { c.report_.format_cost = m.cost; }
  void operator()(const TimedCheckChosen& m) const {
    c.report_.timed_check = m.timed_check;
    c.report_.ids_sha256 = m.ids_sha256;
  }
  void operator()(const EngineMade& m) const {
    if (m.engine == kCeilingName) static_cast<EngineFacts&>(c.report_.ceiling) = m.facts;
    if (EngineReport* e = c.engine(m.engine)) static_cast<EngineFacts&>(*e) = m.facts;
  }
  void operator()(const ProcessBegun& m) const {
    EngineReport* e = c.engine(m.engine);
    if (e == nullptr) return;
    // The place of a process that did not open the engine stays empty.
    e->timed_processes.resize(
        std::max(e->timed_processes.size(), static_cast<size_t>(m.process) + 1));
    e->timed_processes[static_cast<size_t>(m.process)] = m.facts;
  }
  void operator()(const WarmedUp& m) const {
    if (EngineReport* e = c.engine(m.engine)) e->warm_ups.push_back(m.warm_up);
  }
  void operator()(const ParityJudged& m) const {
    if (EngineReport* e = c.engine(m.engine)) e->parity = m.parity;
  }
  void operator()(const StepFailed& m) const {
    if (EngineReport* e = c.engine(m.engine); e != nullptr && e->parity)
      static_cast<FailureDetails&>(*e->parity) = m.details;
  }
  void operator()(const AblationsTaken& m) const {
    EngineReport* e = c.engine(m.engine);
    if (e == nullptr) return;
    e->profile_reason = m.reason;
    if (m.reason.empty()) e->profile = m.profile;
  }
  void operator()(const EngineAudited& m) const {
    if (EngineReport* e = c.engine(m.engine)) e->audit = m.text;
  }
  void operator()(const EngineObserved& m) const {
    EngineReport* e = c.engine(m.engine);
    if (e == nullptr) return;
    e->observed.reason = m.reason;
    if (m.handover) e->observed.handovers.push_back(*m.handover);
    if (m.decode) e->observed.decodes.push_back(*m.decode);
  }
  void operator()(const SampleTaken& m) const {
    if (m.engine == kCeilingName) return c.report_.ceiling.samples.push_back(m.sample);
    EngineReport* e = c.engine(m.engine);
    if (e == nullptr) return;
    e->launches = m.launches;
    if (c.report_.generated_text.empty() && c.config_) {
      c.report_.generated_ids = m.sample.ids;
      c.report_.generated_text = sequence_text(c.config_->shape, m.sample.ids);
    }
    std::vector<std::string>& known = e->throttle_reasons;
    const std::string limits = m.sample.card ? m.sample.card->limits : "";
    if (!limits.empty() && std::find(known.begin(), known.end(), limits) == known.end())
      known.push_back(limits);
    e->samples.push_back(m.sample);
  }
  void operator()(const BlockDropped& m) const {
    std::erase_if(c.report_.ceiling.samples, [&](const Sample& s) { return s.block == m.block; });
    for (EngineReport& e : c.report_.engines) {
      const auto stands = [&](const Sample& s) { return s.block != m.block || has_failed(s); };
      const auto dropped = std::stable_partition(e.samples.begin(), e.samples.end(), stands);
      for (auto at = dropped; at != e.samples.end(); ++at) {
        at->dropped_for = e.flow_name == m.engine ? m.reason : kOtherEngine;
        e.dropped_samples.push_back(std::move(*at));
      }
      e.samples.erase(dropped, e.samples.end());
      std::erase_if(e.observed.decodes,
                    [&](const ObservedDecode& o) { return o.block == m.block; });
    }
  }
  void operator()(const ClocksCompared& m) const {
    if (EngineReport* e = c.engine(m.engine)) e->clock_overhead = m.overhead;
  }
  void operator()(const LaunchesTraced& m) const {
    if (EngineReport* e = c.engine(m.engine)) e->launch_trace = m.trace;
  }
  void operator()(const SampleScored& m) const {
    EngineReport* e = c.engine(m.sample.engine);
    if (e == nullptr) return;
    for (Sample& sample : e->samples) {
      if (sample.block == m.sample.block) sample = m.sample;
    }
  }
  void operator()(const VerdictGiven& m) const {
    if (m.engine.empty()) return c.end_case(m.verdict, m.reason);
    // The ceiling is not judged, so its failure does not change the case's verdict.
    if (m.engine == kCeilingName) c.report_.ceiling.reason = m.reason;
    EngineReport* e = c.engine(m.engine);
    if (e == nullptr) return;
    e->verdict = m.verdict;
    // The last verdict counts, and its reason is listed before those of earlier failures.
    if (!m.reason.empty()) e->reasons.insert(e->reasons.begin(), m.reason);
  }
  void operator()(const CaseInterrupted&) const { c.interrupted_ = true; }
  void operator()(const Done&) const {}
};

void CaseCollector::take(const CaseEvent& event) { std::visit(Taker{*this}, event); }

// Gives a verdict to the whole case. Engines that were not judged yet get a reason that says so.
void CaseCollector::end_case(Verdict verdict, const std::string& reason) {
  report_.verdict = verdict;
  report_.reasons.push_back(reason);
  for (EngineReport& e : report_.engines) {
    if (e.verdict != Verdict::kSkipped || !e.reasons.empty()) continue;
    if (verdict == Verdict::kInvalidReference) e.verdict = Verdict::kNotJudged;
    e.reasons.push_back("not reached: " + reason);
  }
}

void CaseCollector::finish(bool interrupted) {
  interrupted_ = interrupted_ || interrupted;
  for (EngineReport& e : report_.engines) {
    if (e.verdict == Verdict::kSkipped && e.reasons.empty()) {
      // What was proven before the end stands.
      const bool proven = interrupted_ && e.parity &&
                          exit_code(e.parity->verdict) == exit_code(Verdict::kFailToken);
      if (proven) e.verdict = e.parity->verdict;
      e.reasons.push_back(proven         ? e.parity->reason
                          : interrupted_ ? "interrupted before it was judged"
                                         : "not reached");
    }
  }
}

std::optional<JudgedCase> parity_memo(const CaseReport& c) {
  JudgedCase memo{{c.reference, c.reference_sha256, c.reference_versions, c.live_check}, {}};
  if (!may_take_over(find_model(c.model), memo.references.is_live())) return std::nullopt;
  for (const EngineReport& e : c.engines) {
    if (!e.parity || e.parity->verdict != Verdict::kPass) return std::nullopt;
    JudgedEngine& judged = memo.engines[e.flow_name];
    judged = {e, *e.parity};
    if (judged.parity.judged_in.empty()) judged.parity.judged_in = c.name;
    // A timed step that failed is told in its own case.
    static_cast<FailureDetails&>(judged.parity) = {};
    judged.parity.rows.clear();  // they stay in the report of the case that was judged
    judged.parity.first_divergence.reset();
  }
  return memo;
}

}  // namespace mkbench
