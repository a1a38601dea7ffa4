// The doctor's judgement of given facts, so that every case runs on every machine.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/device/device_check.h"
#include "harness/device/device_info.h"
#include "harness/device/doctor.h"
#include "harness/device/gpu_state.h"
#include "tests/support/catch2.h"

using namespace mkbench;

namespace {

constexpr const char* kAll = "80;86;89;90a;100a;120a";

DeviceInfo device(int index, const char* name, int major, int minor) {
  DeviceInfo d;
  d.index = index;
  d.name = name;
  d.sm_major = major;
  d.sm_minor = minor;
  d.sm_count = 132;
  d.l2_bytes = 50 << 20;
  d.total_bytes = int64_t{80} << 30;
  d.free_bytes = int64_t{79} << 30;
  return d;
}

DeviceList machine(std::vector<DeviceInfo> devices) {
  DeviceList list;
  list.driver_cuda_version = 13000;
  list.runtime_cuda_version = 13000;
  list.driver_version = "580.65.06";
  list.devices = std::move(devices);
  return list;
}

DoctorInputs inputs() {
  DoctorInputs in;
  in.our_architectures = kAll;
  in.torch_version = "2.11.0";
  in.torch_cuda_version = "13.0";
  in.torch_architectures = "sm_80 sm_90 sm_100 sm_120";
  in.torch_cuda_available = true;
  in.model = "synthetic";
  in.device_bytes_needed = int64_t{4} << 30;
  in.host_bytes_needed = int64_t{2} << 30;
  return in;
}

// A report with everything that judge_machine() reads filled in.
DoctorReport healthy() {
  DoctorReport report;
  report.devices = machine({device(0, "NVIDIA H100", 9, 0)});
  report.toolkit = {"/opt/cuda/bin/nvcc", "13.0"};
  report.host_bytes_free = int64_t{64} << 30;
  report.check = {.ok = true, .got = 5, .wanted = 5, .blocks = 132, .error = ""};
  report.checked = true;
  return report;
}

const DoctorItem* find_item(const DoctorReport& report, const std::string& topic, Finding finding) {
  for (const DoctorItem& item : report.items) {
    if (item.topic == topic && item.finding == finding) return &item;
  }
  return nullptr;
}

}  // namespace

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

TEST_CASE("a healthy machine is ready") {
  DoctorReport report = healthy();
  judge_machine(inputs(), report);
  CHECK(report.gpu_ready);
  for (const DoctorItem& item : report.items) {
    CAPTURE(item.topic, item.text);
    CHECK(item.finding == Finding::kFine);
    CHECK(item.what_to_do.empty());
  }
  CHECK(report.next.find("cpu") == std::string::npos);
}

TEST_CASE("the doctor names each problem") {
  DoctorReport report = healthy();
  DoctorInputs in = inputs();
  const auto has_problem = [&](const std::string& topic) {
    judge_machine(in, report);
    const DoctorItem* item = find_item(report, topic, Finding::kProblem);
    CHECK_FALSE(report.gpu_ready);
    CHECK(report.next.find("--device cpu") != std::string::npos);
    return item != nullptr && !item->what_to_do.empty();
  };
  SECTION("no driver") {
    report.devices = {};
    report.devices.runtime_cuda_version = 13000;
    report.checked = false;
    CHECK(has_problem("driver"));
    CHECK(find_item(report, "GPU", Finding::kProblem) != nullptr);
  }
  SECTION("driver too old") {
    report.devices.driver_cuda_version = 12080;
    CHECK(has_problem("driver"));
  }
  SECTION("runtime too old") {
    report.devices.runtime_cuda_version = 12060;
    CHECK(has_problem("runtime"));
  }
  SECTION("no code of ours") {
    in.our_architectures = "80";
    CHECK(has_problem("GPU 0"));
  }
  SECTION("no code in libtorch") {
    in.torch_architectures = "sm_80 sm_100";
    CHECK(has_problem("libtorch"));
  }
  SECTION("libtorch without CUDA") {
    in.torch_cuda_available = false;
    CHECK(has_problem("libtorch"));
  }
  SECTION("the operation fails") {
    report.check = {.ok = false, .got = 0, .wanted = 5, .blocks = 132, .error = "the sum is 0"};
    CHECK(has_problem("operation"));
  }
  SECTION("too little memory") {
    report.devices.devices[0].free_bytes = int64_t{1} << 30;
    CHECK(has_problem("GPU memory"));
  }
}

TEST_CASE("the doctor warns, and stays ready") {
  DoctorReport report = healthy();
  const auto warns = [&](const std::string& topic) {
    judge_machine(inputs(), report);
    CHECK(report.gpu_ready);
    return find_item(report, topic, Finding::kWarning) != nullptr;
  };
  SECTION("an old toolkit") {
    report.toolkit.version = "12.4";
    CHECK(warns("toolkit"));
  }
  SECTION("another process on the card") {
    report.devices.devices[0].state.processes = {{.pid = 42, .name = "python", .bytes = 1 << 20}};
    CHECK(warns("GPU 0"));
  }
  SECTION("limited clocks") {
    report.devices.devices[0].state.sm_clock_mhz = 900;
    report.devices.devices[0].state.throttle_reasons = 0x4;
    report.devices.devices[0].state.throttle_text = throttle_text(0x4);
    CHECK(warns("GPU 0"));
  }
  SECTION("little host memory") {
    report.host_bytes_free = 1 << 20;
    CHECK(warns("host memory"));
  }
}

TEST_CASE("where a host does not start, the doctor shows the loader's text and what to do") {
  const std::string loader = "error while loading shared libraries: libx.so.1: cannot open";
  DoctorReport report = healthy();
  DoctorInputs in = inputs();
  SECTION("the host of CUDA engines: nothing is known of the card") {
    report.devices = {};
    report.checked = false;
    in.card_problem = loader;
    judge_machine(in, report);
    const DoctorItem* item = find_item(report, "CUDA engines", Finding::kProblem);
    REQUIRE(item != nullptr);
    CHECK(item->text == loader);
    CHECK(item->what_to_do.find("scripts/setup.sh") != std::string::npos);
    CHECK(report.usability.reason == loader);
    // What only that host could have said is not shown as a fact.
    for (const DoctorItem& other : report.items) {
      CAPTURE(other.topic);
      CHECK(other.topic != "our code");
      CHECK(other.topic != "GPU 0");
    }
    CHECK(find_item(report, "libtorch", Finding::kFine) != nullptr);
  }
  SECTION("the host of libtorch: the card is judged all the same") {
    in.torch_problem = loader;
    judge_machine(in, report);
    const DoctorItem* item = find_item(report, "libtorch", Finding::kProblem);
    REQUIRE(item != nullptr);
    CHECK(item->text == loader);
    CHECK(item->what_to_do.find("scripts/setup.sh") != std::string::npos);
    CHECK(report.usability.usable());
    CHECK(find_item(report, "our code", Finding::kFine) != nullptr);
    CHECK(find_item(report, "libtorch", Finding::kFine) == nullptr);
  }
  CHECK_FALSE(report.gpu_ready);
  CHECK(report.next.find("scripts/setup.sh") != std::string::npos);  // no run is possible
}

TEST_CASE("lines and JSON tell the same") {
  DoctorReport report = healthy();
  report.devices.devices[0].free_bytes = 0;
  judge_machine(inputs(), report);
  const nlohmann::json j = to_json(report);
  std::string lines;
  for (const std::string& line : doctor_lines(report)) lines += line + "\n";
  for (const DoctorItem& item : report.items) {
    CHECK(lines.find(item.text) != std::string::npos);
    CHECK(lines.find(item.what_to_do) != std::string::npos);
  }
  CHECK(lines.find(report.verdict) != std::string::npos);
  CHECK(j["items"].size() == report.items.size());
  CHECK(j["verdict"] == report.verdict);
  CHECK(j["gpu_ready"] == false);
  CHECK(j["devices"][0]["sm"] == "9.0");
  CHECK(j["devices"][0]["ecc"].is_null());
  CHECK(nlohmann::json::parse(j.dump()) == j);
}

TEST_CASE("the toolkit is the one of CUDA_HOME before PATH") {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("mkbench_nvcc_" + std::to_string(getpid()));
  fs::create_directories(root / "bin");
  {
    std::ofstream script(root / "bin" / "nvcc");
    script << "#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.131'\n";
  }
  chmod((root / "bin" / "nvcc").c_str(), 0755);
  const char* before = std::getenv("CUDA_HOME");
  const std::string saved = before == nullptr ? "" : before;
  setenv("CUDA_HOME", root.c_str(), 1);
  const Toolkit toolkit = find_toolkit();
  if (before == nullptr) {
    unsetenv("CUDA_HOME");
  } else {
    setenv("CUDA_HOME", saved.c_str(), 1);
  }
  CHECK(toolkit.nvcc == (root / "bin" / "nvcc").string());
  CHECK(toolkit.version == "12.4");
  fs::remove_all(root);
}
