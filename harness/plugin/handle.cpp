#include "harness/plugin/handle.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "harness/plugin/library.h"
#include "kernels/cuda_check.h"
#include "references/base/one_line.h"

namespace mkbench {
namespace {

ErrorKind kind_of_open(int32_t status) {
  if (status == MKBENCH_UNFIT_MODEL) return ErrorKind::kBadInput;
  if (status == MKBENCH_UNFIT_ENV) return ErrorKind::kEnvUnfit;
  return ErrorKind::kRuntime;
}

// Makes the device current and returns its name. Throws if the plugin has no code for the device.
std::string select_device(const mkbench_engine_abi& abi, const PluginOptions& options,
                          const std::string& who) {
  const uint32_t wanted = options.cuda ? MKBENCH_DEVICE_CUDA : MKBENCH_DEVICE_CPU;
  if ((abi.devices & wanted) == 0) {
    const char* found = (abi.devices & MKBENCH_DEVICE_CUDA) != 0  ? "cuda"
                        : (abi.devices & MKBENCH_DEVICE_CPU) != 0 ? "cpu"
                                                                  : "none";
    throw Error(ErrorKind::kUnsupportedDevice,
                fmt::format("{}: devices: found {}, wanted {}, which this run is on", who, found,
                            options.cuda ? "cuda" : "cpu"));
  }
  if (!options.cuda) return "cpu";
  MKBENCH_CUDA(cudaSetDevice(options.gpu));
  cudaDeviceProp properties{};
  MKBENCH_CUDA(cudaGetDeviceProperties(&properties, options.gpu));
  return fmt::format("cuda:{} {}", options.gpu, properties.name);
}

}  // namespace

std::string plugin_text(const char* text) {
  constexpr size_t kLongest = 300;
  std::string unwrapped(text, strnlen(text, kLongest));
  std::replace(unwrapped.begin(), unwrapped.end(), '\n', ' ');
  return one_line(unwrapped, kLongest);
}

PluginHandle::PluginHandle(const PluginOptions& options)
    : who_("engine " + options.path),
      cuda_(options.cuda),
      abi_(load_plugin(options.path)),
      device_(select_device(abi_, options, who_)) {}

void PluginHandle::open(const mkbench_open& arguments) {
  const int32_t status = abi_.open(&arguments, &engine_);
  if (status != MKBENCH_OK) {
    engine_ = nullptr;
    const bool limited = status == MKBENCH_UNFIT_MODEL && abi_.max_context == 0;
    check("open", status, kind_of_open(status),
          limited
              ? fmt::format("; {} positions were asked for: a limit belongs into max_context of "
                            "its table",
                            arguments.max_context)
              : "");
  }
  if (engine_ == nullptr)
    throw Error(ErrorKind::kRuntime, who_ + ": open: found no engine, wanted one with MKBENCH_OK");
  finish_device();
}

void PluginHandle::close() {
  if (engine_ != nullptr) abi_.close(engine_);
  engine_ = nullptr;
}

void PluginHandle::check(const char* function, int32_t status, ErrorKind kind,
                         const std::string& hint) const {
  if (status == MKBENCH_OK) return;
  const char* text = abi_.last_error != nullptr ? abi_.last_error(engine_) : nullptr;
  throw Error(kind, fmt::format("{}: {} failed ({}): {}{}", who_, function, status,
                                text != nullptr ? plugin_text(text) : "it does not say why", hint));
}

void PluginHandle::end_call(const char* function, int32_t status, ErrorKind kind) const {
  finish_device();
  check(function, status, kind);
}

void PluginHandle::finish_device() const {
  if (cuda_) MKBENCH_CUDA(cudaDeviceSynchronize());
}

}  // namespace mkbench
