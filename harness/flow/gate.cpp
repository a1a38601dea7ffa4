#include "harness/flow/gate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include "harness/flow/text.h"
#include "harness/flow/timed_truth.h"
#include "harness/flow/trials.h"
#include "harness/judge/check_reference.h"
#include "harness/judge/findings.h"
#include "harness/judge/live.h"
#include "harness/judge/repeats.h"
#include "harness/judge/token_only.h"
#include "harness/report/report.h"
#include "references/model_row.h"

namespace mkbench {
namespace {

// The name by which find_references() finds the model's references; empty: it has none. A folder
// named like a built-in model but with another shape gets no committed references.
std::string reference_name(const CaseJob& job, const ModelShape& shape) {
  const ModelRow* row = find_model(job.model.name, shape);
  if (row != nullptr) return std::string(row->parity_set);
  std::string name = model_folder_name(job.model.name);
  if (!job.reference_dir.empty()) return name;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const ModelRow& ours : model_rows()) {
    const std::string_view folder = ours.parity_set.substr(0, ours.parity_set.find(':'));
    if (folder != name) continue;
    return ours.source == ModelSource::kUsers && ours.shape == shape ? name : "";
  }
  return name;
}

// The references of a case before its weights are known; nullopt if they have a defect.
std::optional<CaseReferences> planned_references(const CaseJob& job, const CaseServices& services,
                                                 const ModelShape& shape) {
  CaseReferences references;
  try {
    references.all = services.references(reference_name(job, shape));
  } catch (const Error&) {
    return std::nullopt;
  }
  references.live =
      !has_committed_truth(job.model) && !job.require_reference &&
      std::all_of(references.all.begin(), references.all.end(),
                  [](const GreedyReference& reference) { return reference.token_only; });
  return references;
}

[[noreturn]] void no_reference(const CaseJob& job, const std::string& name) {
  const ModelRow* row = job.model.row;
  if (is_analytic(row) && !has_committed_truth(row)) {
    throw Error(ErrorKind::kInvalidReference,
                fmt::format("model {}: no references are committed for this shape; omit "
                            "--require-reference to compute one in this run",
                            job.model.name));
  }
  const bool ours = has_committed_truth(row);
  const size_t colon = name.find(':');
  const std::string folder = name.substr(0, colon);
  const std::string file = colon == std::string::npos
                               ? "reference.json"
                               : fmt::format("reference-{}.json", name.substr(colon + 1));
  std::string found = "no reference", command = parity_model(job.model).name;
  if (ours) found = fmt::format("no {}/{} in the committed references", folder, file);
  if (!job.reference_dir.empty()) {
    found = fmt::format("no {}/reference*.json in {}", folder, job.reference_dir);
    command += fmt::format(" --out {}/{}/{}", job.reference_dir, folder, file);
  }
  if (!ours) command += " --prompt \"some text\" --steps 64";
  throw Error(ErrorKind::kInvalidReference,
              fmt::format("model {}: found {}; make one with: python3 "
                          "scripts/capture_reference.py {}",
                          job.model.name, found, command));
}

}  // namespace

CaseReferences find_case_references(const CaseJob& job, const CaseServices& services,
                                    const ModelWeights& weights) {
  const ModelRow* row = job.model.row;
  const std::string name = reference_name(job, weights.config.shape);
  CaseReferences result;
  std::vector<GreedyReference> token_only;
  for (GreedyReference& reference : services.references(name)) {
    // A reference of ids alone may lack a hash of its weights; the check accepts that.
    check_reference_weights(reference, weights);
    if (reference.token_only) {
      token_only.push_back(std::move(reference));
      continue;
    }
    if (is_analytic(row))
      check_closed_form(reference, parity_lagset(*row), weights.config.shape.vocab);
    result.all.push_back(std::move(reference));
  }
  if (result.all.empty()) {
    if (has_committed_truth(job.model) || (job.require_reference && token_only.empty()))
      no_reference(job, name);
    // A reference of ids alone has no margins, so the truth of these weights is made too, unless
    // only committed references may judge.
    result.live = !job.require_reference;
  }
  if (!token_only.empty()) result.all.push_back(merge_token_only(token_only));
  return result;
}

FittingReferences references_within(const std::vector<GreedyReference>& references, int positions) {
  FittingReferences fitting;
  for (const GreedyReference& reference : references) {
    GreedyReference part = reference;
    std::erase_if(part.prompts, [&](const ReferencePrompt& prompt) {
      // Repeats and isolation decode this many steps after any prompt.
      const size_t steps = std::max(prompt.steps.size(), size_t{kRepeatSteps});
      const bool fits = prompt.ids.size() - 1 + steps <= static_cast<size_t>(positions);
      if (!fits) fitting.left_out.push_back(prompt.name);
      return !fits;
    });
    if (!part.prompts.empty()) fitting.all.push_back(std::move(part));
  }
  return fitting;
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

int planned_parity_positions(const CaseJob& job, const CaseServices& services,
                             const ModelShape& shape) {
  const auto references = planned_references(job, services, shape);
  return references ? parity_positions(*references, job, shape) : 0;
}

bool plans_live_truth(const CaseJob& job, const CaseServices& services, const ModelShape& shape) {
  const auto references = planned_references(job, services, shape);
  return references && references->live;
}

CaseShapes planned_shapes(const CaseJob& job, const CaseServices& services, const ModelShape& shape,
                          bool timed) {
  std::set<int> lengths, prefills;
  const auto add = [&](int rows, int steps) {
    if (rows > 0) prefills.insert(rows);
    for (int t = 1; t <= steps; ++t) lengths.insert(rows + t);
  };
  if (timed && !job.whole_parity)
    add(first_depth(job), job.n_prompt > 0 ? kPrefillCheckTokens : job.n_gen);
  if (job.whole_parity && job.only_prompt.empty()) add(0, kNeededLengths);
  const auto references = job.judged ? std::nullopt : planned_references(job, services, shape);
  if (references) {
    for (const GreedyReference& reference : references->all) {
      for (const ReferencePrompt& prompt : reference.prompts) {
        if (job.only_prompt.empty() || prompt.name == job.only_prompt)
          add(static_cast<int>(prompt.ids.size()) - 1, static_cast<int>(prompt.steps.size()));
      }
    }
    if (references->live) {
      for (const auto& prompt : live_parity_prompts(job, shape, references->all))
        add(static_cast<int>(prompt.size()) - 1, kLiveSteps);
    }
  }
  return {static_cast<int>(lengths.size()), static_cast<int>(prefills.size())};
}

std::unique_ptr<Engine> Gate::make(const std::string& name) {
  return services_.make_engine({.name = name, .max_context = max_context_}, weights_);
}

ParityOptions Gate::options_for(const Engine& engine, const std::string& name) const {
  ParityOptions options;
  options.precision = precision_of(name, engine.capabilities());
  options.limits = limits_of(options.precision);
  if (weights_.config.routes && options.precision != PrecisionClass::kLossy) {
    options.limits.step = options.limits.sweep = 0;
    options.unlimited = "at a near tie of its routers a right engine takes another expert";
  }
  options.vocab = weights_.config.shape.vocab;
  options.logits_bf16 = rounds_logits(name);
  options.layers = weights_.config.shape.layers;
  options.every_row = job_.whole_parity;
  options.text_of = [this](int32_t id) {
    return token_text(weights_.config.shape, references_.all, id);
  };
  options.one_prompt = !job_.only_prompt.empty();
  return options;
}

// Adds to `report` even if the engine fails. `budget`: null for the baseline, whose own gate has no
// time budget.
void Gate::judge(Engine& engine, const std::string& name, const FittingReferences& references,
                 ParityOptions options, const TimeBudget* budget, ParityReport& report) {
  const WatchEnd end(watch_);
  watch_.begin("parity", name, &engine);
  const RangeGuard range = services_.range("parity");
  options.on_progress = [&](const std::string&, int done, int total) {
    watch_.count(done, total);
    if (services_.stop()) throw Interrupted{};
    if (budget != nullptr && done < total) budget->check();
  };
  std::vector<ParityReport> reports;
  conclude_however_it_ends(
      [&] {
        for (const GreedyReference& reference : references.all) {
          // A ratchet is of all prompts.
          if (!options.is_baseline && references.left_out.empty())
            set_ratchet(engine, reference, options);
          reports.emplace_back();
          judge_parity(engine, options.is_baseline ? baseline_part(reference) : reference, options,
                       reports.back());
        }
      },
      [&] {
        report = join_parity(reports);
        if (!references.left_out.empty()) report.logits_sha256.clear();
      });
  engine.audit();
}

ParityReport Gate::judge_baseline(Engine& engine, const std::string& name) {
  ParityOptions options = options_for(engine, name);
  options.is_baseline = true;
  options.free_runs = !run_of(name).of_judge();  // of that run only the error ratios are wanted
  ParityReport report;
  judge(engine, name, {references_.all, {}}, options, nullptr, report);
  return report;
}

void Gate::set_ratchet(const Engine& engine, const GreedyReference& reference,
                       ParityOptions& options) const {
  options.ratchet_key.reset();
  options.ratchet.reset();
  if (reference.sha256.empty()) return;  // a live reference has no ratchet
  const EngineCapabilities capabilities = engine.capabilities();
  options.ratchet_key = RatchetKey{.engine = capabilities.name,
                                   .card = card_of(capabilities.device),
                                   .model = reference_name(job_, weights_.config.shape),
                                   .lagset = weights_.lagset,
                                   .reference_sha256 = reference.sha256};
  options.ratchet = services_.ratchet(*options.ratchet_key);
}

// Sets the ratchet of the reference whose prompts are repeated.
void Gate::set_first_ratchet(const Engine& engine, ParityOptions& options) const {
  const auto first = std::find_if(references_.all.begin(), references_.all.end(),
                                  [](const GreedyReference& r) { return !r.token_only; });
  if (first != references_.all.end()) set_ratchet(engine, *first, options);
}

void Gate::send_parity(const std::string& engine, const ParityReport& report) {
  sink_.send(ParityJudged{engine, report});
  sink_.send(MemoryHeld{services_.held_bytes()});
}

std::unique_ptr<Engine> Gate::add_live_reference(Engine& judge) {
  watch_.begin("live reference", runs_.truth, nullptr);
  const std::unique_ptr<Engine> truth = make(runs_.truth);
  std::unique_ptr<Engine> head_fp32 = make(runs_.head_fp32);
  const WatchEnd end(watch_);
  watch_.begin("live reference", runs_.truth, truth.get());
  const ModelShape& shape = weights_.config.shape;
  GreedyReference live =
      capture_live(*truth, judge, *head_fp32, shape.vocab,
                   live_parity_prompts(job_, shape, references_.all), kLiveSteps);
  live.weights_sha256 = weights_.sha256;
  if (const std::string settings = services_.facts(*truth).settings; !settings.empty())
    live.versions = fmt::format("{}: {}", runs_.truth, settings);
  if (!weights_.lagset.empty())
    references_.live_check = live_check_text(live, weights_.lagset, shape.vocab);
  references_.all.insert(references_.all.begin(), std::move(live));
  return head_fp32;
}

bool Gate::pass_judge(Contestant& contestant) {
  ParityReport report;
  guard_engine(sink_, contestant, [&] {
    // Stays open until the findings are sent, because the memory in use is read at that moment.
    std::unique_ptr<Engine> head_fp32;
    if (references_.live) head_fp32 = add_live_reference(*contestant.engine);
    report = judge_baseline(*contestant.engine, contestant.name);
    const bool has_logits = std::any_of(references_.all.begin(), references_.all.end(),
                                        [](const GreedyReference& r) { return !r.token_only; });
    if (has_logits) {
      // The judge's own logits are rounded to bf16, so they give no meaningful error ratio. The
      // ratios come from the judge's run with the last matmul in fp32.
      if (!head_fp32) head_fp32 = make(runs_.head_fp32);
      const ParityReport ratios = judge_baseline(*head_fp32, runs_.head_fp32);
      report.r_rms = ratios.r_rms;
      report.r_rms_limit = ratios.r_rms_limit;
      for (const CheckResult& check : ratios.checks) {
        // The report's rows are the judge's own, and so are their flips.
        if (check.check != Check::kFlips) merge_check(report.checks, check);
      }
      if (!times_allowed(ratios.verdict)) {
        report.verdict = worst({report.verdict, ratios.verdict});
        report.reason += (report.reason.empty() ? "" : "; ") +
                         ("with the last matmul in fp32: " + ratios.reason);
      }
    }
    send_parity(contestant.name, report);
  });
  if (!contestant.alive) return false;
  if (!times_allowed(report.verdict)) {
    fail_engine(sink_, contestant, Verdict::kInvalidReference,
                fmt::format("the baseline fails the reference: {}: {}",
                            verdict_name(report.verdict), report.reason));
    return false;
  }
  judge_ = contestant.engine.get();
  contestant.verdict = references_.live ? Verdict::kPassLive : Verdict::kPass;
  sink_.send(VerdictGiven{contestant.name, contestant.verdict, ""});
  return true;
}

// Judges the prompts; `mkbench parity` then runs the trials. The report of the prompts is sent
// before the trials begin, so it stands however they end. If the verdict is proven already, a later
// error (a hang, a crash) is only added to its reason.
void Gate::judge_within(TimeBudget& budget, Trials& trials, Contestant& contestant,
                        const FittingReferences& references, ParityReport& report) {
  ParityOptions options = options_for(*contestant.engine, contestant.name);
  try {
    judge(*contestant.engine, contestant.name, references, options, &budget, report);
    if (job_.whole_parity && job_.only_prompt.empty()) {
      send_parity(contestant.name, report);
      if (references.left_out.empty()) set_first_ratchet(*contestant.engine, options);
      trials.run(*contestant.engine, contestant.name, references.all, options, report);
    }
  } catch (const Error& error) {
    const bool proven = !times_allowed(report.verdict) && report.verdict != Verdict::kIncomplete;
    const bool left_behind = error.kind() == ErrorKind::kIntegrity;  // found between its calls
    if (error.kind() == ErrorKind::kInvalidReference || !(proven || left_behind)) throw;
    if (!proven) {
      Findings findings;
      findings.fail(Check::kIsolation, Verdict::kIntegrity, error.what());
      return findings.conclude(report);
    }
    report.reason += fmt::format("; then: {}", error.what());
  }
  if (!references.left_out.empty())
    report.coverage +=
        fmt::format("{}left out, too long for its max_context: prompt {}",
                    report.coverage.empty() ? "" : "; ", fmt::join(references.left_out, ", "));
  if (report.verdict == Verdict::kIncomplete && budget.left() <= 0) {
    report.reason = fmt::format("the time budget of {:g} s (--time-budget) ended; reached: {}",
                                budget.seconds(), report.reason);
  }
}

void Gate::judge_engine(Contestant& contestant) {
  guard_engine(sink_, contestant, [&] {
    const int room = contestant.engine->capabilities().max_context;
    const FittingReferences references = references_within(references_.all, room);
    if (references.all.empty())
      throw Error(ErrorKind::kBadInput,
                  fmt::format("engine {}: no prompt of the references fits into its max_context of "
                              "{} positions",
                              contestant.name, room));
    services_.take_turn(*contestant.engine);
    ParityReport report;
    TimeBudget budget(job_.time_budget_s, clock_of(services_));
    Trials trials(job_, services_, weights_, max_context_, watch_, budget, live_sweep_);
    judge_within(budget, trials, contestant, references, report);
    const JudgedText text = judged_text(references_.all, report.rows);
    report.text_prompt = text.prompt;
    report.text = text.continuation;
    if (judge_ != nullptr) {
      trials.localise_failure(*contestant.engine, contestant.name, *judge_, references_.all,
                              report);
    }
    send_parity(contestant.name, report);
    if (!times_allowed(report.verdict)) {
      fail_engine(sink_, contestant, report.verdict, report.reason);
      return;
    }
    services_.end_turn(*contestant.engine);
    contestant.verdict = references_.live ? Verdict::kPassLive : Verdict::kPass;
    sink_.send(VerdictGiven{contestant.name, contestant.verdict, ""});
  });
}

}  // namespace mkbench
