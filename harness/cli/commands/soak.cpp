// `mkbench soak`: runs an engine for long under checks that find rare faults, and counts failures.
#include "harness/flow/soak.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "harness/archive/run_folder.h"
#include "harness/cli/plan.h"
#include "harness/cli/progress.h"
#include "harness/device/program_output.h"
#include "harness/engines/plugin_file.h"
#include "harness/flow/soak_steps.h"
#include "harness/hosts/host_services.h"
#include "harness/hosts/machine.h"
#include "harness/hosts/post_mortem.h"
#include "harness/report/known_errors.h"
#include "harness/report/print_stderr.h"
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

// Defaults for options that the command line leaves open.
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

struct SoakSettings : PlanSettings {
  // Absent: the device's default.
  std::optional<int64_t> launches, tokens;
  std::optional<int> context;  // positions of the KV cache
  double minutes = 0;
  bool all_minutes = false;     // even after launches and tokens are reached
  std::optional<int64_t> step;  // if set: repeat only this step
  std::string format;
  std::string out;     // empty: mkbench-report-<time>
  std::string resume;  // folder of an interrupted soak; empty: a new one
};

std::vector<Flag<SoakSettings>> soak_flags() {
  using S = SoakSettings;
  return {
      flag("engine LIST", "The engine, or a path (.so, .py) [megakernel; host-twin on cpu].",
           &PlanSettings::engines, engines_of(kCandidate)),
      python_flag(),
      flag("model LIST", "Model, as for mkbench run [synthetic:cut; tiny on cpu].",
           &PlanSettings::models, parse_path_list),
      flag("seed S=1", "Random seed for all steps: the same seed gives the same steps.",
           &CaseSettings::seed, parse_seed),
      flag("context N",
           "Positions of the KV cache, which the steps fill to the end [4096; 1024 on cpu].",
           &S::context, at_least(kLeastSoakContext)),
      flag("launches N", "Launches to repeat and compare to the bit [100000; 1000 on cpu].",
           &S::launches, at_least<int64_t>(1)),
      flag("tokens N", "Tokens to check, where the right ones are known [1000000; 10000 on cpu].",
           &S::tokens, at_least<int64_t>(1)),
      flag("minutes M=10", "Time limit. INCOMPLETE if launches and tokens are not reached by then.",
           &S::minutes,
           [](std::string_view name, const std::string& text) {
             return parse_number<double>(name, text, 0.01, 1e5,
                                         "a number of minutes of at least 0.01");
           }),
      flag("all-minutes", "Use all of --minutes, even if launches and tokens are reached.",
           &S::all_minutes),
      flag("step N", "Repeat this step alone. A failure names its step.", &S::step,
           at_least<int64_t>(0)),
      flag("out DIR", "New folder for soak.json and soak.md [mkbench-report-<time>].", &S::out),
      flag("resume DIR",
           "Continue the soak in this folder. Refused if engine, model, seed or build differ.",
           &S::resume),
      hidden(flag("plant-fault NAME", "Plant this fault in the engine, to test the soak.",
                  &CaseSettings::fault, parse_fault)),
      format_flag(&S::format),
  };
}

class SoakRun {
 public:
  SoakRun(const SoakSettings& settings, const Invocation& invocation)
      : settings_(settings),
        hosts_(invocation.start_host, settings.timeout_s, on_hang_),
        progress_(settings.quiet, settings.verbose) {
    if (!settings.resume.empty()) go_on_from(settings.resume);
  }

  int execute() {
    remove_stale_snapshots();
    const CaseJob job = plan();
    const HostServices services(job, hosts_);
    // Without a lag set in its name, `synthetic` gets that of short prompts.
    const ModelWeights weights = services.load(job.model, synthetic_min_depth("short"));
    SoakReport report = report_for(job, weights);
    const SoakTruth truth =
        soak_truth(weights, services.references(weights.name), report.identity.context);
    check_context(report.identity, weights, truth);
    if (folder_.empty()) folder_ = make_output_folder(settings_.out);
    const SoakPlan plan{.job = job,
                        .engine = candidate_of(job),
                        .command = shell_text(repeating_words(job, report.identity)),
                        .only_step = settings_.step,
                        .all_minutes = settings_.all_minutes};
    run_soak(plan, services, weights, truth, report, [&](const SoakReport& now) { keep(now); });
    return finish(report);
  }

 private:
  // Options that the command line leaves open are taken from the saved state.
  void go_on_from(const fs::path& folder) {
    state_ = read_state(folder);
    folder_ = folder;
    const SoakIdentity& was = state_->identity;
    if (settings_.engines.empty()) settings_.engines = {was.engine};
    if (settings_.models.empty()) settings_.models = {was.model};
    if (!was_given(settings_, "seed")) settings_.seed = was.seed;
    if (!settings_.context) settings_.context = was.context;
    if (settings_.device == DeviceChoice::kAuto && was.device == "cpu")
      settings_.device = DeviceChoice::kCpu;
    if (settings_.fault == PlantedFault::kNone && was.fault != "none")
      settings_.fault = parse_fault("plant-fault", was.fault);
  }

  // The one case of the soak.
  CaseJob plan() {
    MachineProbe probe;
    if (settings_.device != DeviceChoice::kCpu) {
      const CardCall call{.gpu = settings_.gpu, .models = asked_models(true)};
      probe = probe_of(examine_machine(hosts_, call), settings_.gpu);
    }
    const bool cuda = settings_.device != DeviceChoice::kCpu && probe.usable;
    settings_.models = asked_models(cuda);
    const RunPlan planned = plan_run(settings_, probe);
    for (const std::string& text : planned.notes) say(text);
    if (!planned.banner.empty()) say(fmt::format("*** {} ***", planned.banner));
    return planned.jobs.front();
  }

  std::vector<std::string> asked_models(bool cuda) const {
    if (!settings_.models.empty()) return settings_.models;
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
                          .model = job.model.name,
                          .weights_sha256 = weights.sha256,
                          .device = job.device,
                          .build = build_id(),
                          .seed = settings_.seed,
                          .fault = std::string(planted_fault_name(settings_.fault))};
    identity.context =
        std::min(settings_.context.value_or(otherwise.context), weights.config.max_positions);
    if (is_file_engine(engine.name)) identity.engine_sha256 = sha256_file(engine_path(engine.name));
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
    report.asked_launches = settings_.launches.value_or(otherwise.launches);
    report.asked_tokens = settings_.tokens.value_or(otherwise.tokens);
    report.asked_minutes = settings_.minutes;
    report.one_step = settings_.step.has_value();
    return report;
  }

  // A context needs kLeastSoakContext positions beyond the fewest rows at which the truth holds.
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
    if (settings_.gpu != 0) add("--gpu", std::to_string(settings_.gpu));
    if (!settings_.python.empty()) add("--python", settings_.python);
    if (i.fault != "none") add("--plant-fault", i.fault);
    return words;
  }

  // What cannot be written does not end the soak, whose result is printed at its end.
  void write(const char* name, const std::string& text) {
    try {
      write_text(folder_ / name, text);
      unwritten_.erase(name);
    } catch (const Error& error) {
      if (unwritten_.empty()) say(std::string("warning: ") + error.what());
      unwritten_[name] = error.what();
    }
  }

  void keep(const SoakReport& now) {
    write(kState, dump_readable(soak_json(now)) + "\n");
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
    fmt::print("{}", settings_.format == "json" ? dump_readable(soak_json(report)) + "\n" : text);
    std::fflush(stdout);
    write(kText, text);
    if (report.verdict == Verdict::kInterrupted || report.verdict == Verdict::kIncomplete)
      say(fmt::format("to go on: mkbench soak --resume {}", folder_.string()));
    std::vector<std::string> reasons;
    for (const SoakFailure& failure : report.failures) reasons.push_back(failure.reason);
    for (const auto& [name, why] : unwritten_) {
      say("error: " + why);
      reasons.push_back(why);
    }
    for (const std::string& advice : advice_lines(reasons)) say(advice);
    return report.exit_code != 0 || unwritten_.empty() ? report.exit_code
                                                       : exit_code(Verdict::kRuntimeError);
  }

  void say(const std::string& text) {
    progress_.clear();
    print_stderr("mkbench: {}\n", text);
  }

  SoakSettings settings_;
  fs::path folder_;
  std::map<std::string, std::string> unwritten_;  // files that could not be written, and why
  const OnHang on_hang_ = keep_hangs(folder_, [this](const std::string& text) { say(text); });
  Hosts hosts_;
  ProgressDisplay progress_;
  std::optional<SoakReport> state_;
};

void require_soak_arguments(SoakSettings& settings) {
  const auto one = [](const char* flag, size_t count) {
    if (count <= 1) return;
    bad_usage(fmt::format("--{}: found {} names, wanted one: a soak has one engine and one model",
                          flag, count));
  };
  one("engine", settings.engines.size());
  one("model", settings.models.size());
  if (!settings.resume.empty() && !settings.out.empty())
    bad_usage("--out: a soak continued by --resume writes into its own folder");
  if (!settings.resume.empty() && settings.step)
    bad_usage("--step: one step is repeated by itself, without --resume");
  settings.n_gen = {1};
  settings.n_depth = {0};
  check_plan_settings(settings);
}

int soak_command(const SoakSettings& settings, const Invocation& invocation) {
  return SoakRun(settings, invocation).execute();
}

}  // namespace

CommandRow soak_row() {
  return command_row<SoakSettings>(
      "soak", "let an engine run for long, and count what failed", "",
      flags_of<SoakSettings>(soak_flags(), device_flags(), card_flags(), in_process_flags()),
      require_soak_arguments, soak_command);
}

}  // namespace mkbench
