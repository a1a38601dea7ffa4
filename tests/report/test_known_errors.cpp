// The table of known errors, looked up by messages as programs print them.
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "harness/report/known_errors.h"
#include "tests/support/catch2.h"

using mkbench::KnownError;

namespace {

std::string read(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("every row is whole, has a name of its own and is found by its own message and parts") {
  std::set<std::string_view> names;
  for (const KnownError& error : mkbench::known_errors()) {
    CAPTURE(error.name);
    CHECK(names.insert(error.name).second);
    REQUIRE_FALSE(error.parts.empty());
    CHECK_FALSE(error.cause.empty());
    CHECK(error.cause.back() != '.');
    CHECK_FALSE(error.command.empty());
    for (const std::string_view text : {error.message, error.cause, error.command})
      CHECK(text.find_first_of("\n|") == std::string_view::npos);  // cells of a table
    const KnownError* found = mkbench::find_known_error(error.message);
    REQUIRE(found != nullptr);
    CHECK(found->name == error.name);
    for (const std::string_view part : error.parts) {
      CAPTURE(part);
      found = mkbench::find_known_error(part);
      REQUIRE(found != nullptr);
      CHECK(found->name == error.name);
    }
  }
}

TEST_CASE("messages of real programs are found, beside those that the table shows") {
  struct Row {
    const char* text;
    const char* name;
    const char* error_class;
  };
  const Row rows[] = {
      // torch, about its wheel
      {"cudaLaunchKernel(...): cudaErrorNoKernelImageForDevice: no kernel image is available for "
       "execution on the device",
       "no-kernel-image", "wheel"},
      {"PyTorch is not linked with support for cuda devices", "not-compiled-with-cuda", "wheel"},
      // mkbench, about a model's folder
      {"/m/config.json: missing; the folder is a snapshot of Org/Name whose download is not "
       "complete; to complete it: mkbench fetch Org/Name",
       "unfinished-download", "model"},
      {"/m/model.safetensors: header size 2336927755350992246 is above the cap of 16777216 (the "
       "file has 132 bytes); it is a Git LFS pointer (oid sha256:aa, size 8): fetch the real file",
       "lfs-pointer", "model"},
      {"RuntimeError: Configured CUDA binary not found at /x/libbitsandbytes_cuda131.so",
       "bitsandbytes-without-cuda", "wheel"},
      {"RuntimeError: \nCUDA VERSION MISMATCH\nAttempted to use bitsandbytes native library "
       "functionality but it's not available.",
       "bitsandbytes-without-cuda", "wheel"},
      {"error while loading shared libraries: libtorch.so: wrong ELF class: ELFCLASS32",
       "missing-torch-library", "wheel"},
      // CUDA's compilers and libraries
      {"nvcc fatal   : Unsupported gpu architecture 'compute_120'", "old-compiler", "CUDA"},
      {"nvrtc: error: invalid value for --gpu-architecture (-arch)", "old-compiler", "CUDA"},
      {"crt/host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later than "
       "13 are not supported! The nvcc flag '-allow-unsupported-compiler' can be used",
       "unsupported-gnu-version", "CUDA"},
      {"OSError: libcublas.so.12: cannot open shared object file: No such file or directory",
       "missing-cuda-library", "CUDA"},
      // the driver
      {"Error 803: system has unsupported display driver / cuda driver combination",
       "driver-library-mismatch", "driver"},
      {"cudaGetDeviceCount(&n): cudaErrorInsufficientDriver: CUDA driver version is insufficient "
       "for CUDA runtime version",
       "driver-insufficient", "driver"},
      {"UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found "
       "version 12040). Please update your GPU driver",
       "driver-insufficient", "driver"},
      {"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
       "that the latest NVIDIA driver is installed and running.",
       "no-nvidia-driver", "driver"},
      {"NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus.", "card-failed",
       "driver"},
      // the image, and how it was started
      {"Error 804: forward compatibility was attempted on non supported HW",
       "forward-compatibility", "image"},
      {"RuntimeError: Attempting to deserialize object on a CUDA device but "
       "torch.cuda.is_available() is False.",
       "no-cuda-gpus", "image"},
      {"ValueError: CUDA is not available", "no-cuda-gpus", "image"},
      {"CUDA error: no CUDA-capable device is detected", "no-cuda-gpus", "image"},
      {"RuntimeError: unable to allocate shared memory(shm) for file </torch_12_3_4>: Success (0)",
       "shared-memory", "system"},
      {"RuntimeError: unable to write to file </torch_7_1_0>: No space left on device (28)",
       "shared-memory", "system"},
      {"RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is possible "
       "that dataloader's workers are out of shared memory.",
       "shared-memory", "system"},
      {"ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
       "shared memory (shm).",
       "shared-memory", "system"},
      // what the system permits
      {"OSError: [Errno 38] Function not implemented (engine.py, line 3)", "shared-memory",
       "system"},
      {"BlockingIOError: [Errno 11] Resource temporarily unavailable", "no-more-processes",
       "system"},
      {"RuntimeError: Could not determine home directory.", "user-without-entry", "system"},
      {"OSError: [Errno 30] Read-only file system: '/.cache'", "cannot-be-written", "system"},
      // memory
      {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total "
       "capacity of 31.36 GiB of which 12.00 MiB is free.",
       "gpu-out-of-memory", "memory"},
      {"cudaMalloc(&data_, bytes()): cudaErrorMemoryAllocation: out of memory", "gpu-out-of-memory",
       "memory"},
      {"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
       "gpu-out-of-memory", "memory"},
      {"synthetic needs 3052 MB of memory, 900 MB are free (by MemAvailable)", "host-out-of-memory",
       "memory"},
      {"Out of memory: Killed process 4242 (python) total-vm:9999kB", "host-out-of-memory",
       "memory"},
      {"numpy._core._exceptions._ArrayMemoryError: Unable to allocate 29.8 GiB for an array",
       "host-out-of-memory", "memory"},
      {"MemoryError:  (engine.py, line 7)", "host-out-of-memory", "memory"},
      {"RuntimeError: [enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't "
       "allocate memory: you tried to allocate 800000000000 bytes.",
       "host-out-of-memory", "memory"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    const KnownError* error = mkbench::find_known_error(row.text);
    REQUIRE(error != nullptr);
    CHECK(error->name == row.name);
    CHECK(error->error_class == row.error_class);
  }
}

TEST_CASE("what the system does not permit is not the engine's fault") {
  using mkbench::ErrorKind;
  CHECK(mkbench::kind_of(ErrorKind::kBadInput, "OSError: Too many open files") ==
        ErrorKind::kEnvUnfit);
  CHECK(mkbench::kind_of(ErrorKind::kRuntime, "cudaErrorMemoryAllocation: out of memory") ==
        ErrorKind::kRuntime);
  CHECK(mkbench::kind_of(ErrorKind::kBadInput, "no such file") == ErrorKind::kBadInput);
}

TEST_CASE("other messages are not taken for known ones") {
  for (const char* text :
       {"", "prompt corpus-17, position 3: token 12, the truth has 13",
        "cudaStreamSynchronize(0): cudaErrorIllegalAddress: an illegal memory access was "
        "encountered",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x2 and 3x4)",
        "ERROR: Could not find a version that satisfies the requirement numpy==9.9",
        "the host of ring died by signal 11 (Segmentation fault) during 'decode'",
        "shared memory of 200 KiB a block"}) {
    CAPTURE(text);
    CHECK(mkbench::find_known_error(text) == nullptr);
  }
}

TEST_CASE("advice is told once for each row that the texts hold") {
  const std::vector<std::string> lines = mkbench::advice_lines(
      {"case a: CUDA out of memory", "no idea", "case b: CUDA out of memory", "std::bad_alloc"});
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].starts_with("advice: memory: the card's memory is full"));
  CHECK(lines[1].starts_with("advice: memory: the machine's memory"));
  CHECK(mkbench::advice_lines({"no idea", ""}).empty());
  // What mkbench says with its own advice is not advised twice.
  for (const char* own :
       {"--device cuda: no usable GPU: no NVIDIA driver is loaded; install the NVIDIA driver",
        "the driver shows no GPU (no CUDA-capable device is detected)"}) {
    CHECK(mkbench::find_known_error(own) != nullptr);
    CHECK(mkbench::advice_lines({own}).empty());
  }
}

TEST_CASE("every command that installs torch takes the same one") {
  const std::string wanted(mkbench::kTorchRequirement);
  // The wheel that set-up takes for CUDA 12.8, which runs on every driver that mkbench runs on.
  CHECK_THAT(read("scripts/requirements/lane-12.8.txt"), mkbench::ContainsText(wanted + "\n"));
  for (const KnownError& error : mkbench::known_errors()) {
    const size_t at = error.command.find("torch==");
    CAPTURE(error.command);
    if (at != std::string_view::npos) CHECK(error.command.substr(at, wanted.size()) == wanted);
  }
}

TEST_CASE("an advice is one line with class, cause and command") {
  const KnownError* error = mkbench::find_known_error("Torch not compiled with CUDA enabled");
  REQUIRE(error != nullptr);
  const std::string text = mkbench::advice_text(*error);
  CHECK_THAT(text, mkbench::ContainsText("wheel: "));
  CHECK_THAT(text, mkbench::ContainsText(std::string(error->cause)));
  CHECK_THAT(text, mkbench::ContainsText("; try: python -m pip install"));
  CHECK(text.find('\n') == std::string::npos);
}

TEST_CASE("the page of troubleshooting has the table as `mkbench list errors` prints it") {
  const std::string page = read("docs/troubleshooting.md"), table = mkbench::render_known_errors();
  CHECK(page.find(table) != std::string::npos);
  for (const KnownError& error : mkbench::known_errors())
    CHECK_THAT(table, mkbench::ContainsText(std::string(error.command)));
}
