#include "harness/parent/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "harness/engines/plugin_file.h"
#include "harness/engines/registry.h"
#include "harness/parent/collector.h"
#include "references/base/error.h"
#include "references/config.h"
#include "references/snapshot.h"

namespace mkbench {
namespace {

void choose_device(const Options& options, const nlohmann::json& probe, const std::string& problem,
                   RunPlan& plan) {
  plan.device_text = "cpu";
  if (options.device == DeviceChoice::kCpu) return;
  std::string why = problem.empty() ? "" : "the machine could not be examined: " + problem;
  std::string what_to_do;
  if (probe.is_object()) {
    plan.cuda = probe.value("usable", false);
    why = probe.value("reason", "");
    what_to_do = probe.value("what_to_do", "");
  }
  if (plan.cuda) {
    plan.device_text = probe.value("device", "cuda");
    if (probe.value("other_processes", 0) > 0) {
      plan.warnings.push_back(
          fmt::format("GPU {} is in use by {} other process(es): times will be noisy", options.gpu,
                      probe.value("other_processes", 0)));
    }
    return;
  }
  while (!why.empty() && why.back() == '.') why.pop_back();
  if (options.device == DeviceChoice::kCuda) {
    if (what_to_do.find("--device cpu") == std::string::npos) {
      what_to_do +=
          (what_to_do.empty() ? "" : "; ") + std::string("to run on the CPU: --device cpu");
    }
    throw Error(ErrorKind::kUnsupportedDevice,
                fmt::format("--device cuda: no usable GPU: {}; {}", why, what_to_do));
  }
  plan.banner = fmt::format("NO USABLE GPU ({}): running on the CPU", why);
}

// Why the ring megakernel cannot run a model here, as the probe found it; empty where it can.
std::string ring_obstacle_of(const nlohmann::json& probe, const std::string& model) {
  if (!probe.is_object() || !probe.contains("ring_obstacles")) return "there is no usable GPU";
  return probe["ring_obstacles"].value(model, "it was not asked for this model");
}

// Resolved names, each once: megakernel is ring or plain, whichever can run the job's model.
void choose_engines(const Options& options, const nlohmann::json& probe, RunPlan& plan,
                    CaseJob& job) {
  job.baselines.clear();
  job.candidates.clear();
  job.asked_names.clear();
  // Somebody has to judge parity, also where nobody is compared with.
  job.time_baselines =
      !job.whole_parity && options.compare != std::vector<std::string>{kNoBaseline};
  for (const std::string& name :
       job.time_baselines ? options.compare : std::vector<std::string>{"eager"}) {
    if (std::find(job.baselines.begin(), job.baselines.end(), name) != job.baselines.end())
      continue;
    job.baselines.push_back(name);
    job.asked_names.push_back(name);
  }
  std::vector<std::string> engines = options.engines;
  if (engines.empty()) engines = {plan.cuda ? "megakernel" : "host-twin"};
  const std::string obstacle = ring_obstacle_of(probe, job.model);
  for (const std::string& name : engines) {
    if (is_plugin(name)) check_plugin_file(name);
    const std::string resolved = resolve_engine(name, plan.cuda && obstacle.empty());
    if (plan.cuda && name != resolved && resolved != "ring") {
      plan.notes.push_back(fmt::format("{}: {} is {}: {}", job.model, name, resolved, obstacle));
    }
    if (std::find(job.candidates.begin(), job.candidates.end(), resolved) != job.candidates.end()) {
      plan.warnings.push_back(
          fmt::format("--engine: {} is {} for {} and runs once", name, resolved, job.model));
      continue;
    }
    job.candidates.push_back(resolved);
    job.asked_names.push_back(name);
  }
}

// Where a config says how far a model goes, a longer case is refused before anything is measured.
void check_positions(const CaseJob& job, const ModelSpec& spec) {
  if (spec.kind == ModelSpec::Kind::kSynthetic) return;  // its worker checks
  const ModelConfig config = read_config(spec.folder / "config.json");
  const int64_t tokens = job.n_prompt > 0 ? kPrefillCheckTokens : job.n_gen;
  const int64_t needed = first_depth(job) + tokens;
  if (needed <= config.max_positions) return;
  throw Error(
      ErrorKind::kBadInput,
      fmt::format("case '{}': needs {} positions ({} KV rows and {} tokens), but model {} has "
                  "max_position_embeddings {}",
                  case_name(job), needed, first_depth(job), tokens, job.model,
                  config.max_positions));
}

void add_case(RunPlan& plan, const CaseJob& job, const ModelSpec& spec) {
  check_positions(job, spec);
  plan.jobs.push_back(job);
}

double spin_scale(const Options& options) {
  const char* text = std::getenv("MKBENCH_SPIN_SCALE");
  if (!options.in_process || text == nullptr) return 1;
  char* end = nullptr;
  const double scale = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(scale >= 1 && scale <= 1e9)) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("MKBENCH_SPIN_SCALE: '{}' is not a number in [1, 1e9]", text));
  }
  return scale;
}

}  // namespace

std::vector<std::string> models_of(const Options& options, bool cuda) {
  if (!options.models.empty()) return options.models;
  return cuda ? std::vector<std::string>{"synthetic"}
              : std::vector<std::string>{"tiny", "tiny-untied"};
}

RunPlan plan_run(const Options& options, const nlohmann::json& probe,
                 const std::string& probe_problem) {
  RunPlan plan;
  choose_device(options, probe, probe_problem, plan);
  CaseJob job;
  job.device = plan.cuda ? "cuda" : "cpu";
  job.gpu = options.gpu;
  job.ids = options.ids;
  job.blocks = options.blocks;
  job.max_blocks = options.target_rel_ci > 0 ? options.max_blocks : options.blocks;
  job.warmup = options.warmup;
  job.target_rel_ci = options.target_rel_ci;
  job.random_order = options.random_order;
  job.seed = options.seed;
  job.confidence = options.confidence;
  job.reference_dir = options.reference;
  job.require_reference = options.require_reference;
  job.fault = static_cast<int>(options.fault);
  job.nvtx = static_cast<int>(options.nvtx);
  job.spin_scale = spin_scale(options);
  job.test_worker = options.test_worker;
  job.profile = options.profile;
  job.whole_parity = options.command == Command::kParity;

  const std::vector<std::string> models = models_of(options, plan.cuda);
  for (size_t i = 0; i < models.size(); ++i) {
    const std::string& model = models[i];
    if (std::find(models.begin(), models.begin() + static_cast<std::ptrdiff_t>(i), model) !=
        models.begin() + static_cast<std::ptrdiff_t>(i)) {
      plan.warnings.push_back(fmt::format("--model: {} is given twice and runs once", model));
      continue;
    }
    const ModelSpec spec = resolve_model(model);
    job.model = model;
    choose_engines(options, probe, plan, job);
    if (job.whole_parity) plan.jobs.push_back(job);
    for (const int n_prompt : options.n_prompt) {
      job.n_prompt = n_prompt;
      job.depth = job.n_gen = 0;
      if (n_prompt > 0) add_case(plan, job, spec);
    }
    job.n_prompt = 0;
    for (const int depth : options.n_depth) {
      for (const int n_gen : options.n_gen) {
        job.depth = depth;
        job.n_gen = n_gen;
        add_case(plan, job, spec);
      }
    }
  }
  return plan;
}

}  // namespace mkbench
