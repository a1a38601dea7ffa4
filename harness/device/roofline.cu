#include <cuda_runtime.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "harness/device/bulk_stream.cuh"
#include "harness/device/roofline.h"
#include "kernels/cuda_event.h"
#include "kernels/device_buffer.h"

namespace mkbench {
namespace {

// A pass may hit lines that L2 holds from the pass before: under 0.4 % of this buffer on a card
// with 60 MB of L2.
constexpr int64_t kLargestBuffer = int64_t{16} << 30;
// 3 ms and more, so that the launch overhead is under 0.2 %.
constexpr int64_t kBytesPerLaunch = int64_t{16} << 30;
constexpr int kSamples = 9;
constexpr int kWarmUps = 3;
constexpr int kPlainThreads = 512;
constexpr int kLoadsInFlight = 4;  // 16-byte loads of one thread

// Fills the buffer with distinct bits, because reading constant data draws less power than reading
// weights.
__global__ void fill_words(uint4* buffer, int64_t count) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const uint32_t x = static_cast<uint32_t>(i) * 2654435761u;
    buffer[i] = make_uint4(x, x ^ (x >> 15), x * 40503u, ~x);
  }
}

// Reads buffer[0, count) `passes` times; count is a multiple of grid * block * kLoadsInFlight.
__global__ void __launch_bounds__(kPlainThreads)
    read_plain(const uint4* __restrict__ buffer, int64_t count, int passes, uint32_t* sink) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  uint32_t sum = 0;
  for (int pass = 0; pass < passes; ++pass) {
    // Not unrolled: more loads in flight than those below would cost registers, and so threads.
#pragma unroll 1
    for (int64_t i = first; i < count; i += kLoadsInFlight * stride) {
      uint4 v[kLoadsInFlight];
#pragma unroll
      for (int j = 0; j < kLoadsInFlight; ++j) v[j] = __ldcs(buffer + i + j * stride);
#pragma unroll
      for (int j = 0; j < kLoadsInFlight; ++j) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
  }
  // The sum depends on every load, so no load can be dropped; this value practically never occurs.
  if (sum == 0x9e3779b9u) *sink = sum;
}

// Sets *fault to 1 + block when a copy never arrives, and *cycles to the cycles of block 0.
__global__ void __launch_bounds__(32)
    read_bulk(const char* buffer, uint32_t copies_in_buffer, int passes, BulkPlan plan, int* fault,
              long long* cycles) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char ring[];
  __shared__ __align__(8) uint64_t full[BulkPlan::kMostStages];
  if (threadIdx.x != 0) return;
  const uint32_t total = copies_in_buffer * passes;
  const uint32_t mine = (total - blockIdx.x + gridDim.x - 1) / gridDim.x;
  const long long start = clock64();
  if (!stream_bulk(buffer, copies_in_buffer, mine, plan, ring, full)) {
    *fault = 1 + static_cast<int>(blockIdx.x);
  }
  if (blockIdx.x == 0) *cycles = clock64() - start;
#endif
}

// Milliseconds of the work that launch() puts on the default stream.
double time_ms(const std::function<void()>& launch) {
  Event first, last;
  first.record();
  launch();
  MKBENCH_CUDA(cudaGetLastError());
  last.record();
  MKBENCH_CUDA(cudaDeviceSynchronize());
  return last.ms_since(first);
}

double median_ms(const std::function<double()>& sample) {
  for (int i = 0; i < kWarmUps; ++i) sample();
  std::vector<double> ms;
  for (int i = 0; i < kSamples; ++i) ms.push_back(sample());
  std::nth_element(ms.begin(), ms.begin() + kSamples / 2, ms.end());
  return ms[kSamples / 2];
}

// The largest buffer up to 16 GiB that leaves half of the free memory alone.
int64_t choose_buffer_bytes(const cudaDeviceProp& properties) {
  size_t free = 0, total = 0;
  MKBENCH_CUDA(cudaMemGetInfo(&free, &total));
  const int64_t bytes = std::min(kLargestBuffer, static_cast<int64_t>(free / 2));
  const int64_t least = 8 * static_cast<int64_t>(properties.l2CacheSize);
  if (bytes < least) {
    throw Error(ErrorKind::kEnvUnfit, "read bandwidth: " + std::to_string(free) +
                                          " bytes of device memory free, wanted " +
                                          std::to_string(2 * least) + " (16 x L2)");
  }
  return bytes;
}

}  // namespace

std::string pattern_text(const BulkPlan& plan) {
  return std::to_string(plan.stages) + " x " + std::to_string(plan.copy_bytes / 1024) +
         " KiB in flight, " + std::to_string(plan.gap_cycles) + " cycles apart";
}

struct ReadProbe::State {
  cudaDeviceProp properties{};
  int blocks = 0;  // of the plain kernel
  int passes = 0;  // over the buffer in one launch
  DeviceBuffer<uint4> buffer;
  DeviceBuffer<uint32_t> sink{1};  // where the plain kernel's sum would go
  DeviceBuffer<int> fault{1};
  DeviceBuffer<long long> cycles{1};  // of the last bulk launch
  double copies_a_block = 0;          // of the last bulk launch

  int64_t count() const { return static_cast<int64_t>(buffer.size()); }
};

ReadProbe::ReadProbe(int gpu) {
  MKBENCH_CUDA(cudaSetDevice(gpu));
  state_ = std::make_unique<State>();
  State& s = *state_;
  MKBENCH_CUDA(cudaGetDeviceProperties(&s.properties, gpu));
  // All blocks are resident; a second wave would leave multiprocessors idle at its end.
  int blocks_per_sm = 0;
  MKBENCH_CUDA(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, read_plain, kPlainThreads, 0));
  s.blocks = blocks_per_sm * s.properties.multiProcessorCount;
  // A multiple of one round of the plain kernel, which is a multiple of 16 KiB copies too.
  const int64_t round = int64_t{s.blocks} * kPlainThreads * kLoadsInFlight * int64_t{sizeof(uint4)};
  const int64_t bytes = choose_buffer_bytes(s.properties) / round * round;
  s.passes = static_cast<int>((kBytesPerLaunch + bytes - 1) / bytes);
  s.buffer = DeviceBuffer<uint4>(static_cast<size_t>(bytes) / sizeof(uint4));
  MKBENCH_CUDA(cudaMemset(s.fault.get(), 0, s.fault.bytes()));
  MKBENCH_CUDA(cudaFuncSetAttribute(read_bulk, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(BulkPlan::kMostRingBytes)));
  fill_words<<<s.blocks, kPlainThreads>>>(s.buffer.get(), s.count());
  MKBENCH_CUDA(cudaGetLastError());
}

ReadProbe::~ReadProbe() = default;

bool ReadProbe::has_bulk_copy() const { return state_->properties.major >= 9; }

int64_t ReadProbe::buffer_bytes() const { return static_cast<int64_t>(state_->buffer.bytes()); }

int64_t ReadProbe::bytes_per_launch() const { return state_->passes * buffer_bytes(); }

const char* ReadProbe::buffer() const {
  return reinterpret_cast<const char*>(state_->buffer.get());
}

double ReadProbe::plain_ms() {
  State& s = *state_;
  return time_ms([&] {
    read_plain<<<s.blocks, kPlainThreads>>>(s.buffer.get(), s.count(), s.passes, s.sink.get());
  });
}

double ReadProbe::bulk_ms(const BulkPlan& plan) {
  State& s = *state_;
  const bool known_size = plan.copy_bytes >= 16 && 16 * 1024 % plan.copy_bytes == 0;
  if (!has_bulk_copy() || !known_size || plan.stages < 1 || plan.stages > BulkPlan::kMostStages ||
      plan.ring_bytes() > BulkPlan::kMostRingBytes) {
    throw Error(ErrorKind::kBadInput, "read bandwidth: no bulk copies of " + pattern_text(plan) +
                                          " on " + s.properties.name);
  }
  const uint32_t copies = static_cast<uint32_t>(buffer_bytes() / plan.copy_bytes);
  const double ms = time_ms([&] {
    read_bulk<<<s.properties.multiProcessorCount, 32, plan.ring_bytes()>>>(
        buffer(), copies, s.passes, plan, s.fault.get(), s.cycles.get());
  });
  s.copies_a_block = 1.0 * copies * s.passes / s.properties.multiProcessorCount;
  int fault = 0;
  MKBENCH_CUDA(cudaMemcpy(&fault, s.fault.get(), sizeof(fault), cudaMemcpyDeviceToHost));
  if (fault != 0) {
    throw Error(ErrorKind::kHang, "read bandwidth: a bulk copy of block " +
                                      std::to_string(fault - 1) + " never arrived");
  }
  return ms;
}

double ReadProbe::cycles_a_copy() const {
  if (!(state_->copies_a_block > 0))
    throw Error(ErrorKind::kRuntime, "read bandwidth: no bulk copies were timed yet");
  long long cycles = 0;
  MKBENCH_CUDA(cudaMemcpy(&cycles, state_->cycles.get(), sizeof(cycles), cudaMemcpyDeviceToHost));
  return static_cast<double>(cycles) / state_->copies_a_block;
}

ReadBandwidth measure_read_bandwidth(int gpu) {
  ReadProbe probe(gpu);
  ReadBandwidth result;
  result.buffer_bytes = probe.buffer_bytes();
  result.bytes_per_sample = probe.bytes_per_launch();
  result.samples = kSamples;
  const double bytes = static_cast<double>(result.bytes_per_sample);
  result.plain_gb_per_s = bytes / (1e6 * median_ms([&] { return probe.plain_ms(); }));
  if (!probe.has_bulk_copy()) return result;
  // The best of a few patterns: cards differ in the bytes in flight that are fastest, and an even
  // stream is read faster than one in bursts (H100: 2 %). Gaps are shares of the cycles that a copy
  // takes unpaced on this card.
  for (const uint32_t stages : {3u, 4u, 6u}) {
    double cycles = 0;
    for (const double share : {0.0, 0.95, 0.965, 0.98}) {
      const BulkPlan plan{stages, 16 * 1024, static_cast<uint32_t>(share * cycles)};
      const double rate = bytes / (1e6 * median_ms([&] { return probe.bulk_ms(plan); }));
      if (share == 0) cycles = probe.cycles_a_copy();
      if (rate <= result.bulk_gb_per_s) continue;
      result.bulk_gb_per_s = rate;
      result.bulk_pattern = pattern_text(plan);
    }
  }
  return result;
}

}  // namespace mkbench
