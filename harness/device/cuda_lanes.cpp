#include "harness/device/cuda_lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "harness/device/device_info.h"

namespace mkbench {
namespace {

const CudaLane kCudaLanes[] = {
#include "cuda_lanes.inc"
};

bool runs_lane(const CudaLane& lane, std::string_view driver_version, int driver_cuda) {
  if (driver_cuda > 0) return driver_cuda >= lane.cuda;
  int major = 0;
  std::from_chars(driver_version.data(), driver_version.data() + driver_version.size(), major);
  return major >= lane.driver;
}

}  // namespace

std::span<const CudaLane> cuda_lanes() { return kCudaLanes; }

int cuda_version_number(std::string_view text) {
  int major = 0, minor = 0;
  const char* const end = text.data() + text.size();
  const auto [dot, error] = std::from_chars(text.data(), end, major);
  if (error != std::errc() || major < 1) return 0;
  if (dot != end && (*dot != '.' || std::from_chars(dot + 1, end, minor).ec != std::errc())) {
    return 0;
  }
  return major * 1000 + minor * 10;
}

const CudaLane* lane_of_cuda(int cuda_version) {
  const auto found = std::find_if(std::begin(kCudaLanes), std::end(kCudaLanes),
                                  [&](const CudaLane& l) { return cuda_version >= l.cuda; });
  return found == std::end(kCudaLanes) ? nullptr : found;
}

const CudaLane* lane_for_driver(std::string_view driver_version, int driver_cuda) {
  const auto found =
      std::find_if(std::begin(kCudaLanes), std::end(kCudaLanes),
                   [&](const CudaLane& l) { return runs_lane(l, driver_version, driver_cuda); });
  return found == std::end(kCudaLanes) ? nullptr : found;
}

DriverFault driver_fault(std::string_view driver_version, int driver_cuda, int built) {
  const CudaLane* lane = lane_of_cuda(built);
  if (lane == nullptr || runs_lane(*lane, driver_version, driver_cuda)) return {};
  std::string driver = "the driver";
  if (!driver_version.empty()) driver += fmt::format(" {}", driver_version);
  if (driver_cuda > 0) driver += fmt::format(" (CUDA {})", cuda_version_text(driver_cuda));
  const std::string reason =
      fmt::format("{} is too old for CUDA {}, which this binary uses (needs {} or later)", driver,
                  cuda_version_text(built), lane->driver);
  const std::string update = fmt::format("update the driver to {} or later", lane->driver);
  const CudaLane* other = lane_for_driver(driver_version, driver_cuda);
  if (other != nullptr) {
    return {reason, fmt::format("{}, or build for CUDA {}, which this driver runs: "
                                "scripts/setup.sh --cuda {}",
                                update, other->name, other->name)};
  }
  const CudaLane& oldest = cuda_lanes().back();
  return {reason, fmt::format("{} ({} is the oldest that mkbench can be built for, with CUDA {}), "
                              "or run with --device cpu",
                              update, oldest.driver, oldest.name)};
}

}  // namespace mkbench
