// Every rule for a config.json, and what can be read of one in spite of its findings.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "references/config.h"
#include "references/model_finding.h"
#include "references/runnable.h"

namespace mkbench {

struct ConfigScan {
  // 0 or empty where the file says nothing, or something that is not accepted.
  ModelConfig config;
  const ModelKind* kind = &kModelKinds[0];  // Qwen3's where the file names no known kind
  bool tie_is_known = false;
  std::vector<int> mrope_section;  // frequencies of each row of positions; empty: plain RoPE
  bool mrope_interleaved = false;
  int mrope_sum() const { return std::accumulate(mrope_section.begin(), mrope_section.end(), 0); }
};

// `path` begins messages. Throws as `findings` does.
ConfigScan scan_config(const nlohmann::json& root, const std::string& path,
                       ModelFindings& findings);

// A config.json as JSON, of at most 1 MB. Throws Error(kBadInput).
nlohmann::json read_config_json(const std::filesystem::path& path);

// All that read_config() reads, and which kind of model it is. Throws Error(kBadInput) as that does.
ConfigScan read_config_scan(const std::filesystem::path& path);

}  // namespace mkbench
