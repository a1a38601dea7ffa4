// Values of flags that name something of mkbench's: engines, baselines, faults, steps, requirements. All
// throw Error(kBadInput) with the flag, what was found and what is known.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/engines/registry.h"
#include "harness/parent/options.h"

namespace mkbench {

// Engines of these roles (EngineRole), and files.
std::vector<std::string> parse_engines(const std::string& text, unsigned roles = kCandidate);
std::vector<std::string> parse_baselines(const std::string& text);

std::vector<int32_t> parse_ids(const std::string& text);
// "off" (0), or a number in (0, 1].
double parse_relative(std::string_view flag, const std::string& text);
double parse_confidence(const std::string& text);
double parse_seconds(std::string_view flag, const std::string& text);
// The name of a folder.
std::string parse_name(std::string_view flag, const std::string& text);
int64_t parse_count(std::string_view flag, const std::string& text, int64_t least);
uint64_t parse_seed(const std::string& text);
// "PROMPT", "PROMPT:POSITION", or the file of a failed step; into `options`.
void parse_only(Options& options, const std::string& text);
// "gpu=5090,vram=32"
std::vector<Requirement> parse_required(const std::string& text);
PlantedFault parse_fault(const std::string& text);

}  // namespace mkbench
