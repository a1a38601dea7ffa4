#include "harness/cli/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "harness/archive/builds.h"
#include "harness/engines/plugin_file.h"
#include "harness/engines/registry.h"
#include "harness/flow/replication.h"
#include "harness/measure/sample.h"
#include "harness/report/print_stderr.h"
#include "references/base/error.h"
#include "references/config.h"
#include "references/model_row.h"
#include "references/outline.h"
#include "references/snapshot.h"

namespace mkbench {
namespace {

void choose_device(const PlanSettings& settings, const MachineProbe& probe, RunPlan& plan) {
  plan.device_text = "cpu";
  if (settings.device == DeviceChoice::kCpu) return;
  plan.cuda = probe.usable;
  if (plan.cuda) {
    plan.device_text = probe.device;
    return;
  }
  std::string why = probe.reason, what_to_do = probe.what_to_do;
  while (!why.empty() && why.back() == '.') why.pop_back();
  if (settings.device == DeviceChoice::kCuda) {
    if (what_to_do.find("--device cpu") == std::string::npos) {
      what_to_do +=
          (what_to_do.empty() ? "" : "; ") + std::string("to run on the CPU: --device cpu");
    }
    throw Error(ErrorKind::kUnsupportedDevice,
                fmt::format("--device cuda: no usable GPU: {}; {}", why, what_to_do));
  }
  plan.banner = fmt::format("NO USABLE GPU ({}): running on the CPU", why);
}

// Warns, before any time is spent, if times taken now cannot support a verdict.
void warn_of_conditions(const PlanSettings& settings, const MachineProbe& probe, RunPlan& plan) {
  if (settings.whole_parity) return;
  std::vector<std::string> why = probe.host_unfit;
  if (plan.cuda) why.insert(why.end(), probe.card_unfit.begin(), probe.card_unfit.end());
  if (why.empty()) return;
  plan.warnings.push_back(
      fmt::format("this machine is not fit for a verdict on times: {}", fmt::join(why, "; ")));
}

// Why the ring megakernel cannot run a model here, according to the probe; empty if it can.
std::string ring_obstacle_of(const MachineProbe& probe, const std::string& model) {
  if (!probe.usable) return "there is no usable GPU";
  const auto found = probe.ring_obstacles.find(model);
  return found != probe.ring_obstacles.end() ? found->second : "the probe left this model out";
}

// Warns if nobody has measured ring's pace for the job's model on this card.
void warn_of_pace(const PlanSettings& settings, const MachineProbe& probe, const CaseJob& job,
                  RunPlan& plan) {
  const auto pace = probe.ring_paces.find(job.model.name);
  if (settings.tune || settings.whole_parity || !has_engine(job, kRingName) ||
      pace == probe.ring_paces.end() || !pace->second.ends_with("not measured"))
    return;
  plan.warnings.push_back(
      fmt::format("{}: ring's pace on this card is predicted, not measured: mkbench run --tune "
                  "measures it first (0.6B: within a minute)",
                  job.model.name));
}

// Refuses --tune where it would measure nothing.
void check_tune(const PlanSettings& settings, const RunPlan& plan) {
  const auto runs_ring = [](const CaseJob& job) { return has_engine(job, kRingName); };
  if (!settings.tune || (plan.cuda && std::any_of(plan.jobs.begin(), plan.jobs.end(), runs_ring)))
    return;
  throw Error(
      ErrorKind::kBadInput,
      "--tune: found no case with ring on a GPU, whose pace it measures: add --engine ring "
      "and a model that ring runs, or leave --tune out; mkbench doctor says what is missing");
}

// Adds the judge, then the yardsticks. The judge is needed even with --compare none. `mkbench
// parity` has no --compare, and so no yardstick. eager does not compute an outline: hf takes its place.
void choose_yardsticks(const PlanSettings& settings, RunPlan& plan, CaseJob& job) {
  const std::string judge = job.model.truth == Truth::kTransformers ? kHfName : kJudgeName;
  job.engines = {{.name = judge, .asked = judge, .judges = true}};
  for (std::string name : settings.compare) {
    if (name == kNoBaseline) continue;
    if ((job.model.is_outline || job.model.dequantised) && name == kJudgeName) {
      plan.notes.push_back(
          fmt::format("{}: {} does not compute {}: {} is the baseline", job.model.name, name,
                      job.model.is_outline ? "this model" : "with an engine's weights", judge));
      name = judge;
    }
    const auto known = std::find_if(job.engines.begin(), job.engines.end(),
                                    [&](const CaseEngine& e) { return e.name == name; });
    if (known != job.engines.end()) {
      known->yardstick = true;
    } else {
      job.engines.push_back({.name = name, .asked = name, .yardstick = true});
    }
  }
}

// The two files of every engine that `mkbench compare` times.
std::vector<std::string> engines_of_builds(const PlanSettings& settings,
                                           const std::vector<std::string>& engines, bool ring) {
  if (is_file_engine(settings.builds[0])) return settings.builds;
  std::vector<std::string> files;
  for (const std::string& name : engines) {
    for (const std::string& build : settings.builds)
      files.push_back(exported_engine(build, resolve_engine(name, ring)));
  }
  return files;
}

// Adds each candidate once, by its resolved name: megakernel becomes ring if ring can run the job's
// model, else plain.
void choose_candidates(const PlanSettings& settings, const MachineProbe& probe, RunPlan& plan,
                       CaseJob& job) {
  std::vector<std::string> engines = settings.engines;
  if (engines.empty()) engines = {default_engine(plan.cuda, job.model.is_outline)};
  const std::string obstacle = ring_obstacle_of(probe, job.model.name);
  if (!settings.builds.empty())
    engines = engines_of_builds(settings, engines, plan.cuda && obstacle.empty());
  for (const std::string& name : engines) {
    if (is_file_engine(name)) check_plugin_file(name);
    const std::string resolved = resolve_engine(name, plan.cuda && obstacle.empty());
    if (plan.cuda && name == kMegakernel && !obstacle.empty()) {
      plan.notes.push_back(
          fmt::format("{}: {} is {}: {}", job.model.name, name, resolved, obstacle));
    }
    const bool again =
        std::any_of(job.engines.begin(), job.engines.end(),
                    [&](const CaseEngine& e) { return e.candidate && e.name == resolved; });
    if (again) {
      plan.warnings.push_back(
          fmt::format("--engine: {} is {} (for {}), which was named before: it runs once", name,
                      resolved, job.model.name));
      continue;
    }
    job.engines.push_back({.name = resolved, .asked = name, .candidate = true});
  }
}

// Refuses a model that only a truth in Python judges where that is not chosen or there is no choice,
// and options that do not go with such a truth.
void check_truth(const PlanSettings& settings, const Model& model) {
  if (settings.truth == TruthChoice::kMkbench && model.row == nullptr &&
      is_foreign_model(model.folder))
    throw Error(ErrorKind::kBadInput,
                fmt::format("--model {}: transformers alone computes it, and is its truth in "
                            "`mkbench run` and `mkbench parity` (--truth auto)",
                            model.name));
  if (model.truth != Truth::kTransformers) return;
  // Captured references may judge it.
  const bool kept = !model.dequantised && is_foreign_model(model.folder);
  const bool by_name = settings.only && settings.only->prompt_ids.empty();
  const char* wrong = settings.in_process                   ? "--in-process"
                      : !settings.reference_dir.empty()     ? "--reference"
                      : settings.require_reference && !kept ? "--require-reference"
                      : by_name && !kept                    ? "--only"
                                                            : nullptr;
  if (wrong == nullptr) return;
  throw Error(ErrorKind::kBadInput,
              fmt::format("{}: not with --model {}, whose truth transformers computes in a process "
                          "of its own",
                          wrong, model.name));
}

// The truth's weights are those of one engine, and hf computes with them too.
void check_dequantised(const CaseJob& job) {
  if (!job.model.dequantised) return;
  std::vector<std::string> candidates, others;
  for (const CaseEngine& engine : job.engines) {
    if (engine.candidate) {
      candidates.push_back(engine.asked);
    } else if (engine.name != kHfName && engine.name != kHfStaticName) {
      others.push_back(engine.asked);
    }
  }
  if (candidates.size() == 1 && others.empty()) return;
  throw Error(
      ErrorKind::kBadInput,
      fmt::format("--truth dequantised: found --engine {}{}{}, wanted one engine, whose weights "
                  "are the truth's, and beside it hf and hf-static alone",
                  fmt::join(candidates, ","), others.empty() ? "" : " and --compare ",
                  fmt::join(others, ",")));
}

// What the model's format is compared with, if that was asked for.
std::optional<Model> original_of(const PlanSettings& settings, const Model& model) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::kBadInput, fmt::format("--original {}: {}", settings.original, why));
  };
  if (settings.original.empty()) {
    if (model.dequantised) return model;
    if (settings.max_kl > 0)
      throw Error(
          ErrorKind::kBadInput,
          "--max-kl: found neither --original nor --truth dequantised, wanted one: the KL is "
          "between a quantised model and what it was made of");
    return std::nullopt;
  }
  if (model.truth != Truth::kTransformers)
    refuse(fmt::format(
        "mkbench computes the truth of --model {}; with --truth transformers the cost of "
        "a format is told",
        model.name));
  Model original;
  int found = 0;
  try {
    original = resolve_model(settings.original, TruthChoice::kAuto);
    found = model_config(original).shape.vocab;
  } catch (const Error& error) {
    refuse(error.what());
  }
  if (original.folder.empty()) refuse("is made in memory, wanted a folder with weights");
  if (original.folder == model.folder && !model.dequantised)
    refuse("is --model itself, wanted the model that it was made of");
  const int wanted = model_config(model).shape.vocab;
  if (found != wanted)
    refuse(fmt::format("found a vocabulary of {}, wanted {} as of --model {}", found, wanted,
                       model.name));
  return original;
}

// Refuses engines that have no code for an outline, before the judge is loaded.
void check_outline(const CaseJob& job) {
  if (!job.model.is_outline) return;
  for (const CaseEngine& engine : job.engines) {
    if (host_kind(engine.name) == HostKind::kPython || is_plugin(engine.name)) continue;
    throw Error(
        ErrorKind::kBadInput,
        fmt::format("--model {}: transformers alone computes it, and engine {} does not run "
                    "it: name hf-static, or an engine of your own, in Python or a library (.so)",
                    job.model.name, engine.name));
  }
}

// Refuses, before anything is measured, a case that needs more positions than the model has.
void check_positions(const CaseJob& job) {
  if (is_analytic(job.model.row)) return;  // the host checks these after making their weights
  const ModelConfig config = model_config(job.model);
  const int64_t tokens = job.n_prompt > 0 ? kPrefillCheckTokens : job.n_gen;
  const int64_t needed = first_depth(job) + tokens;
  if (needed <= config.max_positions) return;
  throw Error(
      ErrorKind::kBadInput,
      fmt::format("case '{}': needs {} positions ({} KV rows and {} tokens), but model {} has "
                  "max_position_embeddings {}",
                  case_name(job), needed, first_depth(job), tokens, job.model.name,
                  config.max_positions));
}

// Why the ceiling cannot be timed in a case; empty if it can.
std::string no_ceiling(const MachineProbe& probe, const CaseJob& job, bool in_process) {
  if (!job.cuda()) return "no GPU";
  if (job.whole_parity || job.only) return "nothing is timed";
  if (job.n_prompt > 0) return "a prefill test does not read the weights once a token";
  if (in_process) return "--in-process: times are not those of a run";
  if (job.model.is_outline) return "";  // the case looks, once it knows what a step reads
  const int64_t bytes = model_config(job.model).bytes_per_step(first_depth(job));
  return served_from_l2(static_cast<double>(bytes), static_cast<double>(probe.l2_bytes));
}

void add_case(const MachineProbe& probe, bool in_process, CaseJob& job, RunPlan& plan) {
  check_positions(job);
  job.no_ceiling = no_ceiling(probe, job, in_process);
  // One process gives no interval to judge by.
  job.observed = job.n_prompt == 0 && job.processes > 1;
  job.audited =
      job.cuda() && !in_process && !job.only && job.n_prompt == 0 && !job.model.is_outline;
  plan.jobs.push_back(job);
}

double spin_scale(bool in_process) {
  const char* text = std::getenv("MKBENCH_SPIN_SCALE");
  if (!in_process || text == nullptr) return 1;
  char* end = nullptr;
  const double scale = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(scale >= 1 && scale <= 1e9)) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("MKBENCH_SPIN_SCALE: '{}' is not a number in [1, 1e9]", text));
  }
  return scale;
}

}  // namespace

std::vector<std::string> models_of(const PlanSettings& settings, bool cuda) {
  if (!settings.models.empty()) return settings.models;
  const ModelSource source = cuda ? ModelSource::kAnalytic : ModelSource::kCommitted;
  std::vector<std::string> names;
  for (const ModelRow& row : model_rows()) {
    // Other families run only when named: with them the default run on a CPU takes twice as long.
    if (row.source == source && row.lagset.empty() && row.shape.has_qwen3_layers() &&
        has_committed_truth(&row))
      names.emplace_back(row.name);
  }
  return names;
}

RunPlan plan_run(const PlanSettings& settings, const MachineProbe& probe) {
  RunPlan plan;
  choose_device(settings, probe, plan);
  warn_of_conditions(settings, probe, plan);
  const bool in_process = settings.in_process, replicates = plan.cuda && !in_process;
  CaseJob job;
  static_cast<CaseSettings&>(job) = settings;
  // `mkbench parity` times no prompt; with prompt_seed fixed, its sweep starts alike in every run.
  if (job.whole_parity) job.prompt_seed = job.seed;
  job.device = plan.cuda ? "cuda" : "cpu";
  job.gpu = settings.gpu;
  job.l2_bytes = plan.cuda ? probe.l2_bytes : 0;
  job.processes = settings.processes.value_or(replicates ? kGpuProcesses : 1);
  job.blocks_by_time = replicates && !settings.blocks;
  job.blocks = settings.blocks.value_or(std::max(kDefaultBlocks, job.processes));
  job.max_blocks = job.target_rel_ci > 0 ? settings.max_blocks : job.blocks;
  job.warmup_by_time = job.blocks_by_time && !settings.warmup;
  job.warmup = settings.warmup.value_or(kDefaultWarmup);
  job.spin_scale = spin_scale(in_process);
  job.one_at_a_time = settings.resident == Resident::kOne;
  job.may_open_one = settings.resident == Resident::kAuto;
  if (plan.cuda && probe.exclusive && settings.resident == Resident::kAuto) {
    job.one_at_a_time = true;
    plan.notes.push_back(
        fmt::format("GPU {} is in compute mode EXCLUSIVE_PROCESS: one engine is "
                    "open at a time (--resident one)",
                    settings.gpu));
  }
  if (!settings.only_prompt.empty()) {
    plan.warnings.push_back(
        fmt::format("--only {0}: ids alone are judged, because the limits of logits hold for all "
                    "prompts together; a step with its logits: --only {0}:POSITION",
                    settings.only_prompt));
  }

  const std::vector<std::string> models = models_of(settings, plan.cuda);
  for (size_t i = 0; i < models.size(); ++i) {
    const std::string& model = models[i];
    if (std::find(models.begin(), models.begin() + static_cast<std::ptrdiff_t>(i), model) !=
        models.begin() + static_cast<std::ptrdiff_t>(i)) {
      plan.warnings.push_back(fmt::format("--model: {} is given twice and runs once", model));
      continue;
    }
    job.model = resolve_model(model, settings.truth);
    check_truth(settings, job.model);
    job.original = original_of(settings, job.model);
    choose_yardsticks(settings, plan, job);
    choose_candidates(settings, probe, plan, job);
    check_outline(job);
    check_dequantised(job);
    warn_of_pace(settings, probe, job, plan);
    job.no_ceiling = no_ceiling(probe, job, in_process);
    if (job.whole_parity) plan.jobs.push_back(job);
    for (const int n_prompt : settings.n_prompt) {
      job.n_prompt = n_prompt;
      job.depth = job.n_gen = 0;
      if (n_prompt > 0) add_case(probe, in_process, job, plan);
    }
    job.n_prompt = 0;
    for (const int depth : settings.n_depth) {
      for (const int n_gen : settings.n_gen) {
        job.depth = depth;
        job.n_gen = n_gen;
        add_case(probe, in_process, job, plan);
      }
    }
  }
  check_tune(settings, plan);
  return plan;
}

void tell_plan(const RunPlan& plan) {
  for (const std::string& text : plan.warnings) print_stderr("mkbench: warning: {}\n", text);
  for (const std::string& text : plan.notes) print_stderr("mkbench: {}\n", text);
  if (!plan.banner.empty()) print_stderr("mkbench: *** {} ***\n", plan.banner);
}

}  // namespace mkbench
