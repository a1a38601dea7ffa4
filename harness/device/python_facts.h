// What a Python has for those who also train: torch, transformers, bitsandbytes. mkbench runs
// without any of it, so no row of this part is a problem.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/device/device_info.h"
#include "harness/device/doctor_items.h"

namespace mkbench {

struct PythonFacts {
  std::string program;  // that was asked
  std::string problem;  // why it told nothing, or not all; empty where it did
  nlohmann::json told = nlohmann::json::object();  // what scripts/doctor_python.py printed, merged
};

// Merges the lines that the script printed. `end`: how the process ended, as waitpid() gives it.
PythonFacts read_python_facts(const std::string& program, const std::string& lines, int end);

// Runs the script with `program`. `architectures_only`: what torch's code is for, and no more.
PythonFacts ask_python(const std::string& program, const std::string& script, int gpu,
                       bool architectures_only = false);

// "sm_80 sm_90"; empty where that Python has no torch, or torch of another version than `version`.
std::string architectures_of(const PythonFacts& facts, const std::string& version);

// `card`: the one that mkbench would use; null where it sees none. `driver`: the version of the
// driver that is loaded, which may have a card although mkbench's CUDA sees none; empty without one.
std::vector<DoctorItem> judge_python(const PythonFacts& facts, const DeviceInfo* card,
                                     const std::string& driver);

}  // namespace mkbench
