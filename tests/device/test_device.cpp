// Which card can be used, of given facts, so that every case runs on every machine.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/catch2.h"
#include "tests/support/fake_machine.h"

using namespace mkbench;
using namespace mkbench::testing;

TEST_CASE("which code runs where") {
  struct Row {
    const char* code;
    int major, minor;
    bool runs;
  };
  const Row rows[] = {
      {"80", 8, 0, true},          {"80", 8, 6, true},
      {"80", 8, 9, true},          {"86", 8, 0, false},
      {"86", 8, 9, true},          {"89", 8, 6, false},
      {"80", 9, 0, false},         {"90a", 9, 0, true},
      {"90a", 9, 1, false},        {"90a", 10, 0, false},
      {"100a", 10, 0, true},       {"100a", 10, 3, false},
      {"120a", 12, 0, true},       {"120a", 12, 1, false},
      {"120a", 10, 0, false},      {"100f", 10, 3, true},
      {"100f", 12, 0, false},      {"sm_90", 9, 0, true},
      {"90a-real", 9, 0, true},    {"compute_90", 12, 0, true},
      {"compute_90", 8, 9, false}, {"compute_90a", 10, 0, false},
      {"90-virtual", 12, 0, true}, {"", 9, 0, false},
      {"native", 9, 0, false},     {"90x", 9, 0, false},
      {"9", 9, 0, false},
  };
  for (const Row& row : rows) {
    CAPTURE(row.code, row.major, row.minor);
    CHECK(architecture_runs_on(row.code, row.major, row.minor) == row.runs);
  }
}

TEST_CASE("architecture lists are split at ; , and space") {
  using Parts = std::vector<std::string>;
  CHECK(split_architectures("80;90a") == Parts{"80", "90a"});
  CHECK(split_architectures("sm_80 sm_90, 100a;;") == Parts{"sm_80", "sm_90", "100a"});
  CHECK(split_architectures("").empty());
}

TEST_CASE("a device is judged with a reason and what to do") {
  const DeviceList good = machine({device(0, "NVIDIA H100", 9, 0), device(1, "Tesla T4", 7, 5)});
  CHECK(judge_device(good, 0, kAll).usable());
  CHECK(judge_device(good, 0, kAll).reason.empty());

  struct Row {
    DeviceList list;
    int index;
    const char* architectures;
    Unfit unfit;
    const char* in_reason;
    const char* in_advice;
  };
  DeviceList no_driver;
  no_driver.runtime_cuda_version = 13000;
  DeviceList old_driver = good;
  old_driver.driver_cuda_version = 12040;
  old_driver.driver_version = "550.54";
  DeviceList old_runtime = good;
  old_runtime.runtime_cuda_version = 12040;
  DeviceList no_device = machine({});
  no_device.error = "no CUDA-capable device is detected";
  const Row rows[] = {
      {no_driver, 0, kAll, Unfit::kNoDriver, "no NVIDIA driver", "--device cpu"},
      {old_driver, 0, kAll, Unfit::kDriverTooOld, "550.54 (CUDA 12.4) is too old", "580"},
      {old_runtime, 0, kAll, Unfit::kRuntimeTooOld, "12.4", "12.8"},
      {no_device, 0, kAll, Unfit::kNoDevice, "no CUDA-capable", "CUDA_VISIBLE_DEVICES"},
      {good, 2, kAll, Unfit::kNoSuchIndex, "GPU 2", "--list-devices"},
      {good, 1, kAll, Unfit::kNoCode, "Tesla T4 is sm_75", "8.0 or later"},
      {good, 0, "80;86", Unfit::kNoCode, "sm_90", "MKBENCH_CUDA_ARCHITECTURES=90a-real"},
      {good, 0, "", Unfit::kNoCode, "no GPU", "MKBENCH_CUDA_ARCHITECTURES"},
  };
  for (const Row& row : rows) {
    const Usability use = judge_device(row.list, row.index, row.architectures);
    CAPTURE(row.in_reason, use.reason, use.what_to_do);
    CHECK(use.unfit == row.unfit);
    CHECK(use.reason.find(row.in_reason) != std::string::npos);
    CHECK(use.what_to_do.find(row.in_advice) != std::string::npos);
  }
  // A newer driver, or an older one of the same CUDA major version, is fine.
  DeviceList same_major = good;
  same_major.driver_cuda_version = 13010;
  CHECK(judge_device(same_major, 0, kAll).usable());
  same_major.runtime_cuda_version = 13020;
  CHECK(judge_device(same_major, 0, kAll).usable());
}

TEST_CASE("clock-limiting bits are named") {
  CHECK(throttle_text(0) == "none");
  CHECK(throttle_text(1) == "idle");
  CHECK(throttle_text(0x4 | 0x40) == "power cap, thermal (hardware)");
  CHECK(throttle_text(uint64_t{1} << 40).find("0x10000000000") != std::string::npos);
  CHECK_FALSE(is_throttled(0));
  CHECK_FALSE(is_throttled(0x1 | 0x2));
  CHECK(is_throttled(0x1 | 0x20));
}

TEST_CASE("a card as JSON has all of its state, and null for what it does not offer") {
  DeviceInfo card = device(1, "NVIDIA GeForce RTX 5090", 12, 0);
  card.free_bytes = 5;
  card.state.free_bytes = 7;
  card.state.mig = false;
  card.state.power_limit_w = 575;
  card.state.throttle_reasons = 4;
  card.state.processes = {{.pid = 9, .name = "other", .bytes = std::nullopt}};
  const nlohmann::json found = to_json(card);
  CHECK(found.size() == 26);
  CHECK(found["index"] == 1);
  CHECK(found["sm"] == "12.0");
  CHECK(found["free_bytes"] == 5);
  CHECK(found["mig"] == false);
  CHECK(found["ecc"].is_null());
  CHECK(found["power_limit_w"] == 575);
  CHECK(found["throttle_reasons"] == 4);
  CHECK(found["other_processes"] ==
        nlohmann::json{{{"pid", 9}, {"name", "other"}, {"bytes", nullptr}}});
}
