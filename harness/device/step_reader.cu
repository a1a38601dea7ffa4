#include <cuda_runtime.h>

#include <algorithm>

#include "harness/device/bulk_stream.cuh"
#include "harness/device/step_reader.h"
#include "kernels/cuda_event.h"
#include "kernels/device_buffer.h"

namespace mkbench {
namespace {

constexpr int kPlainThreads = 512;
constexpr int kLoadsInFlight = 4;  // 16-byte loads of one thread
constexpr uint32_t kPlainChunk = kPlainThreads * sizeof(uint4);
static_assert(StepReader::kGranule % kPlainChunk == 0);

// A pass may hit lines that the pass before left in L2: under 0.4 % of this buffer on a card with
// 60 MB of L2.
constexpr int64_t kLargestBuffer = int64_t{16} << 30;
// On an H100 or H200 a launch lasts 3 ms or more, so that its overhead is under 0.2 %.
constexpr int64_t kBytesPerLaunch = int64_t{16} << 30;

__global__ void fill_words(uint4* buffer, int64_t count) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const uint32_t x = static_cast<uint32_t>(i) * 2654435761u;
    buffer[i] = make_uint4(x, x ^ (x >> 15), x * 40503u, ~x);
  }
}

__device__ __forceinline__ uint4 load_hinted(const uint4* from, uint64_t policy) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(__cvta_generic_to_global(from)), "l"(policy));
  return v;
}

// A block reads chunks of 8 KiB, each thread 16 bytes of every chunk. kKeeps: L2 is asked to keep
// the first `kept` chunks of each step.
template <bool kKeeps>
__global__ void __launch_bounds__(kPlainThreads)
    read_plain(const uint4* __restrict__ buffer, StepBytes bytes, bool back_and_forth,
               uint32_t kept, uint32_t* sink) {
  StepWalk walk(bytes, back_and_forth, kPlainChunk, blockIdx.x, gridDim.x);
  [[maybe_unused]] const KeepPolicies policies = kKeeps ? keep_policies() : KeepPolicies{};
  uint32_t sum = 0;
  // Not unrolled: more than kLoadsInFlight loads would cost registers, and so threads.
#pragma unroll 1
  while (!walk.done()) {
    uint4 v[kLoadsInFlight];
#pragma unroll
    for (int j = 0; j < kLoadsInFlight; ++j) {
      v[j] = make_uint4(0, 0, 0, 0);
      if (walk.done()) continue;
      const uint32_t chunk = walk.chunk();
      const uint4* from = buffer + uint64_t{chunk} * kPlainThreads + threadIdx.x;
      if constexpr (kKeeps) {
        v[j] = load_hinted(from, chunk < kept ? policies.keep : policies.pass);
      } else {
        v[j] = __ldcs(from);
      }
      walk.next();
    }
#pragma unroll
    for (int j = 0; j < kLoadsInFlight; ++j) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  // The sum depends on every load, so no load can be dropped; this value practically never occurs.
  if (sum == 0x9e3779b9u) *sink = sum;
}

template <bool kKeeps>
__global__ void __launch_bounds__(32)
    read_bulk(const char* buffer, StepBytes bytes, ReadPattern pattern, int* fault) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char ring[];
  __shared__ __align__(8) uint64_t full[BulkPlan::kMostStages];
  if (threadIdx.x != 0) return;
  const StepWalk walk(bytes, pattern.back_and_forth, pattern.plan.copy_bytes, blockIdx.x,
                      gridDim.x);
  if (!stream_bulk<kKeeps>(buffer, walk, pattern.plan, uint64_t{pattern.kept_mib} << 20, ring,
                           full))
    *fault = 1 + static_cast<int>(blockIdx.x);
#endif
}

template __global__ void read_plain<false>(const uint4*, StepBytes, bool, uint32_t, uint32_t*);
template __global__ void read_plain<true>(const uint4*, StepBytes, bool, uint32_t, uint32_t*);
template __global__ void read_bulk<false>(const char*, StepBytes, ReadPattern, int*);
template __global__ void read_bulk<true>(const char*, StepBytes, ReadPattern, int*);

}  // namespace

void fill_with_bits(void* memory, int64_t bytes) {
  constexpr int kBlocks = 1024;
  if (bytes <= 0) return;
  fill_words<<<kBlocks, kPlainThreads>>>(static_cast<uint4*>(memory), bytes / int64_t{16});
  MKBENCH_CUDA(cudaGetLastError());
}

#ifndef __CUDACC_RTC__  // NVRTC, in dev/check_cuda128.py, has no exceptions
struct StepReader::State {
  int multiprocessors = 0, compute_major = 0;
  int plain_blocks = 0;
  ReadPattern before;              // of the last read
  DeviceBuffer<uint32_t> sink{1};  // the plain kernel's sum; practically never written
  // 1 + the block whose copy never arrived, or 0. Mapped memory: the host reads it without a copy.
  MappedValue<int> fault;
  Event first, last;
};

StepReader::StepReader(int gpu) {
  MKBENCH_CUDA(cudaSetDevice(gpu));
  state_ = std::make_unique<State>();
  State& s = *state_;
  MKBENCH_CUDA(cudaDeviceGetAttribute(&s.multiprocessors, cudaDevAttrMultiProcessorCount, gpu));
  MKBENCH_CUDA(cudaDeviceGetAttribute(&s.compute_major, cudaDevAttrComputeCapabilityMajor, gpu));
  // All blocks are resident; a second wave would leave multiprocessors idle at its end.
  int blocks_per_sm = 0;
  MKBENCH_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, read_plain<true>,
                                                             kPlainThreads, 0));
  s.plain_blocks = blocks_per_sm * s.multiprocessors;
  for (const auto kernel : {read_bulk<false>, read_bulk<true>}) {
    MKBENCH_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(BulkPlan::kMostRingBytes)));
  }
  *s.fault.host() = 0;
}

StepReader::~StepReader() = default;

bool StepReader::has_bulk_copy() const { return state_->compute_major >= 9; }

int StepReader::blocks() const { return state_->multiprocessors; }

double StepReader::read(const ReadPattern& pattern, const void* memory, const StepBytes& bytes) {
  State& s = *state_;
  const bool bulk = pattern.way == ReadPattern::Way::kBulk;
  const BulkPlan& plan = pattern.plan;
  const bool known_size = plan.copy_bytes >= 16 && kGranule % plan.copy_bytes == 0;
  const bool fits = known_size && plan.stages >= 1 && plan.stages <= BulkPlan::kMostStages &&
                    plan.ring_bytes() <= BulkPlan::kMostRingBytes;
  if (pattern.way == ReadPattern::Way::kRing || (bulk && (!has_bulk_copy() || !fits))) {
    throw Error(ErrorKind::kBadInput,
                "read bandwidth: this card or this kernel cannot read by " + pattern_text(pattern));
  }
  // What L2 was asked to keep for another pattern is no gain of this one.
  if (s.before.kept_mib > 0 && !(s.before == pattern))
    MKBENCH_CUDA(cudaCtxResetPersistingL2Cache());
  s.before = pattern;
  s.first.record();
  const bool keeps = pattern.kept_mib > 0;
  if (bulk) {
    const auto kernel = keeps ? read_bulk<true> : read_bulk<false>;
    kernel<<<s.multiprocessors, 32, plan.ring_bytes()>>>(static_cast<const char*>(memory), bytes,
                                                         pattern, s.fault.device());
  } else {
    const auto kernel = keeps ? read_plain<true> : read_plain<false>;
    kernel<<<s.plain_blocks, kPlainThreads>>>(
        static_cast<const uint4*>(memory), bytes, pattern.back_and_forth,
        pattern.kept_mib * ((1u << 20) / kPlainChunk), s.sink.get());
  }
  MKBENCH_CUDA(cudaGetLastError());
  s.last.record();
  MKBENCH_CUDA(cudaDeviceSynchronize());
  if (const int fault = *s.fault.host(); fault != 0) {
    *s.fault.host() = 0;
    throw Error(ErrorKind::kHang, "read bandwidth: a bulk copy of block " +
                                      std::to_string(fault - 1) + " never arrived");
  }
  return s.last.ms_since(s.first);
}

struct ReadProbe::State {
  explicit State(int gpu) : reader(gpu) {}
  StepReader reader;
  DeviceBuffer<char> buffer;
  StepBytes bytes{};
};

ReadProbe::ReadProbe(int gpu) {
  state_ = std::make_unique<State>(gpu);
  State& s = *state_;
  int l2_bytes = 0;
  MKBENCH_CUDA(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, gpu));
  size_t free = 0, total = 0;
  MKBENCH_CUDA(cudaMemGetInfo(&free, &total));
  const int64_t bytes = std::min(kLargestBuffer, static_cast<int64_t>(free / 2)) /
                        StepReader::kGranule * StepReader::kGranule;
  const int64_t least = int64_t{8} * l2_bytes;
  if (bytes < least || bytes == 0) {
    throw Error(ErrorKind::kEnvUnfit, "read bandwidth: " + std::to_string(free) +
                                          " bytes of device memory free, wanted " +
                                          std::to_string(2 * least) + " (16 x L2)");
  }
  s.buffer = DeviceBuffer<char>(static_cast<size_t>(bytes));
  s.bytes = {static_cast<uint64_t>(bytes), 0,
             static_cast<uint32_t>((kBytesPerLaunch + bytes - 1) / bytes)};
  fill_with_bits(s.buffer.get(), bytes);
}

ReadProbe::~ReadProbe() = default;

bool ReadProbe::has_bulk_copy() const { return state_->reader.has_bulk_copy(); }

int64_t ReadProbe::bytes_per_launch() const { return static_cast<int64_t>(state_->bytes.all()); }

double ReadProbe::ms(const ReadPattern& pattern) {
  return state_->reader.read(pattern, state_->buffer.get(), state_->bytes);
}
#endif

}  // namespace mkbench
