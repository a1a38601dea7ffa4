// The result of `mkbench soak`: soak.json, from which an interrupted soak also goes on.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/measure/statistics.h"
#include "harness/report/verdict.h"

namespace mkbench {

// The checks that a soak repeats.
enum class SoakCheck { kTokens, kLaunches, kRestores, kResets, kCalls };
struct SoakCheckInfo {
  std::string_view name, what;
  Verdict verdict;  // what one failure means; a failed call has the verdict of its own error
};
// In the order of the enum.
inline constexpr std::array<SoakCheckInfo, 5> kSoakChecks = {{
    {"tokens", "tokens are the truth's", Verdict::kFailToken},
    {"launches", "launches give the bits of the first one", Verdict::kNondeterministic},
    {"restores", "a restore or rewind leads to the same bits", Verdict::kNondeterministic},
    {"resets", "a reset and a prefill lead to the same bits", Verdict::kNondeterministic},
    {"calls", "calls come back without an error", Verdict::kHang},
}};
inline const SoakCheckInfo& info_of(SoakCheck check) {
  return kSoakChecks[static_cast<size_t>(check)];
}

// How often a check was made, and how often it failed.
struct SoakCount {
  std::string check;  // SoakCheckInfo::name
  int64_t looked = 0, failed = 0;
  static void fields(auto& v) {
    list_fields(v, "check", &SoakCount::check, "looked", &SoakCount::looked, "failed",
                &SoakCount::failed);
  }
};

struct SoakFailure {
  int64_t step = 0;
  std::string check;
  Verdict verdict = Verdict::kPass;
  std::string reason;     // "launch 3 of 5, after a restore: step 2: .."
  double seconds = 0;     // soaking time until the failure
  std::string command{};  // repeats the step
  static void fields(auto& v) {
    using F = SoakFailure;
    list_fields(v, "step", &F::step, "check", &F::check, "verdict", &F::verdict, "reason",
                &F::reason, "seconds", &F::seconds, "command", &F::command);
  }
};

// What must be equal in a saved state and in the soak that goes on from it.
struct SoakIdentity {
  // The name as asked for; the hash of the engine's file, empty for an engine of mkbench.
  std::string engine, engine_sha256;
  std::string model, weights_sha256;
  std::string device, build;
  uint64_t seed = 0;
  int context = 0;    // positions of the KV cache
  std::string fault;  // planted, for tests; else "none"
  static void fields(auto& v) {
    using I = SoakIdentity;
    list_fields(v, "engine", &I::engine, "engine_sha256", &I::engine_sha256, "model", &I::model,
                "weights_sha256", &I::weights_sha256, "device", &I::device, "build", &I::build,
                "seed", &I::seed, "context", &I::context, "fault", &I::fault);
  }
};

struct SoakReport {
  SoakIdentity identity{};
  std::string resolved{};  // as the engine calls itself
  std::string runs_on{};   // "cuda:0 NVIDIA H100"
  std::string truth{};     // "the closed form of 'short'"; empty if tokens are not checked
  bool stressed = false;   // the engine has the hook for counters and delays
  std::string left_out{};  // the part of a stress that the engine does not apply, and why
  bool compared = true;    // the engine says that equal input gives equal bits
  bool one_step = false;   // --step: one step alone was repeated
  int64_t steps = 0;       // steps done; also the number of the next step
  int64_t launches = 0;    // calls of decode()
  int64_t edges = 0, edges_passed = 0;  // cache lengths at edges of tiles: all, passed
  int64_t fills = 0;                    // steps that filled the cache to its last position
  int64_t near_32_bits = 0;             // steps with counters that began near 2^16, 2^31 or 2^32
  int64_t delayed = 0;                  // steps with delays
  double seconds = 0;                   // soaking time, summed over interruptions
  int interruptions = 0;
  int64_t asked_launches = 0, asked_tokens = 0;
  double asked_minutes = 0;
  std::vector<SoakCount> counts{};  // in the order of kSoakChecks
  std::vector<SoakFailure> failures{};
  Verdict verdict = Verdict::kIncomplete;
  std::string reason{};
  int exit_code = mkbench::exit_code(Verdict::kIncomplete);

  SoakReport();
  SoakCount& count(SoakCheck check) { return counts[static_cast<size_t>(check)]; }
  const SoakCount& count(SoakCheck check) const { return counts[static_cast<size_t>(check)]; }
  static void fields(auto& v) {
    using R = SoakReport;
    list_fields(v, "identity", &R::identity, "resolved_name", &R::resolved, "runs_on", &R::runs_on,
                "truth", &R::truth, "stressed", &R::stressed, "left_out", &R::left_out, "compared",
                &R::compared, "one_step", &R::one_step, "steps", &R::steps, "launches",
                &R::launches, "edges", &R::edges, "edges_passed", &R::edges_passed, "fills",
                &R::fills, "near_32_bits", &R::near_32_bits, "delayed", &R::delayed, "seconds",
                &R::seconds, "interruptions", &R::interruptions, "asked_launches",
                &R::asked_launches, "asked_tokens", &R::asked_tokens, "asked_minutes",
                &R::asked_minutes, "counts", &R::counts, "failures", &R::failures, "verdict",
                &R::verdict, "reason", &R::reason, "exit_code", &R::exit_code);
  }
};

// "0 of 1,000, so less than 3/1,000 = 0.003 at 95 %", "2 of 50, so 0.0049 to 0.137 at 95 %";
// "not looked at" without trials.
std::string rate_text(const SoakCount& count);

// Number of launches: of those compared bit by bit, or of all if the engine is not deterministic.
int64_t launches_done(const SoakReport& report);
// True if the launches and tokens that were asked for are reached.
bool has_enough(const SoakReport& report);

// To and from soak.json. soak_of_json() throws Error(kBadInput) naming `path`, field and value.
nlohmann::json soak_json(const SoakReport& report);
SoakReport soak_of_json(const nlohmann::json& j, const std::string& path);

// Why a soak with `wanted` cannot go on from a state with `found`: "its seed is 3, wanted 4".
std::string identity_difference(const SoakIdentity& found, const SoakIdentity& wanted);

// What is printed at the end, and soak.md.
std::string render_soak(const SoakReport& report);

}  // namespace mkbench
