// The recorder of launches with a libcupti and a CUDA runtime that are this test's own.
#include <cuda_runtime_api.h>

#include "harness/device/launch_recorder.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_cupti.h"

namespace {

int gpus = 1;
int waits_for_card = 0;

}  // namespace

// In place of the runtime's.
extern "C" cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  *count = gpus;
  return gpus > 0 ? cudaSuccess : cudaErrorNoDevice;
}
extern "C" cudaError_t CUDARTAPI cudaDeviceSynchronize() {
  ++waits_for_card;
  fake_kernel(99);  // the engine's last kernel runs while the recorder waits
  fake_wait(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE);
  return cudaSuccess;
}

namespace mkbench {
namespace {

void decode() {
  fake_copy(1);
  fake_memset(2);
  for (uint32_t call = 3; call < 6; ++call) fake_kernel(call);
  for (int node = 0; node < 4; ++node) fake_kernel(6, 17);
  for (int node = 0; node < 4; ++node) fake_kernel(7, 17);
  fake_wait(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE);
  fake_wait(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE);
  fake_wait(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT);
}

TEST_CASE("what runs inside is recorded, twice alike, and the recorder's own wait is not") {
  decode();  // before: nobody records
  for (int turn = 0; turn < 2; ++turn) {
    waits_for_card = 0;
    const LaunchTrace t = record_launches(decode);
    CHECK(t.problem.empty());
    CHECK(waits_for_card == 1);
    CHECK(t.kernels == 3 + 1);
    CHECK(t.graph_launches == 2);
    CHECK(t.graph_nodes == 8);
    CHECK(t.copies == 1);
    CHECK(t.memsets == 1);
    CHECK(t.synchronisations == 2);
    CHECK(t.busy_ms == Approx(0.014));
    CHECK(t.wall_ms == Approx(0.017));  // three waits lie before the last kernel
    CHECK(fake_kinds_enabled() == 0);
    decode();  // between: nobody records
  }
}

TEST_CASE("where nothing can be recorded, the work does not run and the reason is told") {
  const auto problem = [](const FakeCupti& cupti) {
    fake_cupti() = cupti;
    bool ran = false;
    const LaunchTrace t = record_launches([&] { ran = true; });
    fake_cupti() = {};
    CHECK_FALSE(ran);
    CHECK(t.launches() == 0);
    CHECK(fake_kinds_enabled() == 0);
    return t.problem;
  };
  CHECK(problem({.version = 18}) ==
        "CUPTI: found libcupti of version 18, wanted 26 (CUDA 12.8) or later");
  CHECK(problem({.failing = "cuptiActivityEnable"}) ==
        "CUPTI: cuptiActivityEnable: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES");
  gpus = 0;
  CHECK(problem({}) == "no GPU");
  gpus = 1;
}

TEST_CASE("a recording that is not whole is none") {
  fake_cupti().dropped = 3;
  CHECK(record_launches(decode).problem == "CUPTI: 3 records were dropped");
  fake_cupti() = {};
  fake_cupti().failing = "cuptiGetTimestamp";
  const LaunchTrace t = record_launches(decode);
  CHECK_THAT(t.problem, ContainsText("cuptiGetTimestamp"));
  CHECK(t.kernels == 0);
  fake_cupti() = {};
}

TEST_CASE("what the work throws passes through, and recording ends") {
  CHECK_THROWS_AS(record_launches([] { throw Error(ErrorKind::kHang, "x"); }), Error);
  CHECK(fake_kinds_enabled() == 0);
}

}  // namespace
}  // namespace mkbench
