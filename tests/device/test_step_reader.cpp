// The device operation, the L2 flush, the reader of steps and the ceiling, on a GPU only.
#include <cuda_runtime.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "harness/device/ceiling_engine.h"
#include "harness/device/device_check.h"
#include "harness/device/device_info.h"
#include "harness/device/l2_flush.h"
#include "harness/device/step_reader.h"
#include "kernels/cuda_event.h"
#include "kernels/device_buffer.h"
#include "references/base/error.h"
#include "references/synthetic.h"
#include "tests/support/catch2.h"

using namespace mkbench;

TEST_CASE("a real operation on every GPU") {
  const DeviceList list = list_devices();
  if (list.devices.empty()) SKIP_TEST("no GPU");
  for (const DeviceInfo& device : list.devices) {
    CHECK_FALSE(device.uuid.empty());
    CHECK(device.sm_count > 0);
    CHECK(device.free_bytes > 0);
    CHECK(device.free_bytes <= device.total_bytes + (int64_t{1} << 30));
    const DeviceCheck check = check_device(device.index);
    CAPTURE(check.error);
    CHECK(check.ok);
    CHECK(check.got == check.wanted);
    CHECK(check.wanted > 1e6);  // a sum that memory does not hold by chance
    CHECK(check.blocks == device.sm_count);
  }
  CHECK_FALSE(check_device(static_cast<int>(list.devices.size())).ok);
}

TEST_CASE("the ceiling repeats, and lies under the pin rate") {
  const DeviceList list = list_devices();
  if (list.devices.empty()) SKIP_TEST("no GPU");
  const ModelWeights weights = make_synthetic("none");
  const int depth = 512, steps = 64;
  const EngineRequest request{.name = "ceiling", .max_context = 640, .depth = depth, .cuda = true};
  const std::unique_ptr<Engine> ceiling = make_ceiling(weights, request);
  const auto rate = [&] {
    std::vector<double> rates;
    for (int i = 0; i < 9; ++i) {
      ceiling->rewind(depth);
      CHECK(ceiling->decode(steps) == std::vector<int32_t>(steps, 0));
      double bytes = 0;
      for (int t = 0; t < steps; ++t)
        bytes += static_cast<double>(weights.config.shape.bytes_per_step(depth + t));
      rates.push_back(bytes / (1e6 * ceiling->last_times().event_ms));
    }
    std::sort(rates.begin(), rates.end());
    return rates[4];
  };
  const double first = rate();
  const std::string pattern = ceiling->settings();
  // Another ceiling takes the pattern, and one that is none is refused.
  EngineRequest known = request;
  known.settings = pattern;
  CHECK(make_ceiling(weights, known)->settings() == pattern);
  known.settings = "as before";
  CHECK_THROWS_AS(make_ceiling(weights, known), Error);
  search_again(*ceiling);
  const double again = rate();
  CAPTURE(first, again, pattern, ceiling->settings());
  CHECK(again == Approx(first).epsilon(0.01));
  const double pins = list.devices[0].pin_gb_per_s;
  CHECK(pins > 100);
  CHECK(first < pins);
  CHECK(first > 0.7 * pins);
  CHECK(ceiling->position() == depth + steps);
  CHECK_THROWS_AS(ceiling->decode(1000), Error);
  CHECK_THROWS_AS(make_ceiling(weights, {.name = "ceiling", .max_context = 64, .depth = 64}),
                  Error);
}

TEST_CASE("an L2 flush leaves nothing to write back") {
  const DeviceList list = list_devices();
  if (list.devices.empty()) SKIP_TEST("no GPU");
  DeviceBuffer<char> written(8 * static_cast<size_t>(list.devices[0].l2_bytes));
  L2Flush flush(0);
  const auto flush_ms = [&] {
    Event start, stop;
    start.record();
    flush.run();
    stop.record();
    MKBENCH_CUDA(cudaDeviceSynchronize());
    return stop.ms_since(start);
  };
  // The first flush after a write waits for the write-back of L2's lines; the second finds none.
  std::vector<double> first, second;
  for (int i = 0; i < 21; ++i) {
    MKBENCH_CUDA(cudaMemset(written.get(), i, written.bytes()));
    MKBENCH_CUDA(cudaDeviceSynchronize());
    first.push_back(flush_ms());
    second.push_back(flush_ms());
  }
  // A flush that does nothing, or that writes, would not be quicker the second time; 17 of 21 by
  // chance has a probability of 1 in 280.
  int quicker = 0;
  for (size_t i = 0; i < first.size(); ++i) quicker += second[i] < first[i] ? 1 : 0;
  CAPTURE(first, second);
  CHECK(quicker >= 17);
}

TEST_CASE("every pattern reads all of a buffer, and one that does not fit is refused") {
  const DeviceList list = list_devices();
  if (list.devices.empty()) SKIP_TEST("no GPU");
  if (list.devices[0].sm_major < 9) SKIP_TEST("no bulk copies before sm_90");
  ReadProbe probe(0);
  CHECK(probe.has_bulk_copy());
  const double plain_ms = probe.ms({});
  CHECK(plain_ms > 0);
  using Way = ReadPattern::Way;
  // A pattern may be slower than plain loads; one that is much faster did not read it all.
  for (const BulkPlan plan :
       {BulkPlan{12, 4096, 0}, BulkPlan{4, 8192, 400'000}, BulkPlan{6, 16384, 0}})
    CHECK(probe.ms({Way::kBulk, plan}) > 0.8 * plain_ms);
  for (const BulkPlan plan :
       {BulkPlan{0, 4096, 0}, BulkPlan{13, 4096, 0}, BulkPlan{7, 16384, 0}, BulkPlan{3, 5000, 0}}) {
    CHECK_THROWS_AS(probe.ms({Way::kBulk, plan}), Error);
  }
  CHECK_THROWS_AS(probe.ms({Way::kRing, {3, 16384, 0}}), Error);
}

TEST_CASE("a step that L2 helps is read whole") {
  const DeviceList list = list_devices();
  if (list.devices.empty()) SKIP_TEST("no GPU");
  if (list.devices[0].sm_major < 9) SKIP_TEST("no bulk copies before sm_90");
  using Way = ReadPattern::Way;
  // 32 times L2, so that L2 can spare a step 3 % of its bytes.
  const auto bytes = static_cast<uint64_t>(32 * list.devices[0].l2_bytes);
  DeviceBuffer<char> memory(bytes);
  fill_with_bits(memory.get(), static_cast<int64_t>(bytes));
  StepReader reader(0);
  for (const ReadPattern base : {ReadPattern{}, ReadPattern{Way::kBulk, {6, 16384, 0}}}) {
    const auto ms = [&](bool back_and_forth, uint32_t kept_mib) {
      ReadPattern pattern = base;
      pattern.back_and_forth = back_and_forth;
      pattern.kept_mib = kept_mib;
      std::vector<double> times;
      for (int i = 0; i < 5; ++i)
        times.push_back(reader.read(pattern, memory.get(), {bytes, 0, 8}));
      std::sort(times.begin(), times.end());
      return times[2];
    };
    const double forward = ms(false, 0);
    for (const bool back_and_forth : {false, true}) {
      for (const uint32_t kept_mib : {0u, 16u}) {
        INFO(pattern_text(base) << ", " << back_and_forth << ", " << kept_mib);
        CHECK(ms(back_and_forth, kept_mib) > 0.85 * forward);
      }
    }
  }
}
