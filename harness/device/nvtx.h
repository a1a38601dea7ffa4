// Named time ranges for profilers, in a domain of their own ("mkbench"). Header-only. Without a
// profiler a range costs one call through a pointer; if --nvtx is off, a comparison. A labelled
// range carries a message ("ring d=512 block 3"), the engine as its category, and the number of the
// block or token as its payload.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "harness/measure/range_label.h"

namespace mkbench {

// Whether ranges are recorded (--nvtx off|block). profile's token ranges are asked for in each call.
enum class NvtxLevel : int { kOff, kBlock };

// The process-wide switch; set once from --nvtx.
inline std::atomic<NvtxLevel>& nvtx_level() {
  static std::atomic<NvtxLevel> level{NvtxLevel::kBlock};
  return level;
}

// The domain handle; null, which means the default domain, only if the build disables NVTX.
inline nvtxDomainHandle_t nvtx_domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA(kNvtxDomain);
  return domain;
}

// A category's number in this process, from 1 on; tells profilers its name at the first call.
inline uint32_t nvtx_category(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, uint32_t> numbers;
  const std::scoped_lock lock(mutex);
  const auto [found, is_new] = numbers.try_emplace(name, static_cast<uint32_t>(numbers.size() + 1));
  if (is_new) nvtxDomainNameCategoryA(nvtx_domain(), found->second, name.c_str());
  return found->second;
}

// A range of the calling thread from construction to destruction. Profilers copy the message.
class NvtxRange {
 public:
  explicit NvtxRange(const char* message) : NvtxRange(message, nullptr) {}
  explicit NvtxRange(const RangeLabel& label) : NvtxRange(label.message.c_str(), &label) {}
  ~NvtxRange() {
    if (pushed_) nvtxDomainRangePop(nvtx_domain());
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  NvtxRange(const char* message, const RangeLabel* label)
      : pushed_(nvtx_level().load() != NvtxLevel::kOff) {
    if (!pushed_) return;
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = message;
    if (label != nullptr) {
      event.category = nvtx_category(label->category);
      event.payloadType = NVTX_PAYLOAD_TYPE_INT32;
      event.payload.iValue = label->payload;
    }
    nvtxDomainRangePushEx(nvtx_domain(), &event);
  }

  bool pushed_;  // remembered: the switch may change while the range is open
};

}  // namespace mkbench
