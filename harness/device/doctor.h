// `mkbench doctor`: what this machine has, whether mkbench can use it, and what to do if not.
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

// Facts about the Python that runs engines written in Python: its torch and transformers.
struct PythonFacts {
  std::string program;                             // path of the Python
  std::string problem;                             // why facts are missing; empty if all are there
  nlohmann::json told = nlohmann::json::object();  // what scripts/doctor_python.py printed, merged
};

// Facts from other parts of mkbench that the doctor judges.
struct DoctorInputs {
  int gpu = 0;
  bool cpu_only = false;  // --device cpu: faults of the GPU are only notes
  // Why the CUDA host or the torch host did not start (the loader's message); empty if it did.
  std::string card_problem, torch_problem;
  std::string our_architectures;  // of mkbench's own kernels: "80;86;90a"
  std::string ring_obstacle;      // why the ring megakernel cannot run `model`; empty if it can
  std::string ring_pace;          // what chose ring's pace on this card, if it can
  std::string torch_version, torch_cuda_version;
  std::string torch_architectures;  // "sm_80 sm_90", empty = unknown
  bool torch_cuda_available = false;
  std::string model;                // name of the default model: "synthetic"
  int64_t device_bytes_needed = 0;  // by `model` with all its engines
  int64_t host_bytes_needed = 0;
};

struct DoctorReport {
  DeviceList devices;   // only the driver's version if the CUDA host did not start
  Usability usability;  // of the GPU that DoctorInputs::gpu names
  DeviceCheck check;    // not run on an unusable GPU
  bool checked = false;
  std::optional<DeviceCheck> torch_check;  // a matrix product; not run if libtorch sees no GPU
  Toolkit toolkit;
  HostMachine machine;
  std::optional<PythonFacts> python;  // empty if no Python was queried
  std::vector<DoctorItem> items;
  std::vector<DoctorItem> python_items;  // rows about Python, never problems
  std::string verdict;                   // one sentence
  std::string next;  // the command to run next: set-up, or a run (on the CPU if no GPU is usable)
  bool gpu_ready = false;

  int problems() const;  // number of problems in `items`
};

// Judges the facts that `report` holds (devices, checks, toolkit, machine, python) and fills in its
// other fields.
void judge_machine(const DoctorInputs& inputs, DoctorReport& report);

// Runs scripts/doctor_python.py with `program`. `architectures_only`: asks only for the
// architectures of torch's code.
PythonFacts ask_python(const std::string& program, const std::string& script, int gpu,
                       bool architectures_only = false);
// Merges the lines that the script printed. `end`: how the process ended, as waitpid() gives it.
PythonFacts read_python_facts(const std::string& program, const std::string& lines, int end);
// Architectures of torch's code, "sm_80 sm_90"; empty if that Python has no torch of `version`.
std::string architectures_of(const PythonFacts& facts, const std::string& version);
// `card`: the GPU that mkbench would use; null if it sees none. `driver`: version of the loaded
// driver, empty if none; with a driver, there may be a card that mkbench's CUDA cannot see.
std::vector<DoctorItem> judge_python(const PythonFacts& facts, const DeviceInfo* card,
                                     const std::string& driver);

// Lists in Markdown that read well in a terminal: "- ok       driver       580.65.06 (CUDA 13.0)",
// then verdict and what to do. `strict_would_fail`: adds the exit code that --strict would give.
std::vector<std::string> doctor_lines(const DoctorReport& report, bool strict_would_fail = false);
nlohmann::json to_json(const DoctorReport& report);

}  // namespace mkbench
