// The CUDA example behind the C interface, on a GPU: its logits against the oracle's, and device
// memory that it must not write.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>

#include "harness/plugin/checksum.h"
#include "harness/plugin/memory.h"
#include "kernels/device_buffer.h"
#include "tests/support/card_engine.h"
#include "tests/support/plugins.h"

namespace mkbench {
namespace {

using namespace testing;

const std::vector<int32_t> kForced = {-1, 4, 4, 80, 2, 61};

// The distance of `found` from `wanted`, as a share of the size of `wanted`.
double relative_error(const std::vector<float>& found, const std::vector<float>& wanted) {
  double error = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    error += std::pow(double{found[i]} - double{wanted[i]}, 2);
    size += std::pow(double{wanted[i]}, 2);
  }
  return std::sqrt(error / size);
}

TEST_CASE("the CUDA example's logits are the oracle's, up to the rounding of its bf16 KV rows",
          "[plugin]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const std::unique_ptr<Engine> engine = make_example("naive_cuda", true);
  CHECK(engine->capabilities().device.starts_with("cuda:0 "));
  std::vector<float> wanted;
  oracle_ids(kPrompt, 6, kForced.data(), &wanted);
  std::vector<float> found(wanted.size());
  for (int run = 0; run < 2; ++run) {
    engine->reset();
    engine->prefill(kPrompt);
    engine->decode(6, kForced.data(), found.data());
    CHECK(relative_error(found, wanted) < 0.01);  // bf16 rows round by 2^-9 each
  }
  CHECK(engine->last_times().event_ms > 0);
  // Free-running and forced on the same path give the same ids.
  engine->reset();
  engine->prefill(kPrompt);
  const std::vector<int32_t> ids = engine->decode(6);
  std::vector<int32_t> path = {-1};
  path.insert(path.end(), ids.begin(), ids.end() - 1);
  engine->reset();
  engine->prefill(kPrompt);
  CHECK(engine->decode(6, path.data()) == ids);
}

TEST_CASE("the CUDA example goes back and takes a late id", "[plugin]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const std::unique_ptr<Engine> engine = make_example("naive_cuda", true);
  const EngineCapabilities can = engine->capabilities();
  CHECK(can.rewind);
  CHECK(can.late_id);
  CHECK(can.precision == PrecisionClass::kFp32Accumulate);
  engine->prefill(kPrompt);
  std::vector<int32_t> late = kPrompt;
  late.back() = 60;
  std::vector<float> wanted;
  const std::vector<int32_t> ids = oracle_ids(late, 3, nullptr, &wanted);
  std::vector<float> found(wanted.size());
  for (int run = 0; run < 2; ++run) {
    engine->decode(6);
    engine->rewind(4);
    engine->set_pending(60);
    engine->decode(3, nullptr, found.data());
    CHECK(relative_error(found, wanted) < 0.01);
    engine->rewind(4);
    CHECK(engine->decode_late(60, 3) == ids);
  }
}

TEST_CASE("a write behind the ids is detected in device memory", "[plugin]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const std::unique_ptr<Engine> engine = make_example("naive_cuda_overrun", true);
  engine->prefill(kPrompt);
  const Thrown thrown = thrown_by([&] { engine->decode(5); });
  CHECK(thrown.kind == ErrorKind::kIntegrity);
  CHECK(thrown.says("20 bytes were asked for, memory 0 bytes after them was written"));
}

TEST_CASE("guarded device memory is poisoned, and writes on either side are detected", "[plugin]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  GuardedBuffer buffer("ids", true, 1);
  std::vector<int32_t> out(5);
  for (const int at : {0, 4, -1, 5, 5 + 1023, -1024}) {
    CAPTURE(at);
    auto* ids = static_cast<int32_t*>(buffer.prepare(20));
    const int32_t value = 3;
    MKBENCH_CUDA(cudaMemcpy(ids + at, &value, 4, cudaMemcpyHostToDevice));
    const Thrown thrown = thrown_by([&] { buffer.collect(out.data()); });
    if (at < 0 || at > 4) {
      CHECK(thrown.kind == ErrorKind::kIntegrity);
    } else {
      CHECK(out[static_cast<size_t>(at)] == 3);
      CHECK(std::count(out.begin(), out.end(), -1) == 4);
    }
  }
}

TEST_CASE("a changed weight in device memory is named", "[plugin]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const PluginWeights weights("engine x", plugin_model(), true);
  weights.check();
  const mkbench_tensor& tensor = weights.tensors()[5];
  uint16_t bits = 0;
  auto* last = static_cast<uint16_t*>(const_cast<void*>(tensor.data)) + tensor.bytes / 2 - 1;
  MKBENCH_CUDA(cudaMemcpy(&bits, last, 2, cudaMemcpyDeviceToHost));
  bits ^= 1;
  MKBENCH_CUDA(cudaMemcpy(last, &bits, 2, cudaMemcpyHostToDevice));
  const Thrown thrown = thrown_by([&] { weights.check(); });
  CHECK(thrown.kind == ErrorKind::kIntegrity);
  CHECK(thrown.says(std::string(tensor.name) + " was modified"));
}

}  // namespace
}  // namespace mkbench
