#include "harness/archive/builds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "harness/archive/version_parts.h"
#include "harness/engines/plugin_file.h"
#include "harness/judge/comparisons.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

// The subfolder of a build folder that holds its engines.
constexpr char kEngines[] = "engines";

TimeRatio ratio_of(const PairedSpeedup& s, double confidence) {
  TimeRatio ratio{.ratio = s.speedup > 0 ? 1 / s.speedup : 0, .ci = {}};
  if (s.ci) ratio.ci = Interval{1 / s.ci->high, 1 / s.ci->low};
  ratio.base_processes = ratio.head_processes = s.processes;
  if (s.ci && s.processes > 1) {
    ratio.scatter = std::log(s.ci->high / s.ci->low) / 2 / t_quantile(confidence, s.processes - 1) *
                    std::sqrt(s.processes);
  }
  return ratio;
}

RatioIntervals paired_intervals(const EngineReport& base, const EngineReport& head,
                                double confidence) {
  const std::vector<PairedBlocks> blocks = paired_blocks(base.samples, head.samples);
  const auto at = [&](double level) { return ratio_of(paired_speedup(blocks, level, {}), level); };
  // An interval over the blocks of one process says nothing about other processes.
  RatioIntervals found{at(confidence), at(std::max(confidence, kRegressionConfidence))};
  if (found.usual.base_processes < 2) found.usual.ci = found.strict.ci = {};
  return found;
}

// The name of HEAD's engine to compare with `engine`; empty if `engine` does not belong to BASE.
std::string partner_of(const std::string& engine, const std::string& base,
                       const std::string& head) {
  if (is_file_engine(base)) return engine == base ? head : "";
  const fs::path file = engine;
  return file.parent_path() == fs::path(base) / kEngines
             ? (fs::path(head) / kEngines / file.filename()).string()
             : "";
}

const EngineReport* candidate_named(const CaseReport& c, const std::string& name) {
  for (const EngineReport& e : c.engines) {
    if (gates(e) && e.name == name) return &e;
  }
  return nullptr;
}

void add_pairs(const CaseReport& c, const std::string& base, const std::string& head,
               VersionGate& gate) {
  for (const EngineReport& e : c.engines) {
    const std::string name = gates(e) ? partner_of(e.name, base, head) : "";
    const EngineReport* other = name.empty() ? nullptr : candidate_named(c, name);
    if (other == nullptr) continue;
    VersionRow row = row_for(c, *other);
    row.engine = is_file_engine(base) ? other->name : fs::path(e.name).stem().string();
    row.base_ms = mean_ms(e);
    row.head_ms = mean_ms(*other);
    if (both_have_times(e, *other, row)) {
      row.relative.reason = "both were timed in the same blocks";
      const RatioIntervals ratio = paired_intervals(e, *other, gate.confidence);
      set_ratio(ratio.usual, row);
      judge_times(e, *other, ratio, nullptr, gate, row);
    }
    gate.rows.push_back(std::move(row));
  }
}

}  // namespace

std::string exported_engine(const std::string& build, const std::string& name) {
  const fs::path file = fs::path(build) / kEngines / (name + ".so");
  std::error_code error;
  if (!fs::is_regular_file(file, error)) {
    throw Error(
        ErrorKind::kBadInput,
        fmt::format("compare: {}: found nothing, wanted the engine {} of a build of mkbench; "
                    "a build folder is, for example, build/release",
                    file.string(), name));
  }
  return file.string();
}

VersionGate gate_builds(const Report& report, const std::string& base, const std::string& head,
                        const GateLimits& limits) {
  VersionGate gate;
  gate.base = side_of(report, base);
  gate.head = side_of(report, head);
  // The report's commit belongs to the mkbench that timed the builds, not to the builds.
  gate.base.git_sha.clear();
  gate.head.git_sha.clear();
  const SpeedMargin margin = recorded_margin(report.calibration);
  begin_gate(report, margin, limits, gate);
  for (const CaseReport& c : report.cases) add_pairs(c, base, head, gate);
  conclude_gate(gate);
  return gate;
}

}  // namespace mkbench
