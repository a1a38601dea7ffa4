// `mkbench audit`: shows whether a decode reads all bytes of the weights.
#include "harness/parent/commands/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "harness/device/ncu.h"
#include "harness/parent/host_services.h"
#include "harness/parent/machine.h"
#include "harness/parent/plan.h"
#include "harness/parent/progress.h"
#include "harness/parent/run_folder.h"
#include "harness/report/render.h"
#include "harness/report/report.h"
#include "references/base/data_root.h"
#include "references/snapshot_folder.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTilesShown = 8;

// This run's own program, which holds all engines, as ncu is to run it.
std::vector<std::string> one_decode(const CaseJob& job, const std::string& engine,
                                    const Options& options) {
  const fs::path all = program_folder() / "mkbench-all";
  return {all.string(),   "audit",
          "--in-process", "--decode-once",
          "--device",     job.device,
          "--gpu",        std::to_string(job.gpu),
          "--engine",     engine,
          "--model",      job.model,
          "--n-gen",      std::to_string(job.n_gen),
          "--n-depth",    std::to_string(job.depth),
          "--seed",       std::to_string(options.prompt_seed),
          "--timeout",    fmt::format("{}", options.timeout_s),
          "--quiet"};
}

std::function<ByteCounts(const std::string&)> counters_of(const CaseJob& job,
                                                          const Options& options) {
  return [&job, &options](const std::string& engine) {
    const std::string ncu = find_ncu();
    if (ncu.empty()) {
      ByteCounts none;
      none.problem = "ncu (Nsight Compute) is neither on PATH nor beside the toolkit";
      return none;
    }
    return count_with_ncu(ncu, one_decode(job, engine, options), options.timeout_s);
  };
}

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

nlohmann::json json_of(const std::vector<AuditedCase>& cases, const Options& options,
                       const Invocation& invocation, int status) {
  nlohmann::json list = nlohmann::json::array();
  for (const AuditedCase& one : cases) {
    nlohmann::json engines = nlohmann::json::array();
    for (const EngineAudit& audit : one.engines) engines.push_back(json_of(audit));
    list.push_back({{"model", one.job.model},
                    {"device", one.job.device},
                    {"n_gen", one.job.n_gen},
                    {"n_depth", one.job.depth},
                    {"engines", engines}});
  }
  return {{"meta", describe_run(options, invocation.argv, options.out)},
          {"cases", list},
          {"exit_code", status}};
}

void print_audit(const CaseJob& job, uint64_t seed, const EngineAudit& audit) {
  fmt::print("{} on {} ({}, seed {}): {}", audit.engine, job.device, case_name(job), seed,
             verdict_name(audit.verdict));
  if (!audit.method.empty()) fmt::print(" by {}", audit.method);
  if (audit.method == "tiles") fmt::print(", told by {}", audit.shown);
  fmt::print("\n");
  for (const std::string& reason : audit.reasons) fmt::print("  {}\n", reason);
  if (!audit.counters.empty() && (audit.reasons.empty() || audit.reasons.front() != audit.counters))
    fmt::print("  counters: {}\n", audit.counters);
  for (const PartAudit& part : audit.parts) {
    fmt::print(
        "  {}, {:.3f} MB: {} tiles, {} not read, {} silent; at most {:.2g} % of the bytes are "
        "not read, with {:g} % confidence\n",
        part.part, static_cast<double>(part.bytes) / 1e6, part.tried, part.unread.size(),
        part.silent, 100 * part.unread_at_most, 100 * kAuditConfidence);
    for (size_t i = 0; i < std::min(kTilesShown, part.unread.size()); ++i)
      fmt::print("    not read: {}\n", part.unread[i].name());
  }
}

// Draws that a seed repeats.
std::function<uint64_t(uint64_t bound)> seeded(uint64_t seed) {
  return [state = splitmix64(seed)](uint64_t bound) mutable { return splitmix64(state++) % bound; };
}

// What ncu counts. Its answer is not looked at: tiles and parity are for that.
int decode_once(const std::vector<CaseJob>& jobs, Hosts& hosts) {
  for (const CaseJob& job : jobs) {
    const FlowServices services = make_services(job, hosts);
    const ModelWeights weights = services.load(job.model, job.depth);
    for (const CaseEngine& engine : job.engines) {
      if (engine.candidate) decode_for_counters(job, engine, services, weights);
    }
  }
  return 0;
}

void tell_plan(const RunPlan& plan) {
  for (const std::string& text : plan.warnings) fmt::print(stderr, "mkbench: warning: {}\n", text);
  for (const std::string& text : plan.notes) fmt::print(stderr, "mkbench: {}\n", text);
  if (!plan.banner.empty()) fmt::print(stderr, "mkbench: *** {} ***\n", plan.banner);
}

AuditedCase audit_case(const CaseJob& job, const Options& options, bool in_process,
                       int64_t l2_bytes, Hosts& hosts,
                       const std::function<void(const CaseJob&, const EngineAudit&)>& tell) {
  AuditPlan plan{.job = job, .tiles = options.tiles, .tensors = options.tensors};
  plan.l2_bytes = l2_bytes;
  // In one process with the engines, a profiler may count this run already.
  if (job.cuda() && !options.tiles_only && !in_process) plan.count = counters_of(job, options);
  FlowServices services = make_services(job, hosts);
  const ModelWeights weights = services.load(job.model, job.depth);
  parts_with(tile_parts(weights.config, {0}), options.tensors);  // refuses names that no tensor has
  ProgressDisplay progress(options.quiet, options.verbose);
  AuditedCase audited{job, {}};
  for (const CaseEngine& engine : job.engines) {
    if (!engine.candidate) continue;
    services.random = seeded(options.prompt_seed);
    audited.engines.push_back(audit_engine(
        plan, engine, services, weights, [&](const std::string& name, int done, int total) {
          progress.show({.stage = "tiles", .engine = name, .done = done, .total = total});
        }));
    progress.clear();
    if (tell) tell(job, audited.engines.back());
  }
  return audited;
}

}  // namespace

std::vector<AuditedCase> audit_cases(
    const std::vector<CaseJob>& jobs, const Options& options, const Invocation& invocation,
    int64_t l2_bytes, Hosts& hosts,
    const std::function<void(const CaseJob&, const EngineAudit&)>& tell) {
  std::vector<AuditedCase> cases;
  for (const CaseJob& job : jobs)
    cases.push_back(audit_case(job, options, invocation.in_process, l2_bytes, hosts, tell));
  return cases;
}

int audit_command(const Options& options, const Invocation& invocation) {
  remove_stale_snapshots();
  Hosts hosts(invocation.start_host, options.timeout_s);
  MachineProbe probe;
  if (options.device != DeviceChoice::kCpu) {
    const CardCall call{.gpu = options.gpu, .models = models_of(options, true)};
    probe = probe_of(examine_machine(hosts, call), options.gpu);
  }
  const RunPlan plan = plan_run(options, probe);
  tell_plan(plan);
  if (options.decode_once) return decode_once(plan.jobs, hosts);
  fs::path folder;
  if (!options.out.empty()) folder = make_output_folder(options.out);
  std::vector<Verdict> verdicts;
  const std::vector<AuditedCase> cases =
      audit_cases(plan.jobs, options, invocation, probe.l2_bytes, hosts,
                  [&](const CaseJob& job, const EngineAudit& e) {
                    verdicts.push_back(e.verdict);
                    if (options.format == "md") print_audit(job, options.prompt_seed, e);
                  });
  const int status = exit_code(worst(verdicts));
  const std::string text = dump_readable(json_of(cases, options, invocation, status)) + "\n";
  if (options.format == "json") fmt::print("{}", text);
  if (!folder.empty()) write_text(folder / "audit.json", text);
  return status;
}

}  // namespace mkbench
