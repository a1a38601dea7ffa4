// The settings from which plan.h makes cases, and the flags that set them: models, engines, axes,
// the card, and the numbers of processes and blocks whose defaults depend on the device.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/cli/command_line.h"
#include "harness/engines/registry.h"
#include "harness/flow/case_settings.h"
#include "references/snapshot.h"

namespace mkbench {

enum class DeviceChoice { kAuto, kCuda, kCpu };

// Settings of every command that uses a device.
struct CardSettings : CommandSettings {
  DeviceChoice device = DeviceChoice::kAuto;
  int gpu = 0;
  double timeout_s = 0;  // limit of one call of an engine
};

// --resident: how many engines of a case are open at a time, all or one.
enum class Resident { kAuto, kAll, kOne };

// Default numbers of paired blocks and of warm-up runs, unless they are chosen by time.
inline constexpr int kDefaultBlocks = 10, kDefaultWarmup = 1;

struct PlanSettings : CardSettings, CaseSettings {
  std::vector<std::string> compare;
  std::vector<std::string> engines;  // empty: the device's default
  std::vector<std::string> builds;   // compare: BASE and HEAD, build folders or engines' files
  std::vector<std::string> models;   // empty: the device's default
  TruthChoice truth = TruthChoice::kMkbench;
  std::string original;  // the model before it was quantised; empty: not named
  std::vector<int> n_prompt, n_gen, n_depth;
  std::optional<int> processes, blocks;  // absent: the device's default
  int max_blocks = 0;
  std::optional<int> warmup;  // absent: chosen by time if blocks are, else kDefaultWarmup
  Resident resident = Resident::kAuto;
  bool tune = false;  // measure ring's pace first, and use it
};

// Parses names of engines with one of `roles` (bits of Role), and paths. Throws Error(kBadInput).
std::vector<std::string> parse_engines(const std::string& text, unsigned roles);
inline auto engines_of(unsigned roles) {
  return [=](std::string_view, const std::string& text) { return parse_engines(text, roles); };
}
std::vector<std::string> parse_baselines(std::string_view flag, const std::string& text);

// Checks flags against each other, and draws the seed of the timed prompts unless --seed is given.
// Every command that plans cases calls it. Throws Error(kBadInput).
void check_plan_settings(PlanSettings& settings);

inline std::vector<Flag<CardSettings>> device_flags() {
  return {flag("device auto|cuda|cpu=auto",
               "auto = cuda if there is a usable GPU, else cpu. cuda never falls back.",
               &CardSettings::device,
               one_of<DeviceChoice>({{"auto", DeviceChoice::kAuto},
                                     {"cuda", DeviceChoice::kCuda},
                                     {"cpu", DeviceChoice::kCpu}}))};
}

inline std::vector<Flag<CardSettings>> card_flags() {
  return {
      flag("gpu N=0", "Index of the GPU.", &CardSettings::gpu, at_least(0)),
      flag("timeout S=300", "Limit for one call of an engine, in seconds. Then HANG or TIMEOUT.",
           &CardSettings::timeout_s, parse_seconds)};
}

inline std::vector<Flag<CommandSettings>> in_process_flags() {
  return {
      flag("in-process",
           "Run all engines in one process, without limits: for debuggers, ncu, compute-sanitizer.",
           &CommandSettings::in_process)};
}

// --model of profile and audit.
inline Flag<PlanSettings> models_flag() {
  return flag("model LIST", "Models, as run takes them [synthetic; tiny,tiny-untied on cpu].",
              &PlanSettings::models, parse_path_list);
}

inline Flag<PlanSettings> depth_flag() {
  return flag("n-depth,d L=0", "KV rows before the first timed step.", &PlanSettings::n_depth,
              list_from(0));
}

// Flags of run, compare and parity: what is judged.
inline std::vector<Flag<PlanSettings>> choice_flags() {
  using P = PlanSettings;
  return {
      flag("engine LIST",
           "Engines to judge and time: names (mkbench list engines), or paths of a library .so "
           "(references/engine_abi.h) or a file .py (references/decoder.py) [megakernel; host-twin "
           "on cpu].",
           &P::engines, engines_of(kCandidate)),
      flag("model LIST",
           "Models, a case each: names (mkbench list models), snapshot folders, or hub ids in the "
           "local cache [synthetic; tiny,tiny-untied on cpu].",
           &P::models, parse_path_list),
      flag("truth auto|mkbench|transformers|dequantised=auto",
           "What computes the truth: mkbench, or Hugging Face transformers, live, in the engines' "
           "Python. auto = transformers for the models that mkbench does not compute. dequantised "
           "= transformers with the weights that the one engine's dequantised() gives.",
           &P::truth,
           one_of<TruthChoice>({{"auto", TruthChoice::kAuto},
                                {"mkbench", TruthChoice::kMkbench},
                                {"transformers", TruthChoice::kTransformers},
                                {"dequantised", TruthChoice::kDequantised}})),
      flag("original MODEL",
           "The model before it was quantised: what its format costs is then told (KL, the same "
           "largest logit, perplexity) [with --truth dequantised, the model that the engine has "
           "quantised itself].",
           &P::original),
      flag("max-kl X=off",
           "Largest mean KL(original || quantised) of a step that passes, in nats. Else "
           "FAIL_FIDELITY.",
           &P::max_kl, parse_relative),
      flag("resident all|one",
           "Engines held open at a time [all, where the card and its memory permit it].",
           &P::resident, one_of<Resident>({{"all", Resident::kAll}, {"one", Resident::kOne}})),
  };
}

// Flags of run and compare: what is timed.
inline std::vector<Flag<PlanSettings>> axis_flags() {
  using P = PlanSettings;
  return {
      flag("compare LIST=eager",
           "Baselines (mkbench list engines). none = compare with nothing; eager then judges "
           "parity alone.",
           &P::compare, parse_baselines),
      flag("n-prompt,p L=0", "Also time a prefill of this many ids (ppN); 0 = none.", &P::n_prompt,
           list_from(0)),
      flag("n-gen,n L=128", "Timed tokens (tgN).", &P::n_gen, list_from(1)),
      depth_flag(),
      flag("processes P",
           "Fresh processes in which each timed engine is opened; the blocks are spread over them "
           "[5; 1 on cpu and with --in-process; with --resident one, one for each block].",
           &P::processes, at_least(1)),
      flag("blocks N",
           "Paired blocks over all processes [3 s of samples of each engine on a GPU; 10 on cpu "
           "and with --in-process].",
           &P::blocks, at_least(1)),
      flag("max-blocks N=30", "Largest number of blocks that --target-rel-ci may take.",
           &P::max_blocks, at_least(1)),
      flag("warmup N",
           "Untimed runs of each engine before its blocks [until time and clock have settled, "
           "where --blocks defaults to a time; else 1].",
           &P::warmup, at_least(0)),
  };
}

}  // namespace mkbench
