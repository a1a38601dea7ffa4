#include "harness/selftest/lanes.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/judge/check_reference.h"
#include "harness/judge/findings.h"
#include "harness/judge/head.h"
#include "harness/judge/isolation.h"
#include "harness/judge/live.h"
#include "harness/judge/ratchet.h"
#include "harness/judge/repeats.h"
#include "harness/selftest/gate_faults.h"
#include "harness/selftest/probes.h"
#include "references/base/error.h"
#include "references/shared_snapshot.h"
#include "references/snapshot.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

constexpr int kMaxContext = 1024;
constexpr std::string_view kFourLayers = "four layers";
constexpr int kFourLayersCount = 4;

// Longest prompt, in ids, that a lane repeats, so that a lane takes about a second.
constexpr size_t kLongestRepeated = 24;
// Number of cache lengths that a lane's sweep walks, and the longest that it jumps to.
struct Swept {
  int steps, longest;
};
constexpr Swept kTinySwept{96, 132}, kFourLayersSwept{24, 33};  // 0.1 s per oracle step

const std::function<void()> kNoStop = [] {};

ParityOptions options_for(const ModelShape& shape) {
  ParityOptions options;
  options.vocab = shape.vocab;
  options.layers = shape.layers;
  return options;
}

// The lanes' kernels accumulate in fp32, except two controls that round like engines of class bf16.
PrecisionClass class_of(const FaultLane& lane) {
  const bool rounds = lane.plant == "hf_rounding" || lane.plant == "bf16_logits";
  return rounds ? PrecisionClass::kBf16 : PrecisionClass::kFp32Accumulate;
}

std::vector<ReferencePrompt> short_prompts(const GreedyReference& reference) {
  std::vector<ReferencePrompt> prompts;
  for (const ReferencePrompt& p : reference.prompts) {
    if (p.ids.size() <= kLongestRepeated) prompts.push_back(p);
  }
  return prompts_to_repeat(prompts);
}

// The sweep starts from the first id of the first prompt.
SweepTruth sweep_of(const ModelWeights& weights, Engine& truth, Engine& head_fp32,
                    const GreedyReference& reference, Swept swept) {
  return live_sweep(truth, head_fp32, weights.config.shape.vocab,
                    {reference.prompts.front().ids.front()}, swept.steps, swept.longest,
                    [] { return true; });
}

bool is_control(const FaultLane& lane) {
  return std::any_of(fault_rows().begin(), fault_rows().end(),
                     [&](const FaultRow& row) { return row.id == lane.row && row.control; });
}

LaneOutcome outcome_of(const ParityReport& report) {
  LaneOutcome outcome{.failing = {}, .r_rms = report.r_rms, .note = report.reason};
  for (const CheckResult& check : report.checks) {
    if (check.status == CheckStatus::kFailed) outcome.failing.emplace_back(check_name(check.check));
  }
  return outcome;
}

bool is_probes(Lane lane) { return lane == Lane::kTwinProbes || lane == Lane::kPlainProbes; }

}  // namespace

const LaneRunner::Case& LaneRunner::case_of(const std::string& model) {
  const std::lock_guard guard(mutex_);
  const auto known = cases_.find(model);
  if (known != cases_.end()) return known->second;
  if (model == kFourLayers) return cases_[model] = four_layers_case(nullptr);
  const ModelRow* analytic = find_model(model);
  return cases_[model] =
             is_analytic(analytic) ? four_layers_case(analytic->published) : committed_case(model);
}

LaneRunner::Case LaneRunner::committed_case(const std::string& model) {
  Case c;
  c.weights = load_model(resolve_model(model));
  const auto files = find_references(data_dir(), model);
  if (files.empty()) throw Error(ErrorKind::kInvalidReference, "no reference of " + model);
  c.reference = read_reference(files[0]);
  c.recording = std::make_shared<Recording>(record_truth(c.weights, c.reference));
  const auto head_fp32 = twin(c.weights, PlantedFault::kHfRounding);
  c.sweep =
      sweep_of(c.weights, *make_oracle_engine(c.weights), *head_fp32, c.reference, kTinySwept);
  return c;
}

// Four layers of an analytic checkpoint and a part of its vocabulary, judged live. The truth is the
// oracle, the fp32-head baseline is the host twin that rounds where HF does, and the baseline is
// that twin with logits rounded to bf16.
LaneRunner::Case LaneRunner::four_layers_case(const ShapeRow* shape) {
  constexpr int kSteps = 12;
  Case c;
  if (shape != nullptr) {
    ShapeRow row = *shape;
    row.shape.layers = kFourLayersCount;
    row.shape.vocab = kCutRow.shape.vocab;
    c.weights = make_shared_synthetic(row, "early");
  } else {
    c.weights = make_synthetic("early", 0, kFourLayersCount);
    c.weights.config.shape.vocab = c.weights.embed_tokens.rows = c.weights.lm_head.rows = 4096;
  }
  const int vocab = c.weights.config.shape.vocab;
  std::vector<std::vector<int32_t>> prompts;
  for (const uint64_t length : {1, 7, 24}) {
    std::vector<int32_t> ids;
    for (uint64_t i = 0; i < length; ++i) {
      ids.push_back(
          static_cast<int32_t>(splitmix64(1000 * length + i) % static_cast<uint64_t>(vocab)));
    }
    prompts.push_back(std::move(ids));
  }
  const auto truth = make_oracle_engine(c.weights);
  const auto head_fp32 = twin(c.weights, PlantedFault::kHfRounding);
  const auto baseline = twin(c.weights, PlantedFault::kBf16Logits);
  c.reference = capture_live(*truth, *baseline, *head_fp32, vocab, prompts, kSteps);
  c.sweep = sweep_of(c.weights, *truth, *head_fp32, c.reference, kFourLayersSwept);
  return c;
}

std::unique_ptr<Engine> LaneRunner::engine(const FaultLane& lane, const ModelWeights& weights,
                                           int max_context) const {
  const bool cuda = lane_info(lane.lane).cuda;
  // One thread, because lanes run side by side.
  return source_({.name = !cuda                      ? "host-twin"
                          : lane.lane == Lane::kRing ? "ring"
                                                     : kPlainWithFaults,
                  .max_context = max_context,
                  .fault = fault_of(lane),
                  .cuda = cuda,
                  .gpu = gpu_,
                  .threads = 1},
                 weights);
}

std::unique_ptr<Engine> LaneRunner::twin(const ModelWeights& weights, PlantedFault rounding) const {
  return source_(
      {.name = "host-twin", .max_context = kMaxContext, .fault = rounding, .cuda = false}, weights);
}

LaneOutcome LaneRunner::run_gate(const FaultLane& lane) {
  const Case& c = case_of(std::string(lane.model));
  const auto found = std::find_if(gate_faults().begin(), gate_faults().end(),
                                  [&](const GateFault& fault) { return fault.name == lane.plant; });
  if (found == gate_faults().end()) {
    throw Error(ErrorKind::kRuntime,
                "fault table: no fault of the gate is called '" + std::string(lane.plant) + "'");
  }
  const ModelShape& shape = c.weights.config.shape;
  const auto judge = [&](Engine& engine, const GreedyReference& reference) {
    ParityReport report = judge_parity(engine, reference, options_for(shape));
    Findings findings;
    judge_repeats(engine, short_prompts(reference), shape.vocab, kNoStop, findings);
    findings.conclude(report);
    return report;
  };
  const auto reports = found->run(c.recording, c.reference, judge);
  // At each of its places a fault must fail the same checks.
  LaneOutcome first = outcome_of(reports.at(0));
  for (const ParityReport& report : reports) {
    LaneOutcome other = outcome_of(report);
    if (other.failing != first.failing) return other;
  }
  return first;
}

Ratchet LaneRunner::sound_ratios(const FaultLane& lane, const Case& c) {
  const std::string key = fmt::format("{} {}", lane_info(lane.lane).name, lane.model);
  const std::lock_guard guard(sound_mutex_);
  const auto known = sound_.find(key);
  if (known != sound_.end()) return known->second;
  FaultLane sound = lane;
  sound.plant = "none";
  const std::unique_ptr<Engine> e = engine(sound, c.weights, kMaxContext);
  const ParityReport report = judge_parity(*e, c.reference, options_for(c.weights.config.shape));
  const auto value = [&](Check check) {
    const CheckResult* result = find_check(report, check);
    if (result != nullptr && result->value) return *result->value;
    throw Error(ErrorKind::kRuntime,
                fmt::format("selftest: the engine without a fault has no {} in lane {}",
                            check_name(check), key));
  };
  return sound_[key] = {.rms = value(Check::kRms),
                        .step = value(Check::kStep),
                        .inf = value(Check::kInf),
                        .kl = value(Check::kKl),
                        .repeats_sha256 = ""};
}

LaneOutcome LaneRunner::run_loader(const FaultLane& lane) {
  const Case& c = case_of(std::string(lane.model));
  ModelWeights planted = with_planted_fault(c.weights, fault_of(lane));
  planted.sha256 = hash_weights(planted);
  LaneOutcome outcome;
  try {
    check_reference_weights(c.reference, planted);
  } catch (const Error& error) {
    outcome.failing.emplace_back(check_name(Check::kWeights));
    outcome.note = error.what();
  }
  return outcome;
}

// Judges the engine as the gate judges a candidate. The ratchet holds the ratios of the engine
// without the fault, in place of committed ones. A control is a correct but different kernel, so it
// has no ratchet.
LaneOutcome LaneRunner::run_engine(const FaultLane& lane) {
  const Case& c = case_of(std::string(lane.model));
  const std::unique_ptr<Engine> e = engine(lane, c.weights, kMaxContext);
  ParityOptions options = options_for(c.weights.config.shape);
  options.precision = class_of(lane);
  options.limits = limits_of(options.precision);
  if (!is_control(lane)) {
    const EngineCapabilities can = e->capabilities();
    options.ratchet_key = RatchetKey{.engine = can.name,
                                     .card = card_of(can.device),
                                     .model = c.reference.model_name,
                                     .lagset = "",
                                     .reference_sha256 = c.reference.sha256};
    options.ratchet = sound_ratios(lane, c);
  }
  ParityReport report = judge_parity(*e, c.reference, options);
  Findings findings;
  const std::vector<ReferencePrompt> prompts = short_prompts(c.reference);
  judge_repeats(*e, prompts, options.vocab, kNoStop, findings);
  judge_isolation(
      *e, prompts.front(), prompts.back(), options.vocab,
      [&] { return engine(lane, c.weights, kMaxContext); }, kNoStop, findings);
  judge_sweep(*e, c.sweep, options, {}, findings);
  findings.conclude(report);
  return outcome_of(report);
}

LaneOutcome LaneRunner::run_probes_on(const FaultLane& lane) {
  const Case& c = case_of(std::string(lane.model));
  const auto make = [&](const ModelWeights& weights, int max_context) {
    return engine(lane, weights, max_context);
  };
  Findings findings;
  judge_head(
      c.weights, {c.reference}, false,
      [&](const ModelWeights& weights) { return engine(lane, weights, kMaxContext); }, kNoStop,
      findings);
  ParityReport report;
  findings.conclude(report);
  LaneOutcome outcome = outcome_of(report);
  for (const FailedProbe& probe : run_probes(make, c.weights)) {
    outcome.failing.emplace_back(probe.name);
    if (outcome.note.empty()) outcome.note = probe.reason;
  }
  return outcome;
}

LaneOutcome LaneRunner::run(const FaultLane& lane) {
  // The fault shares memory between engines of all lanes; only one such lane may run at a time.
  std::unique_lock<std::mutex> alone(shared_state_mutex_, std::defer_lock);
  if (lane.lane != Lane::kGate && fault_of(lane) == PlantedFault::kSharedCache) alone.lock();
  try {
    if (lane.lane == Lane::kGate) return run_gate(lane);
    if (lane.lane == Lane::kLoader) return run_loader(lane);
    return is_probes(lane.lane) ? run_probes_on(lane) : run_engine(lane);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInvalidReference ||
        error.kind() == ErrorKind::kUnsupportedDevice)
      throw;
    return {.failing = {"error"}, .r_rms = std::nullopt, .note = error.what()};
  }
}

}  // namespace mkbench
