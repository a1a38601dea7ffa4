// The versions of CUDA that mkbench is built with, which of them a driver runs, and this machine's nvcc. The rows are those of
// scripts/requirements/cuda_lanes.txt, which set-up chooses by.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace mkbench {

struct CudaLane {
  std::string_view name;     // its oldest CUDA: "12.8"
  int cuda = 0;              // that version as CUDA's integer: 12080
  int driver = 0;            // the oldest major version of the driver that runs it: 570
  std::string_view toolkit;  // "pypi", or the package of NVIDIA's apt repository
  std::string_view image;    // a container image that has the toolkit
};

// Newest first.
std::span<const CudaLane> cuda_lanes();

// "12.8" -> 12080, "13" -> 13000; 0 if the text is no version.
int cuda_version_number(std::string_view text);

// The lane that a binary or a toolkit of this CUDA belongs to; null for one that is older than all.
const CudaLane* lane_of_cuda(int cuda_version);

// The newest lane that the driver runs; null where it is too old for all. driver_cuda is the newest CUDA of the
// libcuda that programs load, and decides where it is known (0 otherwise): with NVIDIA's forward compatibility it is
// newer than the driver's own. driver_version: "570.86.10"; empty where it is not known.
const CudaLane* lane_for_driver(std::string_view driver_version, int driver_cuda);

struct Toolkit {
  std::string nvcc;     // path, empty = none found
  std::string version;  // "13.0"; empty where nvcc does not tell it
};

// nvcc of CUDA_HOME, CUDA_PATH, then PATH.
Toolkit find_toolkit();

// What is wrong with a driver for a binary of CUDA `built` (12080), and what to do, one sentence each; both are
// empty where it runs the binary. The first two arguments are those of lane_for_driver().
struct DriverFault {
  std::string reason, what_to_do;
};
DriverFault driver_fault(std::string_view driver_version, int driver_cuda, int built);

}  // namespace mkbench
