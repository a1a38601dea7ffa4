// All rules for a config.json, and the values that can be read in spite of findings.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "references/config.h"
#include "references/model/family.h"
#include "references/model_finding.h"

namespace mkbench {

// Types that a config.json names as a rule; those of the tensors decide (is_read_type()).
inline constexpr char kConfigTypes[] = "'bfloat16', 'float16' or 'float32'";

struct ConfigScan {
  // A field is 0 or empty if the file lacks it or has a value that is not accepted.
  ModelConfig config;
  const Family* family = &kQwen3Family;  // also where the file names no known family
  bool tie_is_known = false;
  std::vector<int> mrope_section;  // number of frequencies of each position row; empty: plain RoPE
  bool mrope_interleaved = false;
  int mrope_sum() const { return std::accumulate(mrope_section.begin(), mrope_section.end(), 0); }
};

// Messages begin with `path`. Throws as ModelFindings::add() does.
ConfigScan scan_config(const nlohmann::json& root, const std::string& path,
                       ModelFindings& findings);

// A config.json as JSON, of at most 1 MB. Throws Error(kBadInput).
nlohmann::json read_config_json(const std::filesystem::path& path);

// What read_config() reads, with the family of the model. Throws Error(kBadInput) like read_config().
ConfigScan read_config_scan(const std::filesystem::path& path);

}  // namespace mkbench
