// Named time ranges for profilers, in a domain of their own ("mkbench"). Header-only; without a
// profiler a range costs one call through a pointer, and a level that is off costs a comparison.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <atomic>
#include <cstdint>

namespace mkbench {

inline constexpr const char* kNvtxDomain = "mkbench";

// The names in use, so that scripts and tests find them in one place.
inline constexpr const char* kNvtxLoad = "load";        // weights from files or generator
inline constexpr const char* kNvtxUpload = "upload";    // weights to an engine
inline constexpr const char* kNvtxPrefill = "prefill";  // one prompt
inline constexpr const char* kNvtxDecode = "decode";    // one timed or checked decode()
inline constexpr const char* kNvtxEngine = "engine";    // all of one engine within a block
inline constexpr const char* kNvtxBlock = "block";      // a measurement block
inline constexpr const char* kNvtxToken = "token";  // one step of an engine that launches per token

// What is emitted: nothing, everything down to blocks and decodes, or every token too.
enum class NvtxLevel : int { kOff, kBlock, kToken };

// The process-wide switch; set once from --nvtx.
inline std::atomic<NvtxLevel>& nvtx_level() {
  static std::atomic<NvtxLevel> level{NvtxLevel::kBlock};
  return level;
}

// The domain handle; null (the default domain's) only where NVTX is disabled at build time.
inline nvtxDomainHandle_t nvtx_domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA(kNvtxDomain);
  return domain;
}

// A range of the calling thread from construction to destruction. `name` must be a string literal
// or outlive the call.
class NvtxRange {
 public:
  explicit NvtxRange(const char* name, NvtxLevel level = NvtxLevel::kBlock)
      : pushed_(level != NvtxLevel::kOff && nvtx_level().load() >= level) {
    if (!pushed_) return;
    nvtxEventAttributes_t event = base_event(name);
    nvtxDomainRangePushEx(nvtx_domain(), &event);
  }
  // With a number that the profiler shows beside the name: block, position.
  NvtxRange(const char* name, int64_t payload, NvtxLevel level = NvtxLevel::kBlock)
      : pushed_(level != NvtxLevel::kOff && nvtx_level().load() >= level) {
    if (!pushed_) return;
    nvtxEventAttributes_t event = base_event(name);
    event.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    event.payload.llValue = payload;
    nvtxDomainRangePushEx(nvtx_domain(), &event);
  }
  ~NvtxRange() {
    if (pushed_) nvtxDomainRangePop(nvtx_domain());
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  static nvtxEventAttributes_t base_event(const char* name) {
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = name;
    return event;
  }

  bool pushed_;  // the level may change while the range is open
};

}  // namespace mkbench
