// The settings of a run that its cases read, each with the flag that sets it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/report/report.h"
#include "harness/settings/flag.h"
#include "references/fault_kind.h"

namespace mkbench {

enum class NvtxMode { kOff, kBlock };

// Whether the card is read while a timed part runs. kAlternate: in one block of every two, which
// shows what the reading costs.
enum class TelemetryMode { kOn, kOff, kAlternate };

struct CaseSettings {
  // What is judged, and how.
  uint64_t seed = 1;
  uint64_t prompt_seed = 1;   // seed of the timed prompts
  uint64_t salt = 0;          // of analytic weights that are timed (make_synthetic())
  std::string reference_dir;  // empty: the committed references
  bool require_reference = false;
  double time_budget_s = 240;  // for judging one engine; INCOMPLETE if it needs more
  PlantedFault fault = PlantedFault::kNone;
  bool whole_parity = false;  // `mkbench parity`: every check, nothing timed
  bool keep_going = false;    // `parity` makes every check also after a decided failure
  double max_kl = 0;          // largest mean KL that a format may cost; 0: any
  // If set, only this step is repeated. Without prompt_ids it is a step of the references.
  std::optional<FailedStep> only{};
  std::string only_prompt{};  // if set, only this prompt of the references is judged
  // What is timed, and how.
  std::vector<int32_t> ids;  // the timed prompt; empty: ids drawn from prompt_seed
  bool time_anyway = false;  // times baselines also where no candidate is left
  double target_rel_ci = 0;  // 0 = off
  bool random_order = false;
  double confidence = 0.95;
  NvtxMode nvtx = NvtxMode::kBlock;
  TelemetryMode telemetry = TelemetryMode::kOn;
  bool ablations = false;  // diagnostics after the samples
};

// Turn the text of a flag into its value. Throw Error(kBadInput).
std::vector<int32_t> parse_ids(std::string_view flag, const std::string& text);
double parse_confidence(std::string_view flag, const std::string& text);
PlantedFault parse_fault(std::string_view flag, const std::string& text);
// "PROMPT", "PROMPT:POSITION", or the file of a failed step.
void set_only(CaseSettings& settings, const std::string& text);

inline std::vector<Flag<CaseSettings>> judge_flags() {
  using C = CaseSettings;
  return {
      flag("seed S=1",
           "Random seed for prompts, block order and bootstraps. Without it, timed prompts differ "
           "between runs.",
           &C::seed, parse_seed),
      flag("reference DIR",
           "Folder with references (DIR/<model>/reference*.json) to use instead of the committed "
           "ones.",
           &C::reference_dir),
      flag("require-reference",
           "Fail with INVALID_REFERENCE if a model has no committed reference.",
           &C::require_reference),
      flag("time-budget S=240",
           "Time for judging one engine, in seconds. INCOMPLETE if a pass needs more.",
           &C::time_budget_s, parse_seconds),
      hidden(flag("plant-fault NAME", "Plant this fault in the candidates, to test the gate.",
                  &C::fault, parse_fault)),
  };
}

// Flags that `mkbench parity` alone has.
inline std::vector<Flag<CaseSettings>> only_flags() {
  return {{{"only STEP",
            "Judge one prompt (PROMPT), or repeat one step: PROMPT:POSITION as in the parity "
            "table, or a file from the folder failures of a report."},
           set_only},
          flag("keep-going",
               "Make every check also after the prompts have shown a failure. Without it the "
               "cache lengths and the isolation are then not judged, and 3 runs of a prompt are "
               "compared instead of 20.",
               &CaseSettings::keep_going)};
}

inline Flag<CaseSettings> ids_flag() {
  return flag("ids LIST",
              "Ids of the prompt, instead of random ones. Each block draws a new last id.",
              &CaseSettings::ids, parse_ids);
}

inline std::vector<Flag<CaseSettings>> timing_flags() {
  using C = CaseSettings;
  return {
      ids_flag(),
      flag("time-anyway",
           "Time the baselines also where every candidate has failed. Without it nothing is timed "
           "then.",
           &C::time_anyway),
      flag("target-rel-ci X=off",
           "Add blocks until the half-width of the confidence interval is below this share of the "
           "mean.",
           &C::target_rel_ci, parse_relative),
      flag("order abba|random=abba", "Order of the engines inside the blocks.", &C::random_order,
           one_of<bool>({{"abba", false}, {"random", true}})),
      flag("confidence C=0.95", "Confidence level of the intervals.", &C::confidence,
           parse_confidence),
      flag("nvtx off|block=block", "NVTX ranges in the domain mkbench.", &C::nvtx,
           one_of<NvtxMode>({{"off", NvtxMode::kOff}, {"block", NvtxMode::kBlock}})),
      flag("telemetry on|off|alternate=on",
           "Read clocks, power and throttle reasons of the card while an engine is timed. "
           "alternate = in one block of every two, which shows what the reading costs.",
           &C::telemetry,
           one_of<TelemetryMode>({{"on", TelemetryMode::kOn},
                                  {"off", TelemetryMode::kOff},
                                  {"alternate", TelemetryMode::kAlternate}})),
      flag("ablations",
           "After the samples, also time ring without waits (memory roof) and without loads "
           "(dependency chain).",
           &C::ablations),
  };
}

}  // namespace mkbench
