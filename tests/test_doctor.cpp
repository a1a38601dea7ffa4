// The doctor's judgement of given facts, so that every machine can be a fake one.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/catch2.h"
#include "tests/support/fake_machine.h"

using namespace mkbench;
using namespace mkbench::testing;

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
    CHECK(report.problems() == 1);  // told once
    CHECK(find_item(report, "GPU", Finding::kNote) != nullptr);
  }
  SECTION("driver too old") {
    report.devices.driver_cuda_version = 12080;
    CHECK(has_problem("driver"));
    CHECK(report.problems() == 1);
  }
  SECTION("runtime too old") {
    report.devices.runtime_cuda_version = 12060;
    CHECK(has_problem("runtime"));
    CHECK(report.problems() == 1);
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
    report.machine.memory_free = 1 << 20;
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
    // The driver's version alone is judged by the lanes.
    CHECK(find_item(report, "driver", Finding::kProblem) != nullptr);
    report.devices.driver_version = "550.54.14";
    judge_machine(in, report);
    REQUIRE(find_item(report, "driver", Finding::kProblem) != nullptr);
    CHECK_THAT(find_item(report, "driver", Finding::kProblem)->what_to_do, ContainsText("570"));
    report.devices.driver_version = "570.86.10";
    judge_machine(in, report);
    CHECK(find_item(report, "driver", Finding::kFine) != nullptr);
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

TEST_CASE("libtorch's architectures are held against the card") {
  DoctorInputs in = inputs();
  DoctorReport report = rented(13000, "580.65.06");
  judge_machine(in, report);
  CHECK(report.gpu_ready);
  const auto texts = [&] {
    std::string all;
    for (const std::string& line : doctor_lines(report)) all += line + "\n";
    return all;
  };
  CHECK_THAT(texts(), ContainsText("sm_120 is SUPPORTED by this libtorch"));
  in.torch_architectures = "sm_80 sm_86 sm_90 sm_90a";
  judge_machine(in, report);
  CHECK_FALSE(report.gpu_ready);
  CHECK_THAT(texts(), ContainsText("sm_120 is NOT SUPPORTED by this libtorch"));
  CHECK_THAT(texts(), ContainsText("no kernel image is available for execution on the device"));
  CHECK_THAT(texts(), ContainsText("scripts/setup.sh"));
  // PTX of an older architecture is compiled by the driver.
  in.torch_architectures = "sm_90 compute_90";
  judge_machine(in, report);
  CHECK_THAT(texts(), ContainsText("sm_120 is SUPPORTED by this libtorch"));
  // Without a card its code is told, and nothing is said of a card.
  report.devices = machine({});
  judge_machine(in, report);
  CHECK_THAT(texts(), ContainsText("sm_90 compute_90"));
  CHECK(texts().find("SUPPORTED") == std::string::npos);
}

TEST_CASE("a build for CUDA 13 on a driver of 570 is told once, with a command of set-up") {
  DoctorReport report = rented(12080, "570.86.10");
  report.checked = false;
  report.torch_check.reset();
  judge_machine(inputs(), report);
  CHECK(report.problems() == 1);
  const DoctorItem* driver = find_item(report, "driver", Finding::kProblem);
  REQUIRE(driver != nullptr);
  CHECK_THAT(driver->what_to_do, ContainsText("scripts/setup.sh --cuda 12.8"));
}

TEST_CASE("a libtorch for the CPU beside a GPU is named") {
  DoctorInputs in = inputs();
  in.torch_cuda_version = in.torch_architectures = "";
  in.torch_cuda_available = false;
  DoctorReport report = rented(13000, "580.65.06");
  report.torch_check.reset();
  judge_machine(in, report);
  const DoctorItem* item = find_item(report, "libtorch", Finding::kProblem);
  REQUIRE(item != nullptr);
  CHECK_THAT(item->text, ContainsText("a build for the CPU beside a GPU"));
  CHECK_THAT(item->what_to_do, ContainsText("scripts/setup.sh"));
  CHECK(find_item(report, "torch matmul", Finding::kNote) != nullptr);
}

TEST_CASE("libtorch's product on the card can fail") {
  DoctorReport report = healthy();
  report.torch_check = {.ok = false,
                        .got = 1,
                        .wanted = 7,
                        .blocks = 0,
                        .error = "CUDA error: no kernel image is available for execution"};
  judge_machine(inputs(), report);
  CHECK_FALSE(report.gpu_ready);
  const DoctorItem* item = find_item(report, "torch matmul", Finding::kProblem);
  REQUIRE(item != nullptr);
  CHECK_THAT(item->what_to_do, ContainsText("wheel: "));  // of the table of known errors
}

TEST_CASE("power limit and compute mode of the card") {
  DoctorReport report = rented(13000, "580.65.06");
  GpuState& state = report.devices.devices[0].state;
  SECTION("a lowered power limit is a warning, with the command that lifts it") {
    state.power_limit_w = 400;
    judge_machine(inputs(), report);
    const DoctorItem* item = find_item(report, "GPU 0", Finding::kWarning);
    REQUIRE(item != nullptr);
    CHECK_THAT(item->text, ContainsText("400 W, default 575 W"));
    CHECK_THAT(item->what_to_do, ContainsText("nvidia-smi -i 0 -pl 575"));
    CHECK(report.gpu_ready);
  }
  SECTION("a card on which nobody may compute is a problem") {
    state.compute_mode = "prohibited";
    judge_machine(inputs(), report);
    CHECK(find_item(report, "GPU 0", Finding::kProblem) != nullptr);
    CHECK_FALSE(report.gpu_ready);
  }
  SECTION("an exclusive card can be used") {
    state.compute_mode = "exclusive";
    report.devices.devices[0].exclusive = true;
    judge_machine(inputs(), report);
    CHECK(report.gpu_ready);
  }
}

TEST_CASE("a toolkit is judged by the lane of the driver") {
  struct Row {
    int driver_cuda;
    const char* driver;
    const char* nvcc;  // version; empty: none
    Finding finding;
    const char* part;
  };
  const Row rows[] = {
      {13000, "580.65.06", "13.0", Finding::kFine, "CUDA 13.0"},
      {13000, "580.65.06", "12.8", Finding::kFine, "scripts/setup.sh --cuda 12.8"},
      {13000, "580.65.06", "12.4", Finding::kWarning, "older than 12.8"},
      {13000, "580.65.06", "", Finding::kFine, "scripts/setup.sh installs a compiler"},
      {12080, "570.86.10", "12.8", Finding::kFine, "CUDA 12.8"},
      {12080, "570.86.10", "13.0", Finding::kWarning, "newer than the driver runs"},
      {12080, "570.86.10", "", Finding::kWarning, "no nvcc"},
      {12090, "575.51.03", "12.9", Finding::kFine, "CUDA 12.9"},
      {0, "", "", Finding::kFine, "scripts/setup.sh installs a compiler"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.driver, row.nvcc);
    DoctorReport report = rented(row.driver_cuda, row.driver);
    report.toolkit = *row.nvcc == 0 ? Toolkit{} : Toolkit{"/opt/cuda/bin/nvcc", row.nvcc};
    judge_machine(inputs(), report);
    const DoctorItem* item = find_item(report, "toolkit", row.finding);
    REQUIRE(item != nullptr);
    CHECK_THAT(item->text, ContainsText(row.part));
    if (row.finding == Finding::kWarning && row.driver_cuda == 12080)
      CHECK_THAT(item->what_to_do, ContainsText("cuda-toolkit-12-8"));
  }
}

TEST_CASE("containers and disks are told, each with what to do") {
  DoctorReport report = healthy();
  const auto row = [&](const char* topic) {
    judge_machine(inputs(), report);
    const DoctorItem* item = find_row(report.items, topic);
    REQUIRE(item != nullptr);
    return *item;
  };
  CHECK(row("WSL2").text == "no");
  CHECK(find_row(report.items, "Windows driver") == nullptr);
  CHECK(row("container").text == "none");
  report.machine.container = "docker";
  report.machine.shared_total = 64'000'000;
  CHECK(row("container").text == "docker, /dev/shm 0.1 GB");
  report.machine.disk_free = 1000;
  CHECK(row("disk").finding == Finding::kWarning);
}

TEST_CASE("under WSL a driver of Windows' serves, and no other") {
  constexpr char kWindows[] = "/usr/lib/wsl/lib/libcuda.so.1";
  constexpr char kLinux[] = "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14";
  DoctorReport report = healthy();
  Wsl& wsl = report.machine.wsl;
  DoctorInputs in = inputs();
  const auto row = [&](const char* topic) {
    judge_machine(in, report);
    const DoctorItem* item = find_row(report.items, topic);
    REQUIRE(item != nullptr);
    return *item;
  };
  wsl.version = 1;
  CHECK(row("WSL2").finding == Finding::kProblem);
  CHECK_THAT(row("WSL2").what_to_do, ContainsText("wsl --set-version"));
  wsl.version = 2;
  CHECK(row("WSL2").finding == Finding::kProblem);
  CHECK_THAT(row("WSL2").what_to_do, ContainsText("driver in Windows, none in Linux"));
  wsl.windows_libcuda = wsl.loaded_libcuda = kWindows;
  SECTION("as it should be, with the numbers of both sides and what Windows limits") {
    wsl.windows_driver = "581.29";
    wsl.windows_cuda = "13.0";
    CHECK(row("WSL2").finding == Finding::kFine);
    CHECK(row("Windows driver").finding == Finding::kFine);
    CHECK(row("Windows driver").text ==
          std::string("581.29 (CUDA 13.0); here ") + kWindows + " is loaded (CUDA 13.0)");
    CHECK(row("WSL2 limits").finding == Finding::kNote);
    CHECK(report.gpu_ready);
    const nlohmann::json told = to_json(report)["machine"]["wsl"];
    CHECK(told["version"] == 2);
    CHECK(told["windows_driver"] == "581.29");
    CHECK(told["loaded_libcuda"] == kWindows);
  }
  SECTION("Windows' nvidia-smi says nothing") {
    CHECK(row("WSL2").finding == Finding::kFine);
    CHECK(row("Windows driver").finding == Finding::kNote);
  }
  SECTION("the loader does not look into its folder") {
    report.devices.driver_cuda_version = 0;
    CHECK_THAT(row("WSL2").what_to_do, ContainsText("LD_LIBRARY_PATH=/usr/lib/wsl/lib"));
  }
  SECTION("a driver for Linux was installed inside, and hides Windows'") {
    wsl.linux_libcuda = wsl.loaded_libcuda = kLinux;
    CHECK(row("WSL2").finding == Finding::kProblem);
    CHECK_THAT(row("WSL2").text,
               ContainsText("a driver for Linux (550.54.14) was installed inside"));
    CHECK_THAT(row("WSL2").what_to_do, ContainsText("apt-get purge"));
    CHECK_FALSE(report.gpu_ready);
    in.cpu_only = true;
    CHECK(row("WSL2").finding == Finding::kNote);
  }
  SECTION("it was installed, and the other one is loaded") {
    wsl.linux_libcuda = kLinux;
    CHECK(row("WSL2").finding == Finding::kWarning);
    CHECK(report.gpu_ready);
  }
  SECTION("two numbers of CUDA are two drivers") {
    wsl.windows_driver = "572.16";
    wsl.windows_cuda = "12.8";
    CHECK(row("Windows driver").finding == Finding::kWarning);
    CHECK_THAT(row("Windows driver").text, ContainsText("572.16 (CUDA 12.8)"));
  }
  SECTION("memory is what Windows lends") {
    report.machine.memory_free = 1000;
    CHECK_THAT(row("host memory").what_to_do, ContainsText(".wslconfig"));
  }
}

TEST_CASE("with --device cpu nothing that a GPU lacks is a problem") {
  DoctorInputs in = inputs();
  in.cpu_only = true;
  in.torch_cuda_available = false;
  DoctorReport report = healthy();
  report.devices = {};
  report.devices.runtime_cuda_version = 13000;
  report.checked = false;
  report.torch_check.reset();
  judge_machine(in, report);
  CHECK(report.problems() == 0);
  CHECK_THAT(report.verdict, ContainsText("ready for the CPU"));
  in.torch_problem = "libtorch.so: cannot open shared object file";
  judge_machine(in, report);
  CHECK(report.problems() == 1);  // the CPU needs libtorch, too
}

TEST_CASE("problems without --strict are said beside exit code 0") {
  DoctorReport report = healthy();
  report.devices.devices[0].free_bytes = 0;
  judge_machine(inputs(), report);
  REQUIRE(report.problems() == 1);
  const auto has_strict = [&](bool would_fail) {
    const std::vector<std::string> lines = doctor_lines(report, would_fail);
    return std::count(lines.begin(), lines.end(),
                      "strict:  1 problem: with --strict the exit code is 6") == 1;
  };
  CHECK(has_strict(true));
  CHECK_FALSE(has_strict(false));
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
