#include "harness/report/known_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "references/base/data_root.h"

namespace mkbench {
namespace {

using enum ErrorClass;

// Must hold kTorchRequirement (known_errors.h); a test compares the two.
constexpr std::string_view kTorchWheel = "python -m pip install --force-reinstall torch==2.9.1";
constexpr std::string_view kNewImage =
    "docker run --gpus all -it nvidia/cuda:12.8.1-devel-ubuntu24.04";
constexpr std::string_view kProcessesOfCard =
    "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv";

const std::vector<KnownError>& table() {
  static const std::vector<KnownError> rows = {
      {"no-kernel-image",
       kWheel,
       "CUDA error: no kernel image is available for execution on the device",
       {"no kernel image is available", "cudaErrorNoKernelImageForDevice",
        "CUDA_ERROR_NO_BINARY_FOR_GPU"},
       "this torch (or this build) has no code for the card's architecture",
       kTorchWheel},
      {"capability-not-compatible",
       kWheel,
       "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current "
       "PyTorch installation.",
       {"is not compatible with the current pytorch installation"},
       "this torch has no code for the card's architecture",
       kTorchWheel},
      {"not-compiled-with-cuda",
       kWheel,
       "AssertionError: Torch not compiled with CUDA enabled",
       {"torch not compiled with cuda enabled", "not linked with support for cuda"},
       "this is torch's wheel for the CPU (+cpu), which runs everything on the CPU without a word",
       kTorchWheel},
      {"bf16-gpu",
       kWheel,
       "ValueError: Your setup doesn't support bf16/gpu.",
       {"support bf16/gpu", "bf16/gpu not supported",
        "bfloat16 is only supported on gpus with compute capability"},
       "torch sees no GPU that computes in bf16: a wheel for the CPU, or a card before sm_80",
       kTorchWheel},
      {"no-version-of-torch",
       kWheel,
       "ERROR: Could not find a version that satisfies the requirement torch==2.9.1",
       {"could not find a version that satisfies the requirement torch",
        "no matching distribution found for torch"},
       "this Python has no wheel of that torch (3.10 to 3.14 have), pip is old, or there is no "
       "network",
       "python3.12 -m venv ~/torch-venv && ~/torch-venv/bin/python -m pip install torch==2.9.1"},
      {"no-torch",
       kWheel,
       "ModuleNotFoundError: No module named 'torch'",
       {"no module named 'torch'"},
       "this Python has no torch; the one of mkbench's own environment has, which scripts/setup.sh "
       "makes",
       kTorchWheel},
      {"externally-managed",
       kImage,
       "error: externally-managed-environment",
       {"externally-managed-environment"},
       "the system's Python takes no packages from pip",
       "python3 -m venv ~/torch-venv && ~/torch-venv/bin/python -m pip install torch==2.9.1"},
      {"bitsandbytes-without-cuda",
       kWheel,
       "RuntimeError: Configured CUDA binary not found at bitsandbytes/libbitsandbytes_cuda128.so",
       {"configured cuda binary not found", "libbitsandbytes_cuda", "cuda setup failed despite",
        "bitsandbytes native library functionality",
        "bitsandbytes was compiled without gpu support"},
       "this bitsandbytes has no library for the CUDA of the installed torch",
       "python -m pip install --upgrade bitsandbytes"},
      {"old-compiler",
       kCuda,
       "ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'",
       {"is not defined for option 'gpu-name'", "unsupported gpu architecture",
        "invalid value for --gpu-architecture"},
       "the CUDA compiler is older than the card: sm_100 and sm_120 need 12.8",
       "scripts/setup.sh  # finds a compiler of 12.8 or later, or says where to get one"},
      {"unsupported-gnu-version",
       kCuda,
       "#error -- unsupported GNU version! gcc versions later than 14 are not supported!",
       {"unsupported gnu version", "unsupported clang version"},
       "the host compiler is newer than this CUDA toolkit knows",
       "apt-get install g++-12 && CXX=g++-12 scripts/setup.sh"},
      {"unsupported-toolchain",
       kCuda,
       "CUDA error: the provided PTX was compiled with an unsupported toolchain.",
       {"compiled with an unsupported toolchain", "cudaErrorUnsupportedPtxVersion",
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
       "PTX of a toolkit that is newer than the driver; machine code for the card has no such "
       "limit",
       "nvcc -arch=native ...  # machine code for this card; or update the driver"},
      {"driver-library-mismatch",
       kDriver,
       "Failed to initialize NVML: Driver/library version mismatch",
       {"driver/library version mismatch", "cudaErrorSystemDriverMismatch",
        "unsupported display driver / cuda driver combination"},
       "the driver was updated while its older kernel module stayed loaded",
       "sudo reboot  # of the host, also where this is a container"},
      {"forward-compatibility",
       kImage,
       "CUDA error: forward compatibility was attempted on non supported HW",
       {"forward compatibility was attempted", "cudaErrorCompatNotSupportedOnDevice"},
       "the image brings a libcuda of its own, which only data-centre cards may use",
       "mv /usr/local/cuda/compat /usr/local/cuda/compat.off; unset LD_LIBRARY_PATH"},
      {"driver-insufficient",
       kDriver,
       "CUDA error: CUDA driver version is insufficient for CUDA runtime version",
       {"driver version is insufficient", "nvidia driver on your system is too old",
        "cudaErrorInsufficientDriver"},
       "the driver is older than the CUDA that the program was built for",
       "scripts/setup.sh  # takes the CUDA that the driver runs; below 570 take another machine"},
      {"no-libcuda",
       kImage,
       "libcuda.so.1: cannot open shared object file: No such file or directory",
       {"libcuda.so.1: cannot open shared object file", "libcuda.so.1 not found",
        "libcuda.so cannot found", "could not find libcuda",
        "libnvidia-ml.so.1: cannot open shared object file"},
       "no driver is to be seen here: the container was started without its GPUs, or on WSL2 "
       "/usr/lib/wsl/lib is not searched",
       "docker run --gpus all ...  # on WSL2: export LD_LIBRARY_PATH=/usr/lib/wsl/lib"},
      {"no-nvidia-driver",
       kDriver,
       "RuntimeError: Found no NVIDIA driver on your system.",
       {"found no nvidia driver", "couldn't communicate with the nvidia driver",
        "no nvidia driver is loaded"},
       "no NVIDIA driver is loaded: none is installed, or the container was started without its "
       "GPUs",
       "nvidia-smi  # says what it can; a container is started with --gpus all"},
      {"no-container-runtime",
       kImage,
       "could not select device driver \"\" with capabilities: [[gpu]]",
       {"could not select device driver"},
       "the host lacks NVIDIA's container toolkit",
       "apt-get install nvidia-container-toolkit && systemctl restart docker"},
      {"nvml-lost-in-container",
       kImage,
       "Failed to initialize NVML: Unknown Error",
       {"failed to initialize nvml: unknown error"},
       "the container has lost its GPUs after it was started",
       "docker restart NAME  # rented: restart the instance"},
      {"no-cuda-gpus",
       kImage,
       "RuntimeError: No CUDA GPUs are available",
       {"no cuda gpus are available", "no cuda-capable device is detected", "cudaErrorNoDevice",
        "cuda is not available", "cuda not available", "torch.cuda.is_available() is false",
        "torch.cuda.is_available() returned false"},
       "the driver shows no GPU here: CUDA_VISIBLE_DEVICES hides it, or the container was started "
       "without its GPUs",
       "unset CUDA_VISIBLE_DEVICES; nvidia-smi -L"},
      {"invalid-device-ordinal",
       kImage,
       "CUDA error: invalid device ordinal",
       {"invalid device ordinal", "cudaErrorInvalidDevice"},
       "a card was asked for by a number that this machine does not have",
       "unset CUDA_VISIBLE_DEVICES; nvidia-smi -L"},
      {"device-busy",
       kDriver,
       "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
       {"busy or unavailable", "cudaErrorDevicesUnavailable"},
       "another process has the card, whose compute mode admits one",
       kProcessesOfCard},
      {"cuda-unknown-error",
       kDriver,
       "CUDA unknown error - this may be due to an incorrectly set up environment",
       {"cuda unknown error", "cudaErrorInitializationError",
        "unexpected error from cudagetdevicecount"},
       "the driver did not start: its module for compute is not loaded, or the machine slept",
       "sudo modprobe nvidia_uvm; nvidia-smi"},
      {"launch-timeout",
       kDriver,
       "CUDA error: the launch timed out and was terminated",
       {"launch timed out and was terminated", "cudaErrorLaunchTimeout",
        "CUDA_ERROR_LAUNCH_TIMEOUT"},
       "the driver has ended a kernel that kept a display waiting: on Windows (WSL2) after 2 s",
       "mkbench -n 16 ...  # a shorter launch; docs/machine.md says how Windows waits longer"},
      {"card-failed",
       kDriver,
       "Unable to determine the device handle for GPU0000:01:00.0: GPU is lost.  Reboot the system "
       "to recover this GPU",
       {"gpu is lost", "fallen off the bus", "uncorrectable ecc error",
        "cudaErrorECCUncorrectable"},
       "the card or its connection has failed",
       "sudo dmesg --level=err,warn  # lines of NVRM: Xid; rented: take another machine"},
      {"shared-memory",
       kImage,
       "RuntimeError: unable to allocate shared memory(shm) for file </torch_1>: No space left on "
       "device (28)",
       {"allocate shared memory", "out of shared memory", "unable to open shared memory object",
        "/dev/shm", "insufficient shared memory (shm)", "write to file </torch",
        "killed by signal: bus error"},
       "the container's /dev/shm is too small (64 MB unless said)",
       "docker run --shm-size=8g --gpus all ..."},
      {"host-out-of-memory",
       kMemory,
       "died by signal 9 (Killed): the kernel ended it for lack of memory",
       {"for lack of memory", "cannot allocate memory", "can't allocate memory", "std::bad_alloc",
        "unable to allocate", "memoryerror", "oom-kill", "out of memory: killed",
        "mb are free (by"},
       "the machine's memory (or the container's limit) is full",
       "free -h; cat /sys/fs/cgroup/memory.max"},
      {"gpu-out-of-memory",
       kMemory,
       "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
       {"cuda out of memory", "cuda error: out of memory", "cudaErrorMemoryAllocation",
        "CUDA_ERROR_OUT_OF_MEMORY", "cublas_status_alloc_failed", "cublas_status_not_initialized",
        "out of memory"},
       "the card's memory is full: the work is too large, or another process holds it",
       kProcessesOfCard},
      {"disk-full",
       kImage,
       "OSError: [Errno 28] No space left on device",
       {"no space left on device", "disk quota exceeded"},
       "the disk is full; docs/setup.md says how much set-up needs",
       "df -h . ~/.cache; MKBENCH_VENV=/other/disk/venv scripts/setup.sh"},
      {"missing-torch-library",
       kWheel,
       "error while loading shared libraries: libtorch.so: cannot open shared object file",
       {"libtorch.so: cannot open", "libtorch.so: wrong elf class", "libtorch_cuda.so: cannot open",
        "libtorch_cpu.so: cannot open", "libc10.so: cannot open", "libc10_cuda.so: cannot open",
        "undefined symbol: _zn3c10", "undefined symbol: _zn5torch"},
       "the torch that the program was built with has moved, or is another one",
       "scripts/setup.sh"},
      {"missing-cuda-library",
       kCuda,
       "error while loading shared libraries: libcudart.so.13: cannot open shared object file",
       {"libcudart.so", "libcublas.so", "libcublaslt.so", "libcudnn.so", "libnvrtc.so",
        "libcusparselt.so", "libnccl.so", "libnvjitlink.so"},
       "a library of the CUDA that the program was built with has moved or is missing",
       "scripts/setup.sh"},
      {"old-libraries",
       kImage,
       "/lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.30' not found",
       {"version `glibcxx_", "version `glibc_", "version `cxxabi_"},
       "the image is older than the one that the program was built on",
       kNewImage},
  };
  return rows;
}

bool equal_letters(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

// Whether `text` holds `part` from the start of a word on: "memoryerror" is not in OutOfMemoryError.
bool holds(std::string_view text, std::string_view part) {
  for (auto from = text.begin();; ++from) {
    from = std::search(from, text.end(), part.begin(), part.end(), equal_letters);
    if (from == text.end()) return false;
    if (from == text.begin() || std::isalnum(static_cast<unsigned char>(from[-1])) == 0)
      return true;
  }
}

// mkbench's own messages that say what to do already (device_info.cpp).
bool advises_itself(std::string_view text) {
  return holds(text, "no NVIDIA driver is loaded") || holds(text, "the driver shows no GPU");
}

}  // namespace

std::span<const KnownError> known_errors() { return table(); }

const KnownError* find_known_error(std::string_view text) {
  for (const KnownError& error : table()) {
    for (const std::string_view part : error.parts) {
      if (holds(text, part)) return &error;
    }
  }
  return nullptr;
}

std::string_view error_class_name(ErrorClass error_class) {
  constexpr std::string_view kNames[] = {"wheel", "CUDA", "driver", "image", "memory"};
  return kNames[static_cast<size_t>(error_class)];
}

std::string advice_text(const KnownError& error) {
  return fmt::format("{}: {}; try: {}", error_class_name(error.error_class), error.cause,
                     advice_here(std::string(error.command)));
}

std::vector<std::string> advice_lines(const std::vector<std::string>& texts) {
  std::vector<std::string> lines;
  for (const std::string& text : texts) {
    const KnownError* known = find_known_error(text);
    if (known == nullptr || advises_itself(text)) continue;
    std::string line = "advice: " + advice_text(*known);
    if (std::find(lines.begin(), lines.end(), line) == lines.end())
      lines.push_back(std::move(line));
  }
  return lines;
}

std::string render_known_errors() {
  // A code span with a backtick inside has two on either side.
  const auto code = [](std::string_view text) {
    return text.find('`') == std::string_view::npos ? fmt::format("`{}`", text)
                                                    : fmt::format("`` {} ``", text);
  };
  std::string text = "| message | class | cause | command |\n|---|---|---|---|\n";
  for (const KnownError& error : table()) {
    text += fmt::format("| {} | {} | {} | {} |\n", code(error.message),
                        error_class_name(error.error_class), error.cause, code(error.command));
  }
  return text;
}

}  // namespace mkbench
