// `mkbench soak`: an engine runs for long under what finds rare faults, and what did not hold is counted.
#include "harness/flow/soak.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "harness/device/program_output.h"
#include "harness/engines/plugin_file.h"
#include "harness/flow/soak_steps.h"
#include "harness/parent/host_services.h"
#include "harness/parent/machine.h"
#include "harness/parent/option_values.h"
#include "harness/parent/option_words.h"
#include "harness/parent/plan.h"
#include "harness/parent/post_mortem.h"
#include "harness/parent/progress.h"
#include "harness/parent/run_folder.h"
#include "harness/report/known_errors.h"
#include "harness/report/render.h"
#include "harness/wire/build_id.h"
#include "references/base/json_strict.h"
#include "references/base/sha256.h"
#include "references/snapshot_folder.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

constexpr char kState[] = "soak.json", kText[] = "soak.md";

// What is asked for where the command line says nothing.
struct SoakDefaults {
  const char* model;
  int context;
  int64_t launches, tokens;
};
constexpr SoakDefaults kCardDefaults{"synthetic:cut", 4096, 100'000, 1'000'000};
constexpr SoakDefaults kCpuDefaults{"tiny", 1024, 1'000, 10'000};

SoakReport read_state(const fs::path& folder) {
  const fs::path path = folder / kState;
  constexpr JsonLimits kLimits{.bytes = 1 << 24, .depth = 16};
  return soak_of_json(read_json_strict(path, kLimits), path.string());
}

class SoakRun {
 public:
  SoakRun(const Options& options, const Invocation& invocation)
      : options_(options),
        hosts_(invocation.start_host, options.timeout_s, on_hang_),
        progress_(options.quiet, options.verbose) {
    if (!options.resume.empty()) go_on_from(options.resume);
  }

  int execute() {
    remove_stale_snapshots();
    const CaseJob job = plan();
    const FlowServices services = make_services(job, hosts_);
    // Plain `synthetic` gets the lag set of short prompts.
    const ModelWeights weights = services.load(job.model, synthetic_min_depth("short"));
    SoakReport report = report_for(job, weights);
    const SoakTruth truth =
        soak_truth(weights, services.references(weights.name), report.identity.context);
    check_context(report.identity, weights, truth);
    if (folder_.empty()) folder_ = make_output_folder(options_.out);
    const SoakPlan plan{.job = job,
                        .engine = candidate_of(job),
                        .command = shell_text(repeating_words(job, report.identity)),
                        .only_step = options_.soak_step,
                        .all_minutes = options_.soak_all_minutes};
    run_soak(plan, services, weights, truth, report, [&](const SoakReport& now) { keep(now); });
    return finish(report);
  }

 private:
  // Options that the command line leaves open are those of the state.
  void go_on_from(const fs::path& folder) {
    state_ = read_state(folder);
    folder_ = folder;
    const SoakIdentity& was = state_->identity;
    if (options_.engines.empty()) options_.engines = {was.engine};
    if (options_.models.empty()) options_.models = {was.model};
    if (!was_given(options_, "seed")) options_.seed = was.seed;
    if (!options_.soak_context) options_.soak_context = was.context;
    if (options_.device == DeviceChoice::kAuto && was.device == "cpu")
      options_.device = DeviceChoice::kCpu;
    if (options_.fault == PlantedFault::kNone && was.fault != "none")
      options_.fault = parse_fault(was.fault);
  }

  // The one case of the soak.
  CaseJob plan() {
    MachineProbe probe;
    if (options_.device != DeviceChoice::kCpu) {
      const CardCall call{.gpu = options_.gpu, .models = asked_models(true)};
      probe = probe_of(examine_machine(hosts_, call), options_.gpu);
    }
    const bool cuda = options_.device != DeviceChoice::kCpu && probe.usable;
    options_.models = asked_models(cuda);
    const RunPlan planned = plan_run(options_, probe);
    for (const std::string& text : planned.notes) say(text);
    if (!planned.banner.empty()) say(fmt::format("*** {} ***", planned.banner));
    return planned.jobs.front();
  }

  std::vector<std::string> asked_models(bool cuda) const {
    if (!options_.models.empty()) return options_.models;
    return {defaults(cuda).model};
  }

  static const SoakDefaults& defaults(bool cuda) { return cuda ? kCardDefaults : kCpuDefaults; }

  static CaseEngine candidate_of(const CaseJob& job) {
    return *std::find_if(job.engines.begin(), job.engines.end(),
                         [](const CaseEngine& e) { return e.candidate; });
  }

  SoakReport report_for(const CaseJob& job, const ModelWeights& weights) {
    const SoakDefaults& otherwise = defaults(job.cuda());
    const CaseEngine engine = candidate_of(job);
    SoakIdentity identity{.engine = engine.name,
                          .engine_sha256 = "",
                          .model = job.model,
                          .weights_sha256 = weights.sha256,
                          .device = job.device,
                          .build = build_id(),
                          .seed = options_.seed,
                          .fault = std::string(planted_fault_name(options_.fault))};
    identity.context =
        std::min(options_.soak_context.value_or(otherwise.context), weights.config.max_positions);
    if (is_file_engine(engine.name)) identity.engine_sha256 = sha256_file(engine.name);
    SoakReport report = state_.value_or(SoakReport{});
    if (state_) {
      if (state_->one_step) {
        throw Error(ErrorKind::kBadInput,
                    fmt::format("--resume {}: found the one step of --step, wanted a whole soak",
                                (folder_ / kState).string()));
      }
      const std::string difference = identity_difference(report.identity, identity);
      if (!difference.empty()) {
        throw Error(ErrorKind::kBadInput,
                    fmt::format("--resume {}: {}: a soak goes on with its own engine, model, seed, "
                                "context and build alone",
                                (folder_ / kState).string(), difference));
      }
    }
    report.identity = identity;
    report.asked_launches = options_.soak_launches.value_or(otherwise.launches);
    report.asked_tokens = options_.soak_tokens.value_or(otherwise.tokens);
    report.asked_minutes = options_.soak_minutes;
    report.one_step = options_.soak_step.has_value();
    return report;
  }

  // Steps need room behind the rows that the truth begins with.
  static void check_context(const SoakIdentity& identity, const ModelWeights& weights,
                            const SoakTruth& truth) {
    const int least = truth.least_rows + kLeastSoakContext;
    if (identity.context >= least) return;
    throw Error(ErrorKind::kBadInput,
                fmt::format("soak: --context: found {} positions, wanted at least {} for {} (which "
                            "has {})",
                            identity.context, least, weights.name, weights.config.max_positions));
  }

  std::vector<std::string> repeating_words(const CaseJob& job, const SoakIdentity& i) const {
    std::vector<std::string> words = {"mkbench",   "soak",
                                      "--device",  job.device,
                                      "--engine",  i.engine,
                                      "--model",   i.model,
                                      "--seed",    std::to_string(i.seed),
                                      "--context", std::to_string(i.context)};
    const auto add = [&](const char* flag, const std::string& value) {
      words.emplace_back(flag);
      words.push_back(value);
    };
    if (options_.gpu != 0) add("--gpu", std::to_string(options_.gpu));
    if (!options_.python.empty()) add("--python", options_.python);
    if (i.fault != "none") add("--plant-fault", i.fault);
    return words;
  }

  void keep(const SoakReport& now) {
    write_text(folder_ / kState, dump_readable(soak_json(now)) + "\n");
    const SoakCount& launches = now.count(SoakCheck::kLaunches);
    progress_.show(
        {.stage = fmt::format("soak, {} failures", now.failures.size()),
         .engine = now.identity.engine,
         .done = static_cast<int>(std::min<int64_t>(launches.looked, now.asked_launches)),
         .total = static_cast<int>(std::min<int64_t>(now.asked_launches, 1 << 30))});
  }

  int finish(const SoakReport& report) {
    progress_.clear();
    const std::string text = render_soak(report);
    write_text(folder_ / kText, text);
    fmt::print("{}", options_.format == "json" ? dump_readable(soak_json(report)) + "\n" : text);
    if (report.verdict == Verdict::kInterrupted || report.verdict == Verdict::kIncomplete)
      say(fmt::format("to go on: mkbench soak --resume {}", folder_.string()));
    std::vector<std::string> reasons;
    for (const SoakFailure& failure : report.failures) reasons.push_back(failure.reason);
    for (const std::string& advice : advice_lines(reasons)) say(advice);
    return report.exit_code;
  }

  void say(const std::string& text) {
    progress_.clear();
    fmt::print(stderr, "mkbench: {}\n", text);
  }

  Options options_;
  fs::path folder_;
  const OnHang on_hang_ = keep_hangs(folder_, [this](const std::string& text) { say(text); });
  Hosts hosts_;
  ProgressDisplay progress_;
  std::optional<SoakReport> state_;
};

}  // namespace

void require_soak_arguments(Options& options) {
  const auto one = [](const char* flag, size_t count) {
    if (count <= 1) return;
    bad_usage(fmt::format("--{}: found {} names, wanted one: a soak has one engine and one model",
                          flag, count));
  };
  one("engine", options.engines.size());
  one("model", options.models.size());
  if (!options.resume.empty() && !options.out.empty())
    bad_usage("--out: a soak that goes on writes into its own folder");
  if (!options.resume.empty() && options.soak_step)
    bad_usage("--step: one step is repeated by itself, without --resume");
  options.n_gen = {1};
  options.n_depth = {0};
}

int soak_command(const Options& options, const Invocation& invocation) {
  return SoakRun(options, invocation).execute();
}

}  // namespace mkbench
