#include "harness/host/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "harness/host/text.h"
#include "harness/host/timed_truth.h"
#include "harness/host/trials.h"
#include "harness/judge/findings.h"
#include "harness/report/report.h"
#include "references/snapshot.h"

namespace mkbench {
namespace {

constexpr char kPublishedModel[] = "Qwen3-0.6B";

std::string last_component(const std::string& model) {
  std::filesystem::path path(model);
  if (!path.has_filename()) path = path.parent_path();  // a trailing slash
  return path.filename().string();
}

// What find_references() calls the model.
std::string reference_name(const std::string& model, const ModelShape& shape) {
  if (is_synthetic(model)) return parity_model(model);
  if (is_ours(model)) return model;
  const std::string name = last_component(model);
  const bool published = name == kPublishedModel && shape == kQwen3_0_6B;
  return published ? "qwen3-0.6b" : name;
}

[[noreturn]] void no_reference(const CaseJob& job, const std::string& name) {
  const std::string folder =
      job.reference_dir.empty() ? "the committed references" : job.reference_dir;
  throw Error(ErrorKind::kInvalidReference,
              fmt::format("model {}: found no {}/reference*.json in {}; make one with: python3 "
                          "scripts/capture_reference.py {}",
                          job.model, name, folder, parity_model(job.model)));
}

}  // namespace

CaseReferences find_case_references(const CaseJob& job, const FlowServices& services,
                                    const ModelWeights& weights) {
  const std::string name = reference_name(job.model, weights.config.shape);
  CaseReferences result;
  std::vector<GreedyReference> token_only;
  for (GreedyReference& reference : services.references(name)) {
    if (reference.token_only) {
      // Published ids of the real weights: nobody published a hash of the tensors with them.
      check_reference_weights(reference, weights);
      token_only.push_back(std::move(reference));
      continue;
    }
    check_reference_weights(reference, weights);
    if (is_synthetic(job.model)) check_closed_form(reference, parity_lagset(job.model));
    result.all.push_back(std::move(reference));
  }
  if (result.all.empty()) {
    if (is_ours(job.model) || (job.require_reference && token_only.empty()))
      no_reference(job, name);
    // Published ids alone decide no margin: the truth of these weights is computed besides, unless
    // only committed references may judge.
    result.live = !job.require_reference;
  }
  if (!token_only.empty()) result.all.push_back(merge_token_only(token_only));
  return result;
}

int parity_positions(const CaseReferences& references, const CaseJob& job,
                     const ModelShape& shape) {
  size_t most = 1;
  for (const GreedyReference& reference : references.all) {
    for (const ReferencePrompt& prompt : reference.prompts) {
      most = std::max(most, prompt.ids.size() + prompt.steps.size());
    }
  }
  if (references.live) {
    for (const auto& prompt : live_parity_prompts(job, shape, references.all)) {
      most = std::max(most, prompt.size() + kLiveSteps);
    }
  }
  return static_cast<int>(most);
}

int planned_parity_positions(const CaseJob& job, const FlowServices& services,
                             const ModelShape& shape) {
  CaseReferences references;
  try {
    references.all = services.references(reference_name(job.model, shape));
  } catch (const Error&) {
    return 0;
  }
  references.live =
      !is_ours(job.model) && !job.require_reference &&
      std::all_of(references.all.begin(), references.all.end(),
                  [](const GreedyReference& reference) { return reference.token_only; });
  return parity_positions(references, job, shape);
}

std::unique_ptr<Engine> Gate::make(const std::string& name) {
  return services_.make_engine({.name = name, .max_context = max_context_}, weights_);
}

ParityReport Gate::judge(Engine& engine, const std::string& name, bool is_baseline,
                         bool logits_bf16) {
  const WatchEnd end(watch_);
  watch_.begin("parity", name, &engine);
  const RangeGuard range = services_.range("parity");
  ParityOptions options;
  options.vocab = weights_.config.shape.vocab;
  options.is_baseline = is_baseline;
  options.logits_bf16 = logits_bf16;
  options.layers = weights_.config.shape.layers;
  options.every_row = job_.whole_parity;
  options.text_of = [&](int32_t id) { return token_text(weights_.config.shape, id); };
  options.on_progress = [&](const std::string&, int done, int total) {
    watch_.count(done, total);
    if (services_.stop()) throw Interrupted{};
  };
  std::vector<ParityReport> reports;
  for (const GreedyReference& reference : references_.all) {
    if (!is_baseline) set_ratchet(engine, reference, options);
    reports.push_back(
        judge_parity(engine, is_baseline ? baseline_part(reference) : reference, options));
  }
  engine.audit();
  return join_parity(reports);
}

void Gate::set_ratchet(const Engine& engine, const GreedyReference& reference,
                       ParityOptions& options) const {
  options.ratchet_key.reset();
  options.ratchet.reset();
  if (reference.sha256.empty()) return;  // live
  const EngineCapabilities capabilities = engine.capabilities();
  options.ratchet_key = RatchetKey{.engine = capabilities.name,
                                   .card = card_of(capabilities.device),
                                   .model = reference_name(job_.model, weights_.config.shape),
                                   .lagset = weights_.lagset,
                                   .reference_sha256 = reference.sha256};
  if (services_.ratchet) options.ratchet = services_.ratchet(*options.ratchet_key);
}

void Gate::send_parity(const std::string& engine, const ParityReport& report) {
  sink_.send({{"type", "parity"}, {"engine", engine}, {"parity", parity_to_json(report)}});
}

void Gate::add_live_reference(Engine& baseline) {
  watch_.begin("live reference", kTruthName, nullptr);
  const std::unique_ptr<Engine> truth = make(kTruthName), head_fp32 = make(kHeadFp32Name);
  const WatchEnd end(watch_);
  watch_.begin("live reference", kTruthName, truth.get());
  const ModelShape& shape = weights_.config.shape;
  GreedyReference live =
      capture_live(*truth, baseline, *head_fp32, shape.vocab,
                   live_parity_prompts(job_, shape, references_.all), kLiveSteps);
  live.weights_sha256 = weights_.sha256;
  references_.all.insert(references_.all.begin(), std::move(live));
}

bool Gate::pass_baseline(Contestant& baseline) {
  ParityReport report;
  guard_engine(sink_, baseline, [&] {
    if (references_.live) add_live_reference(*baseline.engine);
    report = judge(*baseline.engine, baseline.name, true, true);
    const bool has_logits = std::any_of(references_.all.begin(), references_.all.end(),
                                        [](const GreedyReference& r) { return !r.token_only; });
    if (has_logits) {
      // B' is B with its last matmul in fp32: the run whose error against T may be a ratio.
      const std::unique_ptr<Engine> head_fp32 = make(kHeadFp32Name);
      const ParityReport ratios = judge(*head_fp32, kHeadFp32Name, true, false);
      report.r_rms = ratios.r_rms;
      report.r_rms_limit = ratios.r_rms_limit;
      for (const CheckResult& check : ratios.checks) merge_check(report.checks, check);
      if (!times_allowed(ratios.verdict)) {
        report.verdict = worst({report.verdict, ratios.verdict});
        report.reason += (report.reason.empty() ? "" : "; ") +
                         ("with the last matmul in fp32: " + ratios.reason);
      }
    }
    send_parity(baseline.name, report);
  });
  if (!baseline.alive) return false;
  if (!times_allowed(report.verdict)) {
    fail_engine(sink_, baseline, Verdict::kInvalidReference,
                fmt::format("the baseline fails the reference: {}: {}",
                            verdict_name(report.verdict), report.reason));
    return false;
  }
  baseline_ = baseline.engine.get();
  baseline.verdict = references_.live ? Verdict::kPassLive : Verdict::kPass;
  send_verdict(sink_, baseline.name, baseline.verdict, "");
  return true;
}

// What the prompts have shown stands, whatever the trials end with: it is sent before they begin,
// and an engine that has failed already is not excused by an error that follows from its fault.
void Gate::run_trials(Trials& trials, Contestant& candidate, ParityReport& report) {
  send_parity(candidate.name, report);
  try {
    trials.run(*candidate.engine, candidate.name,
               repeated_prompts(job_, weights_.config.shape, references_.all), report);
  } catch (const Error& error) {
    const bool fit = error.kind() != ErrorKind::kCuda && error.kind() != ErrorKind::kHang;
    if (times_allowed(report.verdict) || !fit || error.kind() == ErrorKind::kInvalidReference)
      throw;
    report.reason += fmt::format("; then: {}", error.what());
  }
}

void Gate::judge_candidate(Contestant& candidate) {
  guard_engine(sink_, candidate, [&] {
    ParityReport report = judge(*candidate.engine, candidate.name, false, false);
    Trials trials(job_, services_, weights_, max_context_, watch_);
    if (job_.whole_parity) run_trials(trials, candidate, report);
    if (baseline_ != nullptr) {
      trials.localise_failure(*candidate.engine, candidate.name, *baseline_, references_.all,
                              report);
    }
    send_parity(candidate.name, report);
    if (!times_allowed(report.verdict)) {
      fail_engine(sink_, candidate, report.verdict, report.reason);
      return;
    }
    candidate.verdict = references_.live ? Verdict::kPassLive : Verdict::kPass;
    send_verdict(sink_, candidate.name, candidate.verdict, "");
  });
}

}  // namespace mkbench
