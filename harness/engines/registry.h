// The table of engines: one row each, constants only. Command line, list, plan, doctor and the
// hosts read it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "references/engine_maker.h"

namespace mkbench {

// Which program can make an engine.
enum class HostKind { kCuda, kTorch, kPython };

// An engine may be in several of these roles.
enum Role : unsigned {
  kCandidate = 1,  // --engine: judged and timed
  kYardstick = 2,  // --compare: a speed-up is quoted against it
  kJudge = 4,      // parity compares candidates with it (the baseline)
  kCeiling = 8,    // timed beside the others; only reads what they must read
};

struct EngineRow {
  std::string_view name;
  std::string_view help;        // one line
  std::string_view settings{};  // pinned library settings, one line; empty: none
  HostKind host;
  PrecisionClass precision;
  unsigned roles;           // bits of Role
  std::string_view file{};  // the Python file that makes it, below data_root(); empty for others
  bool cuda = false, cpu = false;  // the devices that it can run on
  bool compiles = false;  // its code is compiled when it is first opened, which may take minutes

  bool runs_on(bool on_cuda) const { return on_cuda ? cuda : cpu; }
};

// Every built-in engine. Engines that are files (paths that end in .so or .py) have no row.
std::span<const EngineRow> engine_rows();
// Null for a name without a row.
const EngineRow* find_engine(std::string_view name);
// True if an engine rounds its logits to bf16. Engines without a row are assumed to keep fp32.
bool rounds_logits(std::string_view name);
// The class of an engine's row; without a row, the class that the engine claims.
PrecisionClass precision_of(std::string_view name, const EngineCapabilities& told);
// The names of the rows with `role`, in the table's order.
std::vector<std::string> engine_names(Role role);
// The kind of the host that holds an engine.
HostKind host_kind(const std::string& engine);

// --compare none: the judge still judges, but is not timed, and no speed-up is quoted.
inline constexpr char kNoBaseline[] = "none";
// The engines that judge parity (the baseline): eager, and hf where transformers computes the truth.
inline constexpr char kJudgeName[] = "eager", kHfName[] = "hf", kHfStaticName[] = "hf-static";
// The other engines' speeds are quoted as shares of this one's. It has no ids: it is never judged.
inline constexpr char kCeilingName[] = "ceiling";
// Two more runs of a judge: the truth (all in fp32), and the run with an fp32 head (only the last
// matmul in fp32).
inline std::string truth_run(const std::string& judge) { return judge + "-fp32"; }
inline std::string head_fp32_run(const std::string& judge) { return judge + "-head-fp32"; }

inline constexpr char kRingName[] = "ring";
// "megakernel" resolves to ring if ring can run, else to plain. All other names resolve to
// themselves.
inline constexpr char kMegakernel[] = "megakernel";
std::string resolve_engine(const std::string& name, bool ring_runs);

// The candidate of a run without --engine. `outline`: of a model that only transformers computes.
std::string default_engine(bool cuda, bool outline = false);

// The engine that makes the run `name`, and its arithmetic: a judge's for truth_run() and
// head_fp32_run(), else the engine `name` in its own.
struct EngineRun {
  std::string engine;
  EngineRequest::Precision precision = EngineRequest::Precision::kOwn;
  bool of_judge() const { return precision != EngineRequest::Precision::kOwn; }
};
EngineRun run_of(const std::string& name);
// The request as the engine's host takes it: in the run's arithmetic, and by the path of the Python
// file of the engine's row where there is one.
EngineRequest in_host(EngineRequest request);

}  // namespace mkbench
