// `mkbench audit`: shows whether a decode reads all bytes of the weights.
#include "harness/flow/audit.h"

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
#include "references/snapshot_folder.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTilesShown = 8;

struct AuditedCase {
  CaseJob job;
  std::vector<EngineAudit> engines;
};

// This run's own program, which holds all engines, as ncu is to run it.
std::vector<std::string> one_decode(const CaseJob& job, const std::string& engine,
                                    const Options& options) {
  const fs::path all = fs::read_symlink("/proc/self/exe").parent_path() / "mkbench-all";
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

void print_audit(const EngineAudit& audit) {
  fmt::print("{}: {}", audit.engine, verdict_name(audit.verdict));
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
  return [state = seed](uint64_t bound) mutable { return splitmix64(state++) % bound; };
}

class Audit {
 public:
  Audit(const Options& options, const Invocation& invocation)
      : options_(options),
        invocation_(invocation),
        hosts_(invocation.start_host, options.timeout_s),
        progress_(options.quiet, options.verbose) {}

  int run() {
    remove_stale_snapshots();
    MachineProbe probe;
    if (options_.device != DeviceChoice::kCpu) {
      const CardCall call{.gpu = options_.gpu, .models = models_of(options_, true)};
      probe = probe_of(examine_machine(hosts_, call), options_.gpu);
    }
    const RunPlan plan = plan_run(options_, probe);
    tell(plan);
    if (options_.decode_once) return decode_once(plan.jobs);
    fs::path folder;
    if (!options_.out.empty()) folder = make_output_folder(options_.out);
    std::vector<Verdict> verdicts;
    for (const CaseJob& job : plan.jobs) {
      cases_.push_back(audit_case(job, probe.l2_bytes));
      for (const EngineAudit& audit : cases_.back().engines) verdicts.push_back(audit.verdict);
    }
    progress_.clear();
    const int status = exit_code(worst(verdicts));
    const nlohmann::json all = json_of(cases_, options_, invocation_, status);
    if (options_.format == "json") fmt::print("{}\n", dump_readable(all));
    if (!folder.empty()) write_text(folder / "audit.json", dump_readable(all) + "\n");
    return status;
  }

 private:
  void tell(const RunPlan& plan) const {
    for (const std::string& text : plan.warnings)
      fmt::print(stderr, "mkbench: warning: {}\n", text);
    for (const std::string& text : plan.notes) fmt::print(stderr, "mkbench: {}\n", text);
    if (!plan.banner.empty()) fmt::print(stderr, "mkbench: *** {} ***\n", plan.banner);
  }

  // What ncu counts. Its answer is not looked at: the tiles and parity are for that.
  int decode_once(const std::vector<CaseJob>& jobs) {
    for (const CaseJob& job : jobs) {
      const FlowServices services = make_services(job, hosts_);
      const ModelWeights weights = services.load(job.model, job.depth);
      for (const CaseEngine& engine : job.engines) {
        if (engine.candidate) decode_for_counters(job, engine, services, weights);
      }
    }
    return 0;
  }

  AuditedCase audit_case(const CaseJob& job, int64_t l2_bytes) {
    AuditPlan plan{.job = job, .tiles = options_.tiles, .tensors = options_.tensors};
    plan.l2_bytes = l2_bytes;
    // In one process with the engines this may be a decode that ncu already counts.
    if (job.cuda() && !options_.tiles_only && !invocation_.in_process)
      plan.count = counters_of(job, options_);
    FlowServices services = make_services(job, hosts_);
    const ModelWeights weights = services.load(job.model, job.depth);
    const bool printed = options_.format == "md";
    if (printed)
      fmt::print("audit of {} on {}, seed {}\n", case_name(job), job.device, options_.prompt_seed);
    AuditedCase audited{job, {}};
    for (const CaseEngine& engine : job.engines) {
      if (!engine.candidate) continue;
      services.random = seeded(options_.prompt_seed);
      audited.engines.push_back(audit_engine(
          plan, engine, services, weights, [&](const std::string& name, int done, int total) {
            progress_.show({.stage = "tiles", .engine = name, .done = done, .total = total});
          }));
      progress_.clear();
      if (printed) print_audit(audited.engines.back());
    }
    return audited;
  }

  const Options& options_;
  const Invocation& invocation_;
  Hosts hosts_;
  ProgressDisplay progress_;
  std::vector<AuditedCase> cases_;
};

}  // namespace

int audit_command(const Options& options, const Invocation& invocation) {
  return Audit(options, invocation).run();
}

}  // namespace mkbench
