// CUDA versions that mkbench can be built with, which of them a driver runs, and this machine's
// nvcc. The rows come from scripts/requirements/cuda_lanes.txt, from which set-up chooses too.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace mkbench {

struct CudaLane {
  std::string_view name;     // the lane's oldest CUDA: "12.8"
  int cuda = 0;              // `name` as CUDA's integer: 12080
  int driver = 0;            // the oldest major driver version that runs it: 570
  std::string_view toolkit;  // "pypi", or a package in NVIDIA's apt repository
  std::string_view image;    // a container image that has the toolkit
};

// Newest first.
std::span<const CudaLane> cuda_lanes();

// "12.8" -> 12080, "13" -> 13000; 0 if the text is no version.
int cuda_version_number(std::string_view text);

// The lane of a binary or toolkit of this CUDA version; null if it is older than every lane.
const CudaLane* lane_of_cuda(int cuda_version);

// The newest lane that the driver runs; null if none. driver_cuda: newest CUDA of the libcuda that
// programs load, 0 if unknown. If known, it is used and not driver_version ("570.86.10", empty if
// unknown), because with NVIDIA's forward compatibility it is above the driver's own CUDA.
const CudaLane* lane_for_driver(std::string_view driver_version, int driver_cuda);

struct Toolkit {
  std::string nvcc;     // path, empty = none found
  std::string version;  // "13.0"; empty if nvcc does not report it
};

// Looks for nvcc in CUDA_HOME, CUDA_PATH, then PATH.
Toolkit find_toolkit();

// Why a driver cannot run a binary of CUDA `built` (12080), and what to do, one sentence each; both
// are empty if it can. driver_version and driver_cuda: as for lane_for_driver().
struct DriverFault {
  std::string reason, what_to_do;
};
DriverFault driver_fault(std::string_view driver_version, int driver_cuda, int built);

}  // namespace mkbench
