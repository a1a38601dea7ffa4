// `mkbench audit`: shows whether a decode reads all bytes of the weights.
#include "harness/cli/commands/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "harness/archive/run_folder.h"
#include "harness/cli/plan.h"
#include "harness/cli/progress.h"
#include "harness/cli/run_settings.h"
#include "harness/hosts/host_services.h"
#include "harness/hosts/machine.h"
#include "harness/report/render.h"
#include "harness/report/report.h"
#include "references/snapshot_folder.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTilesShown = 8;

nlohmann::json json_of(const EngineAudit& audit) {
  nlohmann::json parts = nlohmann::json::array();
  for (const PartAudit& part : audit.parts) {
    nlohmann::json unread = nlohmann::json::array();
    for (const Tile& tile : part.unread) {
      unread.push_back({{"tensor", tile.tensor.name},
                        {"row", tile.row},
                        {"first_column", tile.first_column},
                        {"last_column", tile.last_column}});
    }
    parts.push_back({{"part", part.part},
                     {"bytes", part.bytes},
                     {"tiles", part.tried},
                     {"silent", part.silent},
                     {"unread", unread},
                     {"ignored", part.ignored},
                     {"unread_share_at_most", part.unread_at_most}});
  }
  nlohmann::json all = {{"engine", audit.engine},
                        {"resolved_name", audit.resolved},
                        {"verdict", verdict_name(audit.verdict)},
                        {"reasons", audit.reasons},
                        {"method", audit.method},
                        {"told_by", audit.shown},
                        {"confidence", kAuditConfidence},
                        {"counters", audit.counters},
                        {"parts", parts}};
  all["counted_share"] = nullptr;
  if (audit.counted_share) {
    all["counted_share"] = {{"dram", audit.counted_share->low},
                            {"dram_and_l2", audit.counted_share->high}};
  }
  return all;
}

nlohmann::json json_of(const std::vector<AuditedCase>& cases, const AuditSettings& settings,
                       const Invocation& invocation, int status) {
  nlohmann::json list = nlohmann::json::array();
  for (const AuditedCase& one : cases) {
    nlohmann::json engines = nlohmann::json::array();
    for (const EngineAudit& audit : one.engines) engines.push_back(json_of(audit));
    list.push_back({{"model", one.job.model.name},
                    {"device", one.job.device},
                    {"n_gen", one.job.n_gen},
                    {"n_depth", one.job.depth},
                    {"engines", engines}});
  }
  return {{"meta", describe_run(settings, invocation.argv, settings.out)},
          {"cases", list},
          {"exit_code", status}};
}

// One line for the kinds that are read, and one for those of which too little can be said.
void print_kinds(const EngineAudit& audit, int tiles) {
  std::vector<std::string> read, silent;
  for (const PartAudit& part : audit.parts) {
    if (part.tried < (part.bytes > 0 ? tiles : 1))
      silent.push_back(part.part);
    else if (part.unread.empty() && part.ignored.empty())
      read.push_back(part.part);
  }
  if (!read.empty()) fmt::print("  read: {}\n", fmt::join(read, ", "));
  if (!silent.empty())
    fmt::print("  not known, too few answers need them: {}\n", fmt::join(silent, ", "));
}

void print_audit(const CaseJob& job, const AuditSettings& settings, const EngineAudit& audit) {
  fmt::print("{} on {} ({}, seed {}): {}", audit.engine, job.device, case_name(job),
             settings.prompt_seed, verdict_name(audit.verdict));
  if (!audit.method.empty()) fmt::print(" by {}", audit.method);
  if (audit.method == "tiles") fmt::print(", told by {}", audit.shown);
  fmt::print("\n");
  for (const std::string& reason : audit.reasons) fmt::print("  {}\n", reason);
  if (!audit.counters.empty() && (audit.reasons.empty() || audit.reasons.front() != audit.counters))
    fmt::print("  counters: {}\n", audit.counters);
  if (settings.by_tensor) return print_kinds(audit, settings.tiles);
  for (const PartAudit& part : audit.parts) {
    fmt::print(
        "  {}, {:.3f} MB: {} tiles, {} not read, {} more without effect (silent); at most {:.2g} % "
        "of the bytes are not read, with {:g} % confidence\n",
        part.part, static_cast<double>(part.bytes) / 1e6, part.tried, part.unread.size(),
        part.silent, 100 * part.unread_at_most, 100 * kAuditConfidence);
    for (size_t i = 0; i < std::min(kTilesShown, part.unread.size()); ++i)
      fmt::print("    not read: {}\n", part.unread[i].name());
  }
}

// A source of random draws that repeats for the same seed.
std::function<uint64_t(uint64_t bound)> seeded(uint64_t seed) {
  return [state = splitmix64(seed)](uint64_t bound) mutable { return splitmix64(state++) % bound; };
}

// The decode whose bytes ncu counts. Its tokens are not checked: tiles and parity do that.
int decode_once(const std::vector<CaseJob>& jobs, Hosts& hosts) {
  for (const CaseJob& job : jobs) {
    const HostServices services(job, hosts);
    const ModelWeights weights = services.load(job.model, job.depth);
    for (const CaseEngine& engine : job.engines) {
      if (engine.candidate) decode_for_counters(job, engine, services, weights);
    }
  }
  return 0;
}

AuditedCase audit_case(const CaseJob& job, const AuditSettings& settings, bool in_process,
                       Hosts& hosts,
                       const std::function<void(const CaseJob&, const EngineAudit&)>& tell) {
  AuditPlan plan{.job = job,
                 .tiles = settings.tiles,
                 .tensors = settings.tensors,
                 .by_tensor = settings.by_tensor};
  // With --in-process, a profiler may already be counting this process. Counters know no tensors.
  plan.counts = job.cuda() && !settings.tiles_only && !settings.by_tensor && !in_process;
  // Called to refuse names that no tensor has.
  parts_with(tile_parts(model_config(job.model), {0}), settings.tensors);
  ProgressDisplay progress(settings.quiet, settings.verbose);
  AuditedCase audited{job, {}};
  for (const CaseEngine& engine : job.engines) {
    if (!engine.candidate) continue;
    const HostServices services(job, hosts, seeded(settings.prompt_seed));
    audited.engines.push_back(
        audit_engine(plan, engine, services, [&](const std::string& name, int done, int total) {
          progress.show({.stage = "tiles", .engine = name, .done = done, .total = total});
        }));
    progress.clear();
    if (tell) tell(job, audited.engines.back());
  }
  return audited;
}

}  // namespace

std::vector<AuditedCase> audit_cases(
    const std::vector<CaseJob>& jobs, const AuditSettings& settings, const Invocation& invocation,
    Hosts& hosts, const std::function<void(const CaseJob&, const EngineAudit&)>& tell) {
  std::vector<AuditedCase> cases;
  for (const CaseJob& job : jobs)
    cases.push_back(audit_case(job, settings, invocation.in_process, hosts, tell));
  return cases;
}

namespace {

std::vector<Flag<AuditSettings>> audit_flags() {
  using A = AuditSettings;
  const auto one_from = [](int least) {
    return [=](std::string_view name, const std::string& text) {
      return std::vector<int>{at_least(least)(name, text)};
    };
  };
  return {
      flag("engine LIST", "Engines to audit, or paths (.so, .py) [megakernel; host-twin on cpu].",
           &PlanSettings::engines, engines_of(kCandidate)),
      python_flag(),
      models_flag(),
      flag("n-gen,n N=32", "Tokens of the audited decode.", &PlanSettings::n_gen, one_from(1)),
      flag("n-depth,d N=0",
           "KV rows before the first audited token. Tiles are tested in a decode that starts at 0 "
           "and is longer by this number.",
           &PlanSettings::n_depth, one_from(0)),
      flag("seed S", "Random seed for tiles, changes and input ids [random, and printed].",
           &CaseSettings::seed, parse_seed),
      flag("tiles N=90",
           "Tiles of weights to change in the layers, and as many in the head. If an engine skips "
           "5 % of either, 90 tiles miss it in one audit of 100.",
           &A::tiles, at_least(1)),
      flag("by-tensor",
           "Try each kind of tensor, the RoPE frequencies and the history, and name those that are "
           "not read. No bytes are counted, and --tiles counts for each kind [3].",
           &A::by_tensor),
      flag("tensors LIST", "Draw tiles only from tensors whose name contains one of these texts.",
           &A::tensors, parse_word_list),
      flag("method auto|tiles=auto",
           "auto = on a GPU bytes counted by ncu; tiles on cpu, or if the bytes are inconclusive.",
           &A::tiles_only, one_of<bool>({{"auto", false}, {"tiles", true}})),
      flag("out DIR", "New folder for audit.json [none].", &A::out),
      hidden(flag("decode-once", "Open each engine, decode once and print nothing. ncu runs this.",
                  &A::decode_once)),
      format_flag(&A::format),
  };
}

void require_audit_arguments(AuditSettings& settings) {
  if (settings.by_tensor && !was_given(settings, "tiles")) settings.tiles = 3;
  check_plan_settings(settings);
  settings.salt = 1 + seeded(settings.prompt_seed)(kSaltBound - 1);  // --seed repeats the audit
}

int audit_command(const AuditSettings& settings, const Invocation& invocation) {
  remove_stale_snapshots();
  Hosts hosts(invocation.start_host, settings.timeout_s);
  MachineProbe probe;
  if (settings.device != DeviceChoice::kCpu) {
    const CardCall call{.gpu = settings.gpu, .models = models_of(settings, true)};
    probe = probe_of(examine_machine(hosts, call), settings.gpu);
  }
  const RunPlan plan = plan_run(settings, probe);
  tell_plan(plan);
  if (settings.decode_once) return decode_once(plan.jobs, hosts);
  fs::path folder;
  if (!settings.out.empty()) folder = make_output_folder(settings.out);
  std::vector<Verdict> verdicts;
  const std::vector<AuditedCase> cases = audit_cases(plan.jobs, settings, invocation, hosts,
                                                     [&](const CaseJob& job, const EngineAudit& e) {
                                                       verdicts.push_back(e.verdict);
                                                       if (settings.format == "md")
                                                         print_audit(job, settings, e);
                                                     });
  const int status = exit_code(worst(verdicts));
  const std::string text = dump_readable(json_of(cases, settings, invocation, status)) + "\n";
  if (settings.format == "json") fmt::print("{}", text);
  if (!folder.empty()) write_text(folder / "audit.json", text);
  return status;
}

}  // namespace

CommandRow audit_row() {
  return command_row<AuditSettings>(
      "audit", "show whether a decode reads all bytes of the weights", "",
      flags_of<AuditSettings>(audit_flags(), device_flags(), card_flags(), in_process_flags()),
      require_audit_arguments, audit_command);
}

}  // namespace mkbench
