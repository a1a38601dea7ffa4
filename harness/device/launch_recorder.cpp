#include "harness/device/launch_recorder.h"

#include <cuda_runtime_api.h>

#include "kernels/cuda_check.h"
#include "references/base/error.h"

#ifdef MKBENCH_CUPTI
#include <cupti.h>
#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#endif

namespace mkbench {
namespace {

bool has_gpu() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return true;
  cudaGetLastError();  // clears the error, which a later call would report as its own
  return false;
}

#ifdef MKBENCH_CUPTI

// CUPTI's version in CUDA 12.8, whose headers are the first with these records. Later headers have
// only added fields behind those read here (compared up to CUDA 13.0).
constexpr uint32_t kOldestCupti = 26;
constexpr size_t kBufferBytes = size_t{4} << 20;  // some 20,000 records

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET,
                                         CUPTI_ACTIVITY_KIND_SYNCHRONIZATION};

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::kEnvUnfit, "CUPTI: " + why);
}

// The folder of the CUDA runtime that this process has loaded; empty if unknown.
std::filesystem::path runtime_folder() {
  const std::string name = "libcudart.so." + std::to_string(CUDA_VERSION / 1000);
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
  link_map* map = nullptr;
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return {};
  return std::filesystem::path(map->l_name).parent_path();
}

// Opens the libcupti that is loaded already or on the run path, else the one that belongs to the
// CUDA runtime: beside it, in the toolkit's extras, or in a Python package of its own.
void* open_library() {
  const std::string name = "libcupti.so." + std::to_string(CUDA_VERSION / 1000);
  if (void* library = dlopen(name.c_str(), RTLD_NOW)) return library;
  const std::string why = dlerror();
  const std::filesystem::path beside = runtime_folder(), above = beside.parent_path();
  for (const auto& folder :
       {beside, above / "extras" / "CUPTI" / "lib64", above.parent_path() / "cuda_cupti" / "lib"}) {
    if (void* library = dlopen((folder / name).c_str(), RTLD_NOW)) return library;
  }
  refuse(why);
}

// A symbol's address, which converts to whichever function pointer it initialises.
struct Symbol {
  void* found = nullptr;
  template <typename Function>
  // NOLINTNEXTLINE(google-explicit-constructor): the pointer that it initialises names the type once
  operator Function*() const {
    return reinterpret_cast<Function*>(found);
  }
};

// The functions of libcupti that are used. The library stays open: CUPTI calls back.
struct Cupti {
  void* const library = open_library();

  decltype(::cuptiGetVersion)* get_version = symbol("cuptiGetVersion");
  decltype(::cuptiGetResultString)* result_string = symbol("cuptiGetResultString");
  decltype(::cuptiGetTimestamp)* timestamp = symbol("cuptiGetTimestamp");
  decltype(::cuptiActivityRegisterCallbacks)* register_callbacks =
      symbol("cuptiActivityRegisterCallbacks");
  decltype(::cuptiActivityEnable)* enable = symbol("cuptiActivityEnable");
  decltype(::cuptiActivityDisable)* disable = symbol("cuptiActivityDisable");
  decltype(::cuptiActivityFlushAll)* flush_all = symbol("cuptiActivityFlushAll");
  decltype(::cuptiActivityGetNextRecord)* next_record = symbol("cuptiActivityGetNextRecord");
  decltype(::cuptiActivityGetNumDroppedRecords)* dropped_records =
      symbol("cuptiActivityGetNumDroppedRecords");

  Symbol symbol(const char* name) const {
    void* const found = dlsym(library, name);
    if (found == nullptr) refuse(std::string("libcupti has no function ") + name);
    return {found};
  }
  void check(CUptiResult result, const char* what) const {
    if (result == CUPTI_SUCCESS) return;
    const char* text = nullptr;
    result_string(result, &text);
    refuse(std::string(what) + ": " + (text != nullptr ? text : std::to_string(result)));
  }
};

const Cupti& cupti() {
  static const Cupti functions;
  return functions;
}

// The records that CUPTI has delivered so far; its callbacks may run in any thread.
struct Received {
  std::mutex mutex;
  std::vector<LaunchRecord> records;
};

Received& received() {
  static Received all;
  return all;
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = *buffer != nullptr ? kBufferBytes : 0;
  *most_records = 0;  // as many as fit
}

template <typename Activity>
LaunchRecord device_record(LaunchRecord::What what, const CUpti_Activity* record) {
  const auto& a = *reinterpret_cast<const Activity*>(record);
  return {what, a.graphId != 0 || a.graphNodeId != 0, a.correlationId, a.start, a.end};
}

void keep(const CUpti_Activity* record, std::vector<LaunchRecord>& records) {
  using What = LaunchRecord::What;
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ||
      record->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
    records.push_back(device_record<CUpti_ActivityKernel9>(What::kKernel, record));
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    records.push_back(device_record<CUpti_ActivityMemcpy6>(What::kCopy, record));
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    records.push_back(device_record<CUpti_ActivityMemset4>(What::kMemset, record));
  } else if (record->kind == CUPTI_ACTIVITY_KIND_SYNCHRONIZATION) {
    const auto& a = *reinterpret_cast<const CUpti_ActivitySynchronization2*>(record);
    // A stream's wait for an event does not block the host.
    if (a.type != CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT)
      records.push_back({What::kWait, false, a.correlationId, a.start, a.end});
  }
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  {
    const std::lock_guard lock(received().mutex);
    CUpti_Activity* record = nullptr;
    while (valid > 0 && cupti().next_record(buffer, valid, &record) == CUPTI_SUCCESS) {
      keep(record, received().records);
    }
  }
  std::free(buffer);
}

// Records CUPTI's activities while the object lives.
class Recording {
 public:
  Recording() {
    uint32_t version = 0;
    lib_.check(lib_.get_version(&version), "cuptiGetVersion");
    if (version < kOldestCupti) {
      refuse("found libcupti of version " + std::to_string(version) + ", wanted " +
             std::to_string(kOldestCupti) + " (CUDA 12.8) or later");
    }
    lib_.check(lib_.register_callbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
    try {
      for (const CUpti_ActivityKind kind : kKinds)
        lib_.check(lib_.enable(kind), "cuptiActivityEnable");
      flush();  // what an earlier recording may have left
    } catch (const Error&) {
      disable();
      throw;
    }
    take_records();
  }
  ~Recording() { disable(); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Waits for the card and returns the records, except waits that began after this call.
  std::vector<LaunchRecord> finish() {
    uint64_t end = 0;
    lib_.check(lib_.timestamp(&end), "cuptiGetTimestamp");
    MKBENCH_CUDA(cudaDeviceSynchronize());
    flush();
    size_t dropped = 0;
    lib_.check(lib_.dropped_records(nullptr, 0, &dropped), "cuptiActivityGetNumDroppedRecords");
    if (dropped > 0) refuse(std::to_string(dropped) + " records were dropped");
    std::vector<LaunchRecord> records = take_records();
    std::erase_if(records, [end](const LaunchRecord& r) {
      return r.what == LaunchRecord::What::kWait && r.begin_ns >= end;
    });
    if (records.empty()) refuse("nothing was recorded");
    return records;
  }

 private:
  void flush() const {
    lib_.check(lib_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  }
  void disable() const {
    for (const CUpti_ActivityKind kind : kKinds) lib_.disable(kind);
  }
  static std::vector<LaunchRecord> take_records() {
    const std::lock_guard lock(received().mutex);
    return std::exchange(received().records, {});
  }

  const Cupti& lib_ = cupti();
};

#endif

}  // namespace

LaunchTrace record_launches(const std::function<void()>& work) {
  LaunchTrace trace;
  if (!has_gpu()) {
    trace.problem = "no GPU";
    return trace;
  }
#ifdef MKBENCH_CUPTI
  std::optional<Recording> recording;
  try {
    recording.emplace();
  } catch (const Error& error) {
    trace.problem = error.what();
    return trace;
  }
  work();
  try {
    return sum_launches(recording->finish());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kEnvUnfit) throw;
    trace.problem = error.what();
    return trace;
  }
#else
  (void)work;
  trace.problem = "this build was made without CUPTI's headers";
  return trace;
#endif
}

}  // namespace mkbench
