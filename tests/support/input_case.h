// The rows of the two input tables, S1-S47 for safetensors and C1-C17 for config.json. Each row
// makes a file and names what the message must contain.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace mkbench::testing {

struct InputCase {
  std::string row;   // "S13"
  std::string what;  // the defect in words
  // Changes a folder that holds a sound micro model.
  std::function<void(const std::filesystem::path& folder)> make;
  // Parts of the one-line message. Where there are none the row is legal and the folder must load.
  std::vector<std::string> named;
  std::vector<std::string> options = {};  // for load_probe
};

std::vector<InputCase> container_cases();   // S1-S39: one file
std::vector<InputCase> checkpoint_cases();  // S40-S47: files, names, shapes, values
std::vector<InputCase> config_cases();      // C1-C17

}  // namespace mkbench::testing
