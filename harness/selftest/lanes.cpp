#include "harness/selftest/lanes.h"

#include <algorithm>

#include "harness/selftest/faulty_engine.h"
#include "harness/selftest/gate_faults.h"
#include "harness/selftest/probes.h"
#include "kernels/host_twin/host_twin.h"
#include "references/error.h"
#include "references/snapshot.h"

namespace mkbench {
namespace {

constexpr int kMaxContext = 1024;

PlantedFault fault_of(const FaultLane& lane) {
  for (const PlantedFaultInfo& info : planted_faults()) {
    if (info.name == lane.plant) return info.fault;
  }
  if (lane.plant == "none") return PlantedFault::kNone;
  throw Error(ErrorKind::kRuntime,
              "fault table: no planted fault is called '" + std::string(lane.plant) + "'");
}

ParityReport judge(Engine& engine, const GreedyReference& reference, const ModelShape& shape) {
  ParityOptions options;
  options.vocab = shape.vocab;
  return judge_parity(engine, reference, options);
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
  Case& c = cases_[model];
  if (!c.recording) {
    c.weights = load_model(resolve_model(model), 0);
    const auto files = find_references(data_dir(), model);
    if (files.empty()) throw Error(ErrorKind::kInvalidReference, "no reference of " + model);
    c.reference = read_reference(files[0]);
    c.recording = std::make_shared<Recording>(record_truth(c.weights, c.reference));
  }
  return c;
}

std::unique_ptr<Engine> LaneRunner::engine(const FaultLane& lane, const ModelWeights& weights,
                                           int max_context) const {
  const PlantedFault fault = fault_of(lane);
  const ModelWeights planted = with_planted_fault(weights, fault);
  std::unique_ptr<Engine> engine;
  if (lane_info(lane.lane).cuda) {
    if (!cuda_) {
      throw Error(ErrorKind::kUnsupportedDevice, "selftest: this lane needs a GPU: --device cuda");
    }
    engine = cuda_(lane.lane == Lane::kRing ? "ring" : "plain", planted, max_context, fault);
  } else {
    // One thread: lanes run side by side.
    engine = make_host_twin(planted, {.max_context = max_context, .threads = 1, .fault = fault});
  }
  return with_fault_around(std::move(engine), fault);
}

LaneOutcome LaneRunner::run_gate(const FaultLane& lane) {
  const Case& c = case_of(std::string(lane.model));
  const auto found = std::find_if(gate_faults().begin(), gate_faults().end(),
                                  [&](const GateFault& fault) { return fault.name == lane.plant; });
  if (found == gate_faults().end()) {
    throw Error(ErrorKind::kRuntime,
                "fault table: no fault of the gate is called '" + std::string(lane.plant) + "'");
  }
  const auto reports = found->run(c.recording, c.reference, [&c](Engine& engine) {
    return judge(engine, c.reference, c.weights.config.shape);
  });
  // Wherever the fault stands, the same checks must fail.
  LaneOutcome first = outcome_of(reports.at(0));
  for (const ParityReport& report : reports) {
    LaneOutcome other = outcome_of(report);
    if (other.failing != first.failing) return other;
  }
  return first;
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

LaneOutcome LaneRunner::run_engine(const FaultLane& lane) {
  const Case& c = case_of(std::string(lane.model));
  const std::unique_ptr<Engine> e = engine(lane, c.weights, kMaxContext);
  return outcome_of(judge(*e, c.reference, c.weights.config.shape));
}

LaneOutcome LaneRunner::run_probes_on(const FaultLane& lane) {
  const Case& c = case_of(std::string(lane.model));
  const auto make = [&](const ModelWeights& weights, int max_context) {
    return engine(lane, weights, max_context);
  };
  LaneOutcome outcome;
  for (const ProbeResult& result : run_probes(make, c.weights)) {
    if (result.passed) continue;
    outcome.failing.emplace_back(result.name);
    if (outcome.note.empty()) outcome.note = result.detail;
  }
  return outcome;
}

LaneOutcome LaneRunner::run(const FaultLane& lane) {
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
