// Named time ranges for profilers, in a domain of their own ("mkbench"). Header-only; without a
// profiler a range costs one call through a pointer, and a switch that is off costs a comparison.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <atomic>

namespace mkbench {

// Values of --nvtx: no ranges, or ranges down to measurement blocks and decodes.
enum class NvtxLevel : int { kOff, kBlock };

// The process-wide switch; set once from --nvtx.
inline std::atomic<NvtxLevel>& nvtx_level() {
  static std::atomic<NvtxLevel> level{NvtxLevel::kBlock};
  return level;
}

// The domain handle; null (the default domain's) only where NVTX is disabled at build time.
inline nvtxDomainHandle_t nvtx_domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("mkbench");
  return domain;
}

// A range of the calling thread from construction to destruction. `name` must be a string literal
// or outlive the call.
class NvtxRange {
 public:
  explicit NvtxRange(const char* name) : pushed_(nvtx_level().load() != NvtxLevel::kOff) {
    if (!pushed_) return;
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = name;
    nvtxDomainRangePushEx(nvtx_domain(), &event);
  }
  ~NvtxRange() {
    if (pushed_) nvtxDomainRangePop(nvtx_domain());
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  bool pushed_;  // the switch may be turned while the range is open
};

}  // namespace mkbench
