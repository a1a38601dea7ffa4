#include <cuda_runtime.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "harness/device/bulk_copy.cuh"
#include "harness/device/roofline.h"
#include "kernels/cuda_event.h"
#include "kernels/device_buffer.h"

namespace mkbench {
namespace {

// A pass may find what L2 still holds of the pass before: under 0.4 % of this on a card with 60 MB.
constexpr int64_t kLargestBuffer = int64_t{16} << 30;
constexpr int64_t kBytesPerSample = int64_t{16}
                                    << 30;  // 3 ms and more: launch overhead under 0.2 %
constexpr int kSamples = 9;
constexpr int kWarmUps = 3;
constexpr int kPlainThreads = 512;
constexpr int kLoadsInFlight = 4;    // 16-byte loads of one thread
constexpr uint32_t kMostStages = 6;  // 96 KiB a block: within every card's limit from sm_90 on

// Distinct bits everywhere: constant data draws less power than weights do.
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
#pragma unroll 1  // the loads in flight are those below; a longer body costs registers and so
                  // threads
    for (int64_t i = first; i < count; i += kLoadsInFlight * stride) {
      uint4 v[kLoadsInFlight];
#pragma unroll
      for (int j = 0; j < kLoadsInFlight; ++j) v[j] = __ldcs(buffer + i + j * stride);
#pragma unroll
      for (int j = 0; j < kLoadsInFlight; ++j) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
  }
  // Depends on every load, so none can be dropped, and is as good as never written.
  if (sum == 0x9e3779b9u) *sink = sum;
}

struct BulkPlan {
  uint32_t stages;      // copies in flight
  uint32_t copy_bytes;  // of one copy
  uint32_t gap_cycles;  // between two issues
};

// One thread of each block streams its share of `passes` times the buffer into a ring in shared
// memory that nobody reads. Block b takes copies b, b + grid, ..: neighbours read adjacent memory.
// *fault = 1 + block when a copy never arrives.
__global__ void __launch_bounds__(32) read_bulk(const char* buffer, uint32_t copies_in_buffer,
                                                int passes, BulkPlan plan, int* fault) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char ring[];
  __shared__ __align__(8) uint64_t full[kMostStages];
  if (threadIdx.x != 0) return;
  for (int s = 0; s < plan.stages; ++s) barrier_init(&full[s], 1);
  barrier_init_fence();

  const uint32_t total = copies_in_buffer * passes;
  const uint32_t mine = (total - blockIdx.x + gridDim.x - 1) / gridDim.x;
  uint32_t issued = 0, source = blockIdx.x, issue_slot = 0, wait_slot = 0, parity = 0;
  long long next_issue = clock64();
  for (uint32_t done = 0; done < mine; ++done) {
    // Keeps `stages` copies in flight, paced: the memory system serves an even stream best.
    while (issued < mine && issued - done < plan.stages) {
      while (clock64() < next_issue) {
      }
      next_issue = clock64() + plan.gap_cycles;
      barrier_expect_bytes(&full[issue_slot], plan.copy_bytes);
      bulk_copy_to_shared(ring + issue_slot * plan.copy_bytes,
                          buffer + uint64_t{source} * plan.copy_bytes, plan.copy_bytes,
                          &full[issue_slot]);
      ++issued;
      issue_slot = issue_slot + 1 == plan.stages ? 0 : issue_slot + 1;
      source += gridDim.x;
      if (source >= copies_in_buffer) source -= copies_in_buffer;
    }
    if (!barrier_wait_bounded(&full[wait_slot], parity)) {
      *fault = 1 + static_cast<int>(blockIdx.x);
      return;
    }
    if (++wait_slot == plan.stages) {
      wait_slot = 0;
      parity ^= 1;
    }
  }
#endif
}

// Milliseconds of what `launch` puts on the default stream.
double time_ms(const std::function<void()>& launch) {
  Event first, last;
  first.record();
  launch();
  MKBENCH_CUDA(cudaGetLastError());
  last.record();
  MKBENCH_CUDA(cudaDeviceSynchronize());
  return last.ms_since(first);
}

double median_gb_per_s(int64_t bytes, const std::function<void()>& launch) {
  for (int i = 0; i < kWarmUps; ++i) time_ms(launch);
  std::vector<double> ms;
  for (int i = 0; i < kSamples; ++i) ms.push_back(time_ms(launch));
  std::nth_element(ms.begin(), ms.begin() + kSamples / 2, ms.end());
  return static_cast<double>(bytes) / (ms[kSamples / 2] * 1e6);
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

std::string pattern_text(const BulkPlan& plan) {
  return std::to_string(plan.stages) + " x " + std::to_string(plan.copy_bytes / 1024) +
         " KiB in flight, " + std::to_string(plan.gap_cycles) + " cycles apart";
}

// Fills in the bulk half of `result`: the best of a few patterns, because cards differ in how many
// bytes they like in flight.
void measure_bulk(const DeviceBuffer<uint4>& buffer, int* fault, int blocks,
                  ReadBandwidth& result) {
  constexpr uint32_t kCopyBytes = 16 * 1024;
  const uint32_t copies = static_cast<uint32_t>(result.buffer_bytes / kCopyBytes);
  const int passes = static_cast<int>(result.bytes_per_sample / result.buffer_bytes);
  MKBENCH_CUDA(cudaFuncSetAttribute(read_bulk, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(kMostStages * kCopyBytes)));
  for (const uint32_t stages : {3u, 4u, 6u}) {
    for (const uint32_t gap_cycles : {0u, 700u}) {
      const BulkPlan plan{stages, kCopyBytes, gap_cycles};
      const double rate = median_gb_per_s(result.bytes_per_sample, [&] {
        read_bulk<<<blocks, 32, stages * kCopyBytes>>>(reinterpret_cast<const char*>(buffer.get()),
                                                       copies, passes, plan, fault);
      });
      if (rate <= result.bulk_gb_per_s) continue;
      result.bulk_gb_per_s = rate;
      result.bulk_pattern = pattern_text(plan);
    }
  }
}

}  // namespace

ReadBandwidth measure_read_bandwidth(int gpu) {
  MKBENCH_CUDA(cudaSetDevice(gpu));
  cudaDeviceProp properties{};
  MKBENCH_CUDA(cudaGetDeviceProperties(&properties, gpu));

  // Every block resident: a second wave would leave multiprocessors idle at its end.
  int blocks_per_sm = 0;
  MKBENCH_CUDA(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, read_plain, kPlainThreads, 0));
  const int blocks = blocks_per_sm * properties.multiProcessorCount;
  // Whole rounds of the plain kernel, and so whole copies of 16 KiB too.
  const int64_t round = int64_t{blocks} * kPlainThreads * kLoadsInFlight * int64_t{sizeof(uint4)};
  ReadBandwidth result;
  result.buffer_bytes = choose_buffer_bytes(properties) / round * round;
  const int passes =
      static_cast<int>((kBytesPerSample + result.buffer_bytes - 1) / result.buffer_bytes);
  result.bytes_per_sample = passes * result.buffer_bytes;
  result.samples = kSamples;

  const int64_t count = result.buffer_bytes / int64_t{sizeof(uint4)};
  const DeviceBuffer<uint4> buffer(static_cast<size_t>(count));
  const DeviceBuffer<uint32_t> sink(1);  // where the plain kernel's sum would go
  const DeviceBuffer<int> bulk_fault(1);
  MKBENCH_CUDA(cudaMemset(bulk_fault.get(), 0, bulk_fault.bytes()));
  fill_words<<<blocks, kPlainThreads>>>(buffer.get(), count);
  MKBENCH_CUDA(cudaGetLastError());

  result.plain_gb_per_s = median_gb_per_s(result.bytes_per_sample, [&] {
    read_plain<<<blocks, kPlainThreads>>>(buffer.get(), count, passes, sink.get());
  });
  if (properties.major >= 9) {
    measure_bulk(buffer, bulk_fault.get(), properties.multiProcessorCount, result);
    int fault = 0;
    MKBENCH_CUDA(cudaMemcpy(&fault, bulk_fault.get(), sizeof(fault), cudaMemcpyDeviceToHost));
    if (fault != 0) {
      throw Error(ErrorKind::kHang, "read bandwidth: a bulk copy of block " +
                                        std::to_string(fault - 1) + " never arrived");
    }
  }
  return result;
}

}  // namespace mkbench
