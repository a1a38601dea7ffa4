// The ratchet: R_rms that an engine has once reached on a card, committed in reports/ratchet.json.
// mkbench reads it and never writes it; scripts/update_ratchet.py does.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace mkbench {

struct RatchetKey {
  std::string engine;  // resolved name
  std::string card;    // "NVIDIA H200"; "cpu" for engines that run there
  std::string model;   // name of the folder of its references: "tiny", "synthetic"
  std::string lagset;  // of the weights that parity is judged on; empty where there is none
  std::string reference_sha256;  // other prompts give another R_rms
};

// The card in EngineCapabilities::device: "cuda:0 NVIDIA H200" gives "NVIDIA H200".
std::string card_of(const std::string& device);

// The committed R_rms; empty where the file has no entry, or does not exist.
// Throws Error(kInvalidReference) naming file, entry and field of a malformed file.
std::optional<double> find_ratchet(const std::filesystem::path& file, const RatchetKey& key);

// The line that the file would hold for this key.
std::string ratchet_entry(const RatchetKey& key, double r_rms);

}  // namespace mkbench
