#include "harness/micro/exchange_run.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "kernels/launch_checks.h"
#include "kernels/ring/fault_word.h"

namespace mkbench::micro {
namespace {

// Words of control_, each on a line of its own: pollers of one do not slow the others.
enum Control : size_t {
  kArrivals = 0,
  kAbort = 32,
  kWrong = 64,
  kEndLoad = 96,
  kStarted = 128,
  kFault = 160
};
constexpr size_t kControlWords = 192;

constexpr unsigned kSpinLimitUs = 200'000;  // an exchange takes microseconds
constexpr unsigned long long kLoadLimitNs = 500'000'000;
constexpr auto kStartLimit = std::chrono::seconds(2);

// More than half of a multiprocessor's shared memory: one block of the load on each.
int load_shared_bytes(const BulkPlan& plan, const cudaDeviceProp& properties) {
  return std::max(static_cast<int>(plan.ring_bytes()),
                  static_cast<int>(properties.sharedMemPerMultiprocessor / 2));
}

// No load outlives its run, however that ends.
struct LoadEnd {
  cudaStream_t stream;
  ~LoadEnd() { cudaStreamSynchronize(stream); }
};

template <typename T>
std::vector<T> fetch(const DeviceBuffer<T>& buffer) {
  std::vector<T> values(buffer.size());
  MKBENCH_CUDA(cudaMemcpy(values.data(), buffer.get(), buffer.bytes(), cudaMemcpyDeviceToHost));
  return values;
}

}  // namespace

ExchangeRunner::ExchangeRunner()
    : words_(2 * kArrayBytes),
      round_cycles_(kRounds),
      multiprocessors_(ring::kBlocks),
      control_(kControlWords),
      window_ns_(2) {
  MKBENCH_CUDA(cudaGetDeviceProperties(&properties_, 0));
  load_reports_ = DeviceBuffer<LoadReport>(static_cast<size_t>(properties_.multiProcessorCount));
  // Non-blocking: the exchange, on the default stream, must not wait for the load.
  MKBENCH_CUDA(cudaStreamCreateWithFlags(&load_stream_, cudaStreamNonBlocking));
}

ExchangeRunner::~ExchangeRunner() { cudaStreamDestroy(load_stream_); }

void ExchangeRunner::clear() {
  MKBENCH_CUDA(cudaMemset(words_.get(), 0, words_.bytes()));
  MKBENCH_CUDA(cudaMemset(control_.get(), 0, control_.bytes()));
  MKBENCH_CUDA(cudaMemset(load_reports_.get(), 0, load_reports_.bytes()));
  *status_.host() = KernelStatus{-1, 0, 0, 0, 0, 0, 0, 0};
  *load_running_.host() = 0;
  MKBENCH_CUDA(cudaDeviceSynchronize());
}

void ExchangeRunner::check_fit(const void* kernel, const std::optional<BulkPlan>& load) const {
  if (properties_.multiProcessorCount < ring::kBlocks) {
    throw Error(ErrorKind::kUnsupportedDevice,
                "exchange: " + std::to_string(properties_.multiProcessorCount) +
                    " multiprocessors, wanted " + std::to_string(ring::kBlocks));
  }
  require_co_resident("exchange", {kernel, ring::kBlocks, kExchangeThreads, 0}, 0);
  // All of L1 as shared memory, with and without a load: it must not be divided anew between them.
  MKBENCH_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared));
  if (!load) return;
  if (properties_.major < 9) throw Error(ErrorKind::kUnsupportedDevice, "bulk copies need sm_90");
  cudaFuncAttributes exchange{}, loader{};
  MKBENCH_CUDA(cudaFuncGetAttributes(&exchange, kernel));
  MKBENCH_CUDA(cudaFuncGetAttributes(&loader, load_kernel()));  // loads its code, too
  const size_t needed = exchange.sharedSizeBytes + loader.sharedSizeBytes +
                        static_cast<size_t>(load_shared_bytes(*load, properties_)) +
                        2 * properties_.reservedSharedMemPerBlock;
  if (needed > properties_.sharedMemPerMultiprocessor) {
    throw Error(ErrorKind::kUnsupportedDevice,
                "exchange beside a load of " + pattern_text(*load) + ": " + std::to_string(needed) +
                    " bytes of shared memory, found " +
                    std::to_string(properties_.sharedMemPerMultiprocessor));
  }
}

// Returns once all blocks of the load run.
void ExchangeRunner::start_load(const BulkPlan& plan, const ReadProbe& probe) {
  const int bytes = load_shared_bytes(plan, properties_);
  MKBENCH_CUDA(
      cudaFuncSetAttribute(load_kernel(), cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  MKBENCH_CUDA(cudaFuncSetAttribute(load_kernel(), cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared));
  LoadParams p{.buffer = probe.buffer(),
               .copies_in_buffer = static_cast<unsigned>(probe.buffer_bytes() / plan.copy_bytes),
               .plan = plan,
               .end_load = control_.get() + kEndLoad,
               .started = control_.get() + kStarted,
               .all_running = load_running_.device(),
               .reports = load_reports_.get(),
               .limit_ns = kLoadLimitNs};
  void* arguments[] = {&p};
  MKBENCH_CUDA(cudaLaunchKernel(load_kernel(),
                                dim3(static_cast<unsigned>(properties_.multiProcessorCount)),
                                dim3(32), arguments, static_cast<size_t>(bytes), load_stream_));
  const volatile int* running = load_running_.host();
  const auto start = std::chrono::steady_clock::now();
  while (*running == 0) {
    if (std::chrono::steady_clock::now() - start > kStartLimit)
      throw Error(ErrorKind::kHang, "exchange: the load never ran on all multiprocessors");
    std::this_thread::yield();
  }
}

void ExchangeRunner::check_outcome() const {
  const std::vector<unsigned> control = fetch(control_);
  KernelStatus status = *status_.host();
  const ring::FaultWord fault = control[kFault] | static_cast<ring::FaultWord>(control[kFault + 1])
                                                      << 32;
  if (fault != 0) ring::unpack_fault(fault, status);
  if (status.raised != 0) {
    throw Error(ErrorKind::kHang,
                "exchange: block " + std::to_string(status.block) + " waited in vain in round " +
                    std::to_string(status.position) + ": saw " + std::to_string(status.seen) +
                    ", expected " + std::to_string(status.expected));
  }
  const unsigned wrong = control[kWrong];
  if (wrong != 0) {
    throw Error(ErrorKind::kIntegrity,
                "exchange: " + std::to_string(wrong) + " threads read a wrong value");
  }
}

double ExchangeRunner::load_rate(const BulkPlan& plan, unsigned long long window_end_ns) const {
  constexpr unsigned long long kTimerStepNs = 1024;
  double rate = 0;
  for (const LoadReport& block : fetch(load_reports_)) {
    if (block.copies == 0)
      throw Error(ErrorKind::kHang, "exchange: a bulk copy of the load never arrived");
    if (block.end_ns + kTimerStepNs < window_end_ns)
      throw Error(ErrorKind::kRuntime, "exchange: the load ended before the last round");
    rate += static_cast<double>(block.copies * plan.copy_bytes) /
            static_cast<double>(block.end_ns - block.begin_ns);
  }
  return rate;
}

ExchangeResult ExchangeRunner::run(Protocol protocol, const std::optional<BulkPlan>& load,
                                   ReadProbe* probe) {
  const void* kernel = exchange_kernel(protocol);
  check_fit(kernel, load);
  clear();
  ExchangeParams p{};
  p.plain.arrivals = control_.get() + kArrivals;
  p.plain.abort = control_.get() + kAbort;
  p.ring.fault = reinterpret_cast<ring::FaultWord*>(control_.get() + kFault);
  p.plain.status = status_.device();
  p.plain.stall_block = p.ring.stall_block = -1;
  p.plain.spin_limit_ns = 1000ull * kSpinLimitUs;
  p.ring.spin_limit_us = kSpinLimitUs;
  p.words = words_.get();
  p.rounds = kRounds;
  p.round_cycles = round_cycles_.get();
  p.window_ns = window_ns_.get();
  p.wrong = control_.get() + kWrong;
  p.multiprocessors = multiprocessors_.get();
  p.end_load = control_.get() + kEndLoad;
  {
    const LoadEnd end{load_stream_};
    if (load) start_load(*load, *probe);
    void* arguments[] = {&p};
    MKBENCH_CUDA(cudaLaunchCooperativeKernel(kernel, dim3(ring::kBlocks), dim3(kExchangeThreads),
                                             arguments, 0, nullptr));
    MKBENCH_CUDA(cudaStreamSynchronize(nullptr));
  }
  MKBENCH_CUDA(cudaDeviceSynchronize());
  check_outcome();

  ExchangeResult result;
  const std::vector<unsigned> cycles = fetch(round_cycles_);
  const std::vector<unsigned long long> window = fetch(window_ns_);
  result.cycles.assign(cycles.begin() + kWarmUpRounds, cycles.end());
  double all_cycles = 0;
  for (const unsigned c : cycles) all_cycles += c;
  const double window_ns = static_cast<double>(window[1] - window[0]);
  result.window_ms = window_ns * 1e-6;
  result.sm_ghz = all_cycles / window_ns;
  const std::vector<unsigned> places = fetch(multiprocessors_);
  result.multiprocessors =
      static_cast<int>(std::set<unsigned>(places.begin(), places.end()).size());
  if (load) result.load_gb_per_s = load_rate(*load, window[1]);
  return result;
}

}  // namespace mkbench::micro
