// naive_cuda.cu with one change to decode(): it leaves work behind when it returns. For tests; see
// T7 and T14 of the faults of timing.
#define mkbench_engine_table sound_engine_table
#include "tests/plugins/naive_cuda.cu"
#undef mkbench_engine_table

#include <atomic>
#include <chrono>
#include <thread>

namespace {

const mkbench_engine_abi* sound = nullptr;  // set when the library is loaded
#if !defined(LEFT_SPINNING)
// One block that computes for `ns` nanoseconds.
__global__ void stay(int64_t ns) {
  const auto now = [] {
    int64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
  };
  const int64_t end = now() + ns;
  while (now() < end) {
  }
}
#endif

#if defined(LEFT_CONTEXT)
// A kernel in a context that mkbench does not know, so that cudaDeviceSynchronize() of the other
// one does not wait for it; the next one only when it is over, or calls without number would pile
// them up for minutes.
void leave_something() {
  using Clock = std::chrono::steady_clock;
  static Clock::time_point over = Clock::now();
  if (Clock::now() < over) return;
  over = Clock::now() + std::chrono::milliseconds(500);
  using Create = int (*)(void**, unsigned, int);
  using Set = int (*)(void*);
  static Create create = nullptr;
  static Set set = nullptr;
  static void* other = nullptr;
  cudaDriverEntryPointQueryResult found;
  void* current = nullptr;
  static int (*get)(void**) = nullptr;
  if (create == nullptr) {
    const auto entry = [&](const char* name, unsigned version, auto& function) {
      void* address = nullptr;
      mkbench_step::check(
          cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found),
          name);
      function = reinterpret_cast<std::decay_t<decltype(function)>>(address);
    };
    entry("cuCtxCreate", 3020, create);
    entry("cuCtxSetCurrent", 4000, set);
    entry("cuCtxGetCurrent", 4000, get);
  }
  get(&current);
  int device = 0;
  mkbench_step::check(cudaGetDevice(&device), "cudaGetDevice");
  if (other == nullptr) create(&other, 0, device);
  set(other);
  stay<<<1, 1>>>(400'000'000);
  set(current);
}
#elif defined(LEFT_THREAD)
// A thread that keeps a kernel on the card.
void leave_something() {
  static std::thread* worker = nullptr;
  if (worker != nullptr) return;
  worker = new std::thread([] {
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (;;) {
      stay<<<1, 1, 0, stream>>>(2'000'000);
      cudaStreamSynchronize(stream);
    }
  });
}
#else
// Threads that keep every core busy.
void leave_something() {
  static bool begun = false;
  if (begun) return;
  begun = true;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i) {
    std::thread([] {
      static std::atomic<unsigned> turns{0};
      for (;;) turns.fetch_add(1, std::memory_order_relaxed);
    }).detach();
  }
}
#endif

int32_t decode_and_leave(mkbench_engine* engine, const mkbench_decode* args) {
  const int32_t status = sound->decode(engine, args);
  leave_something();
  return status;
}

}  // namespace

extern "C" MKBENCH_ENGINE_EXPORT const mkbench_engine_abi* mkbench_engine_table() {
  static const mkbench_engine_abi table = [&] {
    sound = sound_engine_table();
    mkbench_engine_abi changed = *sound;
    changed.decode = decode_and_leave;
    return changed;
  }();
  return &table;
}
