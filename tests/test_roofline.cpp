// The device operation, the L2 flush and the read-bandwidth ceiling, on a GPU only.
#include <cuda_runtime.h>

#include <vector>

#include "harness/device/device_check.h"
#include "harness/device/device_info.h"
#include "harness/device/l2_flush.h"
#include "harness/device/roofline.h"
#include "kernels/cuda_event.h"
#include "kernels/device_buffer.h"
#include "references/base/error.h"
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
    CHECK(check.wanted > 1e6);  // a sum that no idle memory could show
    CHECK(check.blocks == device.sm_count);
  }
  CHECK_FALSE(check_device(static_cast<int>(list.devices.size())).ok);
}

TEST_CASE("the read-bandwidth ceiling is measured and repeats") {
  const DeviceList list = list_devices();
  if (list.devices.empty()) SKIP_TEST("no GPU");
  const ReadBandwidth first = measure_read_bandwidth(0), again = measure_read_bandwidth(0);
  CAPTURE(first.plain_gb_per_s, first.bulk_gb_per_s, first.bulk_pattern);
  CHECK(first.buffer_bytes >= 8 * list.devices[0].l2_bytes);
  CHECK(first.bytes_per_sample >= first.buffer_bytes);
  CHECK(first.samples >= 5);
  CHECK(first.plain_gb_per_s > 100);
  CHECK((first.bulk_gb_per_s > 0) == (list.devices[0].sm_major >= 9));
  if (list.devices[0].sm_major >= 9) {
    // Two ways of reading the same memory: far apart would mean that one of them does not read it
    // all.
    CHECK(first.bulk_gb_per_s == Approx(first.plain_gb_per_s).epsilon(0.15));
  }
  CHECK(again.best_gb_per_s() == Approx(first.best_gb_per_s()).epsilon(0.05));
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
  // The first one after a write has L2's lines written back; the second one finds none.
  std::vector<double> first, second;
  for (int i = 0; i < 21; ++i) {
    MKBENCH_CUDA(cudaMemset(written.get(), i, written.bytes()));
    MKBENCH_CUDA(cudaDeviceSynchronize());
    first.push_back(flush_ms());
    second.push_back(flush_ms());
  }
  // A flush that does nothing, or writes, would be no quicker the second time: 17 of 21 by chance
  // is one in 280.
  int quicker = 0;
  for (size_t i = 0; i < first.size(); ++i) quicker += second[i] < first[i] ? 1 : 0;
  CAPTURE(first, second);
  CHECK(quicker >= 17);
}

TEST_CASE("the probe reads its buffer in every pattern and refuses what does not fit") {
  const DeviceList list = list_devices();
  if (list.devices.empty()) SKIP_TEST("no GPU");
  if (list.devices[0].sm_major < 9) SKIP_TEST("no bulk copies before sm_90");
  ReadProbe probe(0);
  CHECK(probe.has_bulk_copy());
  const double plain_ms = probe.plain_ms();
  CHECK(plain_ms > 0);
  // A pattern may be slower than plain loads; one that is much faster did not read it all.
  for (const BulkPlan plan : {BulkPlan{12, 4096, 0}, BulkPlan{4, 8192, 700}, BulkPlan{6, 16384, 0}})
    CHECK(probe.bulk_ms(plan) > 0.8 * plain_ms);
  for (const BulkPlan plan :
       {BulkPlan{0, 4096, 0}, BulkPlan{13, 4096, 0}, BulkPlan{7, 16384, 0}, BulkPlan{3, 5000, 0}}) {
    CHECK_THROWS_AS(probe.bulk_ms(plan), Error);
  }
}
