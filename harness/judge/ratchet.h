// The ratchet: the ratios that an engine has once reached on a card, and the bits of its logits, in
// reports/ratchet.json. mkbench only reads that file; scripts/update_ratchet.py writes it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "harness/judge/ratios.h"

namespace mkbench {

struct RatchetKey {
  std::string engine;            // resolved name
  std::string card;              // "NVIDIA H200"; "cpu" for engines that run there
  std::string model;             // name of the folder of its references: "tiny", "synthetic"
  std::string lagset;            // lag set of the weights in parity; empty if they have none
  std::string reference_sha256;  // other prompts give another R_rms
};

// The card in EngineCapabilities::device: "cuda:0 NVIDIA H200" gives "NVIDIA H200".
std::string card_of(const std::string& device);

struct Ratchet {
  double rms = 0;
  // Absent in entries that were written before all four ratios were kept.
  std::optional<double> step, inf, kl;
  // ParityReport::repeats_sha256 of the engine; empty if no run has judged its repeats.
  std::string repeats_sha256;
};

// How far each ratio may grow over its committed value. Two decoders that keep fp32 and add in
// different orders (reports/limits) differ by up to 2 % in R_rms, 11 % in R_step, 16 % in R_inf
// and 4 % in R_KL, unless R_KL is so small that it is rounding.
inline constexpr double kRatchetFactor = 1.10, kRatchetFactorOfLargest = 1.25,
                        kRatchetFactorOfKl = 1.25;
// R_KL may grow by this much in any case: for an engine at 0.001, 25 % would be rounding.
inline constexpr double kRatchetLeastKl = 0.005;

// Names every ratio of `found` that is over its limit, with that limit; empty if none is.
std::string over_ratchet(const Ratios& found, const Ratchet& committed);

// The committed values; empty if the file has no entry for `key`, or does not exist.
// Throws Error(kInvalidReference) naming file, entry and field of a malformed file.
std::optional<Ratchet> find_ratchet(const std::filesystem::path& file, const RatchetKey& key);

// The line that the file would hold for this key.
std::string ratchet_entry(const RatchetKey& key, const Ratios& found);

}  // namespace mkbench
