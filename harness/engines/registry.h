// The engines: one row each, constants only. Command line, list, plan, doctor and the hosts read
// it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mkbench {

// What an engine claims about its arithmetic: which limits of parity apply to it.
enum class PrecisionClass {
  kBf16,            // rounds like eager
  kFp32Accumulate,  // rounds only the residual stream, the KV cache and the RoPE table
};
std::string_view precision_class_name(PrecisionClass c);

// Which program can make an engine.
enum class HostKind { kCuda, kTorch };

// An engine may be in several of these roles.
enum Role : unsigned {
  kCandidate = 1,  // --engine: judged and timed
  kYardstick = 2,  // --compare: a speed-up is quoted against it
  kJudge = 4,      // parity needs it as B
};

struct EngineRow {
  std::string_view name;
  std::string_view help;      // one line
  std::string_view settings;  // what is pinned about it, one line; empty where nothing is
  HostKind host;
  PrecisionClass precision;
  unsigned roles;  // of Role
  bool cuda, cpu;  // devices

  bool runs_on(bool on_cuda) const { return on_cuda ? cuda : cpu; }
};

// Every engine that has a name; a path that ends in .so is one besides.
std::span<const EngineRow> engine_rows();
// Null for a name that no row has.
const EngineRow* find_engine(std::string_view name);
// Whether an engine's logits are rounded to bf16. Plugins are taken to keep fp32.
bool rounds_logits(std::string_view name);
// Names of the rows with this role, in the table's order.
std::vector<std::string> engine_names(Role role);

// In place of a yardstick: the judge judges all the same, and is not timed.
inline constexpr char kNoBaseline[] = "none";
// The engine that judges parity (B).
inline constexpr char kJudgeName[] = "eager";
// Runs of the judge: the truth T (fp32), and B' (the last matmul in fp32).
inline constexpr char kTruthName[] = "eager-fp32";
inline constexpr char kHeadFp32Name[] = "eager-head-fp32";

// "megakernel" is the best CUDA kernel that can run here: ring where it can, else plain. Other
// names stand for themselves.
inline constexpr char kMegakernel[] = "megakernel";
std::string resolve_engine(const std::string& name, bool ring_runs);

// The candidate of a run that names none.
std::string default_engine(bool cuda);

// Which engine a run of this name belongs to: T and B' are runs of the judge.
std::string engine_of_run(const std::string& name);

}  // namespace mkbench
