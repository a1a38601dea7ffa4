// `mkbench doctor`: what this machine has, whether mkbench can use it, and what to do when not.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/device/cuda_lanes.h"
#include "harness/device/device_check.h"
#include "harness/device/device_info.h"
#include "harness/device/host_machine.h"

namespace mkbench {

// kNote: could be better, but mkbench does not need it.
enum class Finding { kFine, kNote, kWarning, kProblem };

struct DoctorItem {
  std::string topic;  // "driver", "GPU 0", ..
  Finding finding = Finding::kFine;
  std::string text;
  std::string what_to_do;  // empty when fine
};

// What the Python of engines in Python has: torch, transformers.
struct PythonFacts {
  std::string program;                             // path of the Python
  std::string problem;                             // why facts are missing; empty if none are
  nlohmann::json told = nlohmann::json::object();  // what scripts/doctor_python.py printed, merged
};

// Facts from other parts of mkbench that the doctor judges.
struct DoctorInputs {
  int gpu = 0;
  bool cpu_only = false;  // --device cpu: what the GPU lacks is no problem
  // Why a host did not start: the loader's own text; empty where it did.
  std::string card_problem, torch_problem;
  std::string our_architectures;  // "80;86;90a" (kernels)
  std::string ring_obstacle;      // why the ring megakernel cannot run the model; empty: it can
  std::string torch_version, torch_cuda_version;
  std::string torch_architectures;  // "sm_80 sm_90", empty = unknown
  bool torch_cuda_available = false;
  std::string model;                // the default model, as in "synthetic"
  int64_t device_bytes_needed = 0;  // of the default model with all its engines
  int64_t host_bytes_needed = 0;
  std::vector<Requirement> required;  // --require
};

struct DoctorReport {
  DeviceList devices;   // without the host of the CUDA engines: the driver's version alone
  Usability usability;  // of the GPU asked for
  DeviceCheck check;    // only run where usable
  bool checked = false;
  std::optional<DeviceCheck> torch_check;  // libtorch's product; only run where libtorch sees a GPU
  Toolkit toolkit;
  HostMachine machine;
  std::optional<PythonFacts> python;  // empty: none was asked for
  std::vector<DoctorItem> items;
  std::vector<DoctorItem> required;      // a row for each requirement
  std::vector<DoctorItem> python_items;  // none of them a problem
  std::string verdict;                   // one sentence
  std::string next;  // the command to run, with --device cpu where there is no usable GPU
  bool gpu_ready = false;

  int problems() const;  // rows of `items`
  int unmet() const;     // rows of `required`
};

// Judges given facts: reads devices, toolkit, checks, machine and python of `report`, fills in items,
// required, python_items, verdict and usability.
void judge_machine(const DoctorInputs& inputs, DoctorReport& report);

// Runs scripts/doctor_python.py with `program`. `architectures_only`: asks for the architectures of
// torch's code alone.
PythonFacts ask_python(const std::string& program, const std::string& script, int gpu,
                       bool architectures_only = false);
// Merges the lines that the script printed. `end`: how the process ended, as waitpid() gives it.
PythonFacts read_python_facts(const std::string& program, const std::string& lines, int end);
// "sm_80 sm_90"; empty where that Python has no torch, or torch of another version than `version`.
std::string architectures_of(const PythonFacts& facts, const std::string& version);
// `card`: the one that mkbench would use; null where it sees none. `driver`: the version of the
// driver that is loaded, which may have a card although mkbench's CUDA sees none; empty without one.
std::vector<DoctorItem> judge_python(const PythonFacts& facts, const DeviceInfo* card,
                                     const std::string& driver);

// Lists in Markdown that read well in a terminal: "- ok       driver       580.65.06 (CUDA 13.0)",
// then verdict and what to do. `strict_would_fail`: says that --strict ends with another exit code.
std::vector<std::string> doctor_lines(const DoctorReport& report, bool strict_would_fail = false);
nlohmann::json to_json(const DoctorReport& report);

}  // namespace mkbench
