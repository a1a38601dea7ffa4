#include "harness/parent/collector.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/engines/registry.h"

namespace mkbench {
namespace {

using Json = nlohmann::json;

// Facts of a case, by the names that messages use.
struct TextFact {
  const char* name;
  std::string CaseReport::*field;
};
constexpr TextFact kTextFacts[] = {{"model_id", &CaseReport::model_id},
                                   {"weights_sha256", &CaseReport::weights_sha256},
                                   {"lagset", &CaseReport::lagset},
                                   {"reference", &CaseReport::reference},
                                   {"reference_sha256", &CaseReport::reference_sha256},
                                   {"reference_versions", &CaseReport::reference_versions},
                                   {"timed_check", &CaseReport::timed_check},
                                   {"ids_sha256", &CaseReport::ids_sha256},
                                   {"generated_text", &CaseReport::generated_text}};

Verdict verdict_in(const Json& message) {
  return verdict_from_name(message.at("verdict").get<std::string>())
      .value_or(Verdict::kRuntimeError);
}

void take_facts(const Json& message, CaseReport& report) {
  for (const TextFact& fact : kTextFacts) {
    if (message.contains(fact.name)) report.*fact.field = message[fact.name].get<std::string>();
  }
  if (message.contains("bytes_needed")) report.bytes_needed = message["bytes_needed"];
  if (message.contains("bytes_free")) report.bytes_free = message["bytes_free"];
}

ModelShape shape_in(const Json& m) {
  return {.hidden = m.at("hidden"),
          .intermediate = m.at("intermediate"),
          .layers = m.at("layers"),
          .heads = m.at("heads"),
          .kv_heads = m.at("kv_heads"),
          .head_dim = m.at("head_dim"),
          .vocab = m.at("vocab")};
}

}  // namespace

CaseCollector::CaseCollector(const CaseJob& job) {
  report_.name = case_name(job);
  report_.model = job.model;
  report_.depth = job.n_prompt > 0 ? 0 : first_depth(job);
  report_.n_gen = job.n_prompt > 0 ? 0 : job.n_gen;
  report_.n_prompt = job.n_prompt;
  size_t asked = 0;
  for (const bool baseline : {true, false}) {
    for (const std::string& name : baseline ? job.baselines : job.candidates) {
      EngineReport e;
      e.resolved_name = e.worker_name = name;
      e.name = asked < job.asked_names.size() ? job.asked_names[asked] : name;
      ++asked;
      e.role = baseline ? "baseline" : "candidate";
      e.timed = !baseline || job.time_baselines;
      e.profile_reason = baseline      ? "only candidates are profiled"
                         : job.profile ? "not reached"
                                       : kProfileNotAsked;
      e.device = job.device;
      report_.engines.push_back(std::move(e));
    }
  }
}

EngineReport* CaseCollector::engine(const std::string& worker_name) {
  const auto at = std::find_if(report_.engines.begin(), report_.engines.end(),
                               [&](const EngineReport& e) { return e.worker_name == worker_name; });
  return at == report_.engines.end() ? nullptr : &*at;
}

void CaseCollector::take_sample(const Json& message) {
  EngineReport* e = engine(message.at("engine").get<std::string>());
  if (e == nullptr) return;
  Sample sample = sample_from_json(message.at("sample"));
  sample.ids = message.at("ids").get<std::vector<int32_t>>();
  e->launches = message.at("launches");
  const std::string throttle = message.value("throttle", "");
  std::vector<std::string>& known = e->throttle_reasons;
  if (!throttle.empty() && throttle != "none" &&
      std::find(known.begin(), known.end(), throttle) == known.end()) {
    known.push_back(throttle);
  }
  e->samples.push_back(std::move(sample));
}

void CaseCollector::take(const Json& message) {
  try {
    take_known(message);
  } catch (const std::exception&
               error) {  // a worker that writes nonsense must not take the parent with it
    report_.reasons.push_back(
        fmt::format("message not understood: {}: {}", error.what(), message.dump().substr(0, 200)));
  }
}

void CaseCollector::take_known(const Json& message) {
  const std::string type = message.value("type", "");
  if (type == "progress") {
    progress_ = message;
  } else if (type == "facts") {
    take_facts(message, report_);
  } else if (type == "shape") {
    shape_ = shape_in(message);
  } else if (type == "engine") {
    if (EngineReport* e = engine(message.at("engine").get<std::string>())) {
      e->resolved_name = message.at("resolved");
      e->device = message.at("device");
      e->settings = message.at("settings");
    }
  } else if (type == "parity") {
    if (EngineReport* e = engine(message.at("engine").get<std::string>())) {
      e->parity = parity_from_json(message.at("parity"));
    }
  } else if (type == "profile") {
    if (EngineReport* e = engine(message.at("engine").get<std::string>())) {
      e->profile_reason = message.at("reason");
      if (e->profile_reason.empty()) e->profile = profile_from_json(message.at("profile"));
    }
  } else if (type == "sample") {
    take_sample(message);
  } else if (type == "verdict") {
    if (EngineReport* e = engine(message.at("engine").get<std::string>())) {
      e->verdict = verdict_in(message);
      const std::string reason = message.at("reason");
      if (!reason.empty()) e->reasons.push_back(reason);
    }
  } else if (type == "case_verdict") {
    strike(nullptr, verdict_in(message), message.at("reason"));
  } else if (type == "interrupted") {
    interrupted_ = true;
  } else if (type == "done") {
    done_ = true;
  } else {
    report_.reasons.push_back(
        fmt::format("message of unknown type '{}': {}", type, message.dump().substr(0, 200)));
  }
}

// "during timing of host-twin, position 12, layer 3, phase o_proj"
std::string CaseCollector::where() const {
  if (!progress_.is_object()) return "before it reported anything";
  std::string text = "during " + progress_.value("stage", "?");
  const std::string engine_name = progress_.value("engine", "");
  if (!engine_name.empty()) text += " of " + engine_name;
  if (progress_.contains("position"))
    text += fmt::format(", position {}", progress_["position"].get<int>());
  if (progress_.contains("layer")) text += fmt::format(", layer {}", progress_["layer"].get<int>());
  if (progress_.contains("phase")) text += ", phase " + progress_["phase"].get<std::string>();
  return text;
}

// The engine that the last progress message named.
EngineReport* CaseCollector::running_engine() {
  const std::string name = progress_.is_object() ? progress_.value("engine", "") : "";
  return engine(engine_of_run(name));
}

// A blow to one engine, or to the whole case where `guilty` is null. Engines that were not judged
// yet say so, and what was measured of the others stands.
void CaseCollector::strike(EngineReport* guilty, Verdict verdict, const std::string& reason) {
  if (guilty != nullptr) {
    // What had been judged before stands.
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

// The end of a worker strikes the engine that was running, but for one that was only diagnosed: it
// has passed, and lacks a profile.
void CaseCollector::blame(Verdict verdict, const std::string& reason) {
  EngineReport* running = running_engine();
  const std::string stage = progress_.is_object() ? progress_.value("stage", "") : "";
  if (running != nullptr && stage.starts_with(kProfileStage)) {
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

Json parity_memo(const CaseReport& c) {
  Json engines = Json::object();
  for (const EngineReport& e : c.engines) {
    if (!e.parity || e.parity->verdict != Verdict::kPass || e.parity->reference_sha256.empty())
      return nullptr;
    ParityReport parity = *e.parity;
    if (parity.judged_in.empty()) parity.judged_in = c.name;
    parity.rows.clear();  // the table stands where it was judged
    parity.first_divergence.reset();
    engines[e.worker_name] = {
        {{"type", "engine"},
         {"engine", e.worker_name},
         {"resolved", e.resolved_name},
         {"device", e.device},
         {"settings", e.settings}},
        {{"type", "parity"}, {"engine", e.worker_name}, {"parity", parity_to_json(parity)}}};
  }
  return {{"facts",
           {{"type", "facts"},
            {"reference", c.reference},
            {"reference_sha256", c.reference_sha256},
            {"reference_versions", c.reference_versions}}},
          {"engines", std::move(engines)}};
}

}  // namespace mkbench
