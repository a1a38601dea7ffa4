// A libcupti without a GPU, for tests/device/test_launch_recorder.cpp: while kinds are enabled, the test says what runs on
// the card, and a flush delivers the records of it.
#include "tests/support/fake_cupti.h"

#include <cstring>
#include <set>
#include <vector>

namespace {

FakeCupti state;
std::set<CUpti_ActivityKind> enabled;
std::vector<std::vector<uint8_t>> records;
CUpti_BuffersCallbackRequestFunc give = nullptr;
CUpti_BuffersCallbackCompleteFunc take = nullptr;

template <typename Activity>
void add(const Activity& a, CUpti_ActivityKind kind) {
  if (!enabled.contains(kind)) return;
  std::vector<uint8_t>& bytes = records.emplace_back(sizeof(a));
  std::memcpy(bytes.data(), &a, sizeof(a));
}

template <typename Activity>
Activity device_work(CUpti_ActivityKind kind, uint32_t call, uint32_t graph) {
  Activity a{};
  a.kind = kind;
  a.correlationId = call;
  a.graphId = graph;
  a.start = state.now_ns;
  a.end = state.now_ns += 1000;
  return a;
}

size_t size_of(CUpti_ActivityKind kind) {
  if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) return sizeof(CUpti_ActivityKernel9);
  if (kind == CUPTI_ACTIVITY_KIND_MEMCPY) return sizeof(CUpti_ActivityMemcpy6);
  if (kind == CUPTI_ACTIVITY_KIND_MEMSET) return sizeof(CUpti_ActivityMemset4);
  return sizeof(CUpti_ActivitySynchronization2);
}

CUptiResult answer(const char* function) {
  return function == state.failing ? CUPTI_ERROR_INSUFFICIENT_PRIVILEGES : CUPTI_SUCCESS;
}

}  // namespace

FakeCupti& fake_cupti() { return state; }
size_t fake_kinds_enabled() { return enabled.size(); }

void fake_kernel(uint32_t call, uint32_t graph) {
  const auto kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  add(device_work<CUpti_ActivityKernel9>(kind, call, graph), kind);
}
void fake_copy(uint32_t call) {
  const auto kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  add(device_work<CUpti_ActivityMemcpy6>(kind, call, 0), kind);
}
void fake_memset(uint32_t call) {
  const auto kind = CUPTI_ACTIVITY_KIND_MEMSET;
  add(device_work<CUpti_ActivityMemset4>(kind, call, 0), kind);
}
void fake_wait(CUpti_ActivitySynchronizationType type) {
  CUpti_ActivitySynchronization2 a{};
  a.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  a.type = type;
  a.start = state.now_ns;
  a.end = state.now_ns += 1000;
  add(a, a.kind);
}

extern "C" {

CUptiResult CUPTIAPI cuptiGetVersion(uint32_t* version) {
  *version = state.version;
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult, const char** text) {
  *text = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES";
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiGetTimestamp(uint64_t* now) {
  *now = state.now_ns;
  return answer(__func__);
}
CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                    CUpti_BuffersCallbackCompleteFunc complete) {
  give = request;
  take = complete;
  return answer(__func__);
}
CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind) {
  enabled.insert(kind);
  return answer(__func__);
}
CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind) {
  enabled.erase(kind);
  return CUPTI_SUCCESS;
}
// Two buffers: the records are spread over them.
CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flag) {
  if (flag != CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) return CUPTI_ERROR_INVALID_PARAMETER;
  for (size_t half = 0; half < 2; ++half) {
    uint8_t* buffer = nullptr;
    size_t size = 0, most = 0, used = 0;
    give(&buffer, &size, &most);
    for (size_t i = half; i < records.size() && used + records[i].size() <= size; i += 2) {
      std::memcpy(buffer + used, records[i].data(), records[i].size());
      used += records[i].size();
    }
    take(nullptr, 0, buffer, size, used);
  }
  records.clear();
  return answer(__func__);
}
CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid,
                                                CUpti_Activity** record) {
  auto* const next =
      *record == nullptr ? buffer : reinterpret_cast<uint8_t*>(*record) + size_of((*record)->kind);
  if (next >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  *dropped = state.dropped;
  return CUPTI_SUCCESS;
}
}
