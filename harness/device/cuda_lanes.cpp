#include "harness/device/cuda_lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "harness/device/device_info.h"
#include "harness/device/program_output.h"

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

// "13.0" from the output of `nvcc --version`; empty when nvcc does not run.
std::string ask_version(const std::string& nvcc) {
  const std::string output = program_output({nvcc, "--version"}).text;
  const size_t found = output.find("release ");
  if (found == std::string::npos) return "";
  const size_t begin = found + std::string_view("release ").size();
  return output.substr(begin, output.find_first_not_of("0123456789.", begin) - begin);
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

Toolkit find_toolkit() {
  std::vector<std::filesystem::path> folders;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != 0) folders.push_back(std::filesystem::path(value) / "bin");
  }
  const std::vector<std::filesystem::path> on_path = path_folders();
  folders.insert(folders.end(), on_path.begin(), on_path.end());
  const std::string nvcc = find_in(folders, "nvcc");
  return nvcc.empty() ? Toolkit{} : Toolkit{nvcc, ask_version(nvcc)};
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
