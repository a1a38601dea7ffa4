// The table of engines: one row each, constants only. Command line, list, plan, doctor and the
// hosts read it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "references/engine.h"

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
// How an engine's host knows it: by the path of its row's Python file if there is one, else by name.
std::string name_in_host(const std::string& engine);

// --compare none: the judge still judges, but is not timed, and no speed-up is quoted.
inline constexpr char kNoBaseline[] = "none";
// The engine that judges parity (the baseline).
inline constexpr char kJudgeName[] = "eager";
// The other engines' speeds are quoted as shares of this one's. It has no ids: it is never judged.
inline constexpr char kCeilingName[] = "ceiling";
// Two more runs of the judge: the truth (all in fp32), and the run with an fp32 head (only the last
// matmul in fp32).
inline constexpr char kTruthName[] = "eager-fp32";
inline constexpr char kHeadFp32Name[] = "eager-head-fp32";

inline constexpr char kRingName[] = "ring";
// "megakernel" resolves to ring if ring can run, else to plain. All other names resolve to
// themselves.
inline constexpr char kMegakernel[] = "megakernel";
std::string resolve_engine(const std::string& name, bool ring_runs);

// The candidate of a run without --engine.
std::string default_engine(bool cuda);

// The engine that makes the run `name`: the judge for the truth and for the run with an fp32 head,
// else the engine `name`.
std::string engine_of_run(const std::string& name);

}  // namespace mkbench
