#include "harness/flow/only.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/engines/plugin_file.h"
#include "harness/flow/text.h"
#include "harness/judge/diagnosis.h"
#include "harness/judge/facts.h"
#include "harness/judge/ratios.h"
#include "references/base/error.h"
#include "references/base/sha256.h"
#include "references/model_row.h"

namespace mkbench {
namespace {

ParityReport report_of(const FailedStep& step, PrecisionClass precision) {
  ParityReport report;
  report.precision = precision_class_name(precision);
  report.verdict = verdict_of(step, limits_of(precision).step);
  report.steps = 1;
  ParityRow row;
  row.prompt = step.prompt;
  row.set = "only";
  row.position = step.position;
  row.reference_id = step.expected;
  row.engine_id = step.found;
  if (!step.expected_top.empty()) row.reference_text = step.expected_top.front().text;
  for (const ScoredId& scored : step.found_top) {
    if (scored.id == step.found) row.engine_text = scored.text;
  }
  row.verdict = step.verdict;
  row.margin = step.margin;
  report.rows.push_back(row);
  report.exact = step.verdict == StepVerdict::kExact;
  report.ties = step.verdict == StepVerdict::kTie;
  report.wrong = step.verdict == StepVerdict::kWrong;
  report.failed_step = step;
  if (report.verdict == Verdict::kPass) return report;
  report.reason = fmt::format(
      "prompt '{}' position {}: found {}, wanted {}; logit error {:.3g}, the "
      "baseline's {:.3g}",
      step.prompt, step.position, step.found, step.expected, step.error_norm,
      step.baseline_error_norm);
  return report;
}

// Throws Error(kBadInput), which lists the known prompts and positions.
[[noreturn]] void refuse_only(const CaseJob& job, const std::string& asked,
                              const std::vector<GreedyReference>& references) {
  std::vector<std::string> known;
  for (const GreedyReference& reference : references) {
    for (const ReferencePrompt& prompt : reference.prompts) {
      if (!prompt.steps.empty()) {
        known.push_back(fmt::format("'{}' {}-{}", prompt.name, prompt.steps.front().position,
                                    prompt.steps.back().position));
      }
    }
  }
  const std::string prompts =
      known.empty() ? "the model has no reference"
                    : fmt::format(
                          "wanted one of the prompts and positions {}, or a file of a "
                          "report's folder failures",
                          fmt::join(known, ", "));
  throw Error(ErrorKind::kBadInput,
              fmt::format("--only: model {}: found no {}, {}", job.model.name, asked, prompts));
}

}  // namespace

FoundStep find_step(const std::vector<GreedyReference>& references, const std::string& name,
                    int position) {
  for (const GreedyReference& reference : references) {
    for (const ReferencePrompt& prompt : reference.prompts) {
      if (prompt.name != name) continue;
      for (size_t t = 0; t < prompt.steps.size(); ++t) {
        if (prompt.steps[t].position == position) return {&reference, &prompt, static_cast<int>(t)};
      }
    }
  }
  return {};
}

ReplayOptions replay_options(double pairwise_d, const std::string& engine, const ModelShape& shape,
                             const std::vector<GreedyReference>& references) {
  return {
      .vocab = shape.vocab,
      .layers = shape.layers,
      .pairwise_d = pairwise_d,
      .logits_bf16 = rounds_logits(engine),
      .text_of = [shape, &references](int32_t id) { return token_text(shape, references, id); }};
}

void name_step(const CaseJob& job, const ModelWeights& weights, const std::string& engine,
               bool committed, FailedStep& step) {
  step.engine = engine;
  if (is_file_engine(engine)) step.engine_sha256 = sha256_file(engine_path(engine));
  step.model = is_analytic(job.model.row) ? weights.name : job.model.name;
  step.weights_sha256 = weights.sha256;
  if (job.model.truth == Truth::kTransformers && !job.model.is_outline) step.truth = "transformers";
  if (job.model.dequantised) step.truth = "dequantised";
  step.salt = weights.salt;
  if (committed) {
    step.command = fmt::format("mkbench parity --device {} --model {} --engine {} --only '{}:{}'",
                               job.device, job.model.name, engine, step.prompt, step.position);
  }
}

int only_positions(const CaseJob& job, const std::vector<GreedyReference>& references) {
  const FailedStep& only = *job.only;
  if (!only.prompt_ids.empty()) {
    const int prompt_rows = static_cast<int>(only.prompt_ids.size()) - 1;
    return std::max(only.position, prompt_rows + only.free_tokens) + 1;
  }
  if (find_step(references, only.prompt, only.position).prompt != nullptr) return only.position + 1;
  refuse_only(job, fmt::format("step '{}:{}'", only.prompt, only.position), references);
}

void keep_prompt(const CaseJob& job, std::vector<GreedyReference>& references) {
  std::vector<GreedyReference> kept = references;
  for (GreedyReference& reference : kept) {
    std::erase_if(reference.prompts, [&](const ReferencePrompt& prompt) {
      return prompt.name != job.only_prompt || prompt.steps.empty();
    });
  }
  std::erase_if(kept, [](const GreedyReference& reference) { return reference.prompts.empty(); });
  if (kept.empty()) refuse_only(job, fmt::format("prompt '{}'", job.only_prompt), references);
  references = std::move(kept);
}

void run_only(const CaseJob& job, const CaseServices& services, const ModelWeights& weights,
              const std::vector<GreedyReference>& references, int max_context,
              std::vector<Contestant>& contestants, const std::function<void(Contestant&)>& make,
              ProgressWatch& watch, EventSink& sink) {
  if (!job.only->weights_sha256.empty() && job.only->weights_sha256 != weights.sha256) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("--only: weights_sha256: found {} in the file, wanted {} of model {}",
                            job.only->weights_sha256, weights.sha256, job.model.name));
  }
  const FoundStep found = find_step(references, job.only->prompt, job.only->position);
  const bool by_name = job.only->prompt_ids.empty();
  const ReferencePrompt prompt = by_name ? *found.prompt : prompt_of(*job.only);
  const int step = by_name ? found.step : static_cast<int>(prompt.steps.size()) - 1;
  Contestant& judge = *std::find_if(contestants.begin(), contestants.end(),
                                    [](const Contestant& c) { return c.judges; });
  make(judge);
  const std::unique_ptr<Engine> truth =
      services.make_engine({.name = truth_run(judge.name), .max_context = max_context}, weights);
  const WatchEnd end(watch);
  for (Contestant& c : contestants) {
    if (!c.candidate) continue;
    guard_engine(sink, c, [&] {
      make(c);
      watch.begin("one step", c.name, c.engine.get());
      ReplayOptions options =
          replay_options(by_name ? found.reference->pairwise_d : job.only->pairwise_d, c.name,
                         weights.config.shape, references);
      options.free_tokens = job.only->free_tokens;
      options.late_id = job.only->late_id;
      options.error_limit = job.only->error_limit;
      LastStep last;
      const LocaliseEngines engines{*c.engine, *truth, *judge.engine};
      FailedStep failed = replay_step(engines, prompt, step, options, &last);
      name_step(job, weights, c.name, by_name, failed);
      ParityReport report = report_of(failed, precision_of(c.name, c.engine->capabilities()));
      if (report.verdict != Verdict::kPass) {
        static_cast<FailureDetails&>(report) =
            details_of(engines, std::move(failed), last, options, clock_of(services));
      }
      sink.send(ParityJudged{c.name, report});
      if (report.verdict == Verdict::kPass)
        sink.send(VerdictGiven{c.name, Verdict::kPass, ""});
      else
        fail_engine(sink, c, report.verdict, report.reason);
    });
    watch.end();
    c.engine.reset();
  }
}

}  // namespace mkbench
