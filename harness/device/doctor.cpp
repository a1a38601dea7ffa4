// Makes the doctor's rows (driver, GPUs, code, memory, surroundings) from given facts.
#include "harness/device/doctor.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/report/known_errors.h"
#include "references/base/data_root.h"

namespace mkbench {
namespace {

constexpr double kGb = 1e9;
constexpr char kRepair[] =
    "scripts/setup.sh repairs the installation: it fetches what is missing and builds anew";
constexpr char kInstallDriver[] =
    "install the NVIDIA driver (in a container: start it with --gpus all), or run with --device "
    "cpu";
// With MKBENCH_VENV, set-up looks for no other Python and installs the pinned torch.
constexpr char kPinnedTorch[] =
    "MKBENCH_VENV=$HOME/.cache/mkbench/pinned scripts/setup.sh  # builds with the pinned torch";

std::string gib(int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0));
}
std::string gb(int64_t bytes) { return fmt::format("{:.1f} GB", static_cast<double>(bytes) / kGb); }

// The advice that the table of known errors has for a message; `otherwise` if it has none or only
// points to set-up.
std::string advice_for(const std::string& message, const std::string& otherwise) {
  const KnownError* known = find_known_error(message);
  if (known == nullptr || known->command.starts_with("scripts/setup.sh")) return otherwise;
  return advice_text(*known);
}

bool runs_on(const std::string& architectures, const DeviceInfo& card) {
  const std::vector<std::string> parts = split_architectures(architectures);
  return std::any_of(parts.begin(), parts.end(), [&](const std::string& a) {
    return architecture_runs_on(a, card.sm_major, card.sm_minor);
  });
}

// Judges one machine, row by row, in the order in which the rows are shown.
class Judge {
 public:
  Judge(const DoctorInputs& inputs, DoctorReport& report)
      : in_(inputs),
        report_(report),
        list_(report.devices),
        card_(find_device(report.devices, inputs.gpu)) {}

  void judge() {
    report_.items.clear();
    report_.usability = in_.card_problem.empty()
                            ? judge_device(list_, in_.gpu, in_.our_architectures)
                            : Usability{Unfit::kNoCode, in_.card_problem, kRepair};
    judge_driver();
    if (in_.card_problem.empty()) {
      judge_runtime();
      judge_devices();
    } else {
      problem("CUDA engines", in_.card_problem, advice_for(in_.card_problem, kRepair));
    }
    judge_toolkit();
    judge_torch();
    judge_operations();
    judge_memory();
    judge_surroundings();
    judge_wsl();
  }

 private:
  void add(Finding finding, std::string topic, std::string text, std::string what_to_do = {}) {
    report_.items.push_back({std::move(topic), finding, std::move(text), std::move(what_to_do)});
  }
  void fine(std::string topic, std::string text) {
    add(Finding::kFine, std::move(topic), std::move(text));
  }
  void warning(std::string topic, std::string text, std::string what_to_do) {
    add(Finding::kWarning, std::move(topic), std::move(text), std::move(what_to_do));
  }
  void problem(std::string topic, std::string text, std::string what_to_do) {
    add(Finding::kProblem, std::move(topic), std::move(text), std::move(what_to_do));
  }
  // Adds a problem of the card; with --device cpu only a note.
  void card_problem(std::string topic, std::string text, std::string what_to_do) {
    if (in_.cpu_only) what_to_do.clear();
    add(in_.cpu_only ? Finding::kNote : Finding::kProblem, std::move(topic), std::move(text),
        std::move(what_to_do));
  }

  // Faults of driver or runtime have rows of their own, so no card's row repeats them.
  static bool told_above(Unfit unfit) {
    return unfit == Unfit::kNoDriver || unfit == Unfit::kDriverTooOld ||
           unfit == Unfit::kRuntimeTooOld;
  }

  void judge_driver() {
    const std::string& version = list_.driver_version;
    const bool asked = in_.card_problem.empty();  // false: no CUDA host, only the driver's version
    if (version.empty() && list_.driver_cuda_version == 0) {
      card_problem("driver", "no NVIDIA driver is loaded", kInstallDriver);
    } else if (asked && list_.driver_cuda_version == 0) {
      const std::string text = "libcuda.so.1 not found";
      card_problem("driver", fmt::format("{} is loaded; {}", version, text),
                   advice_for(text, kInstallDriver));
    } else if (report_.usability.unfit == Unfit::kDriverTooOld) {
      card_problem("driver", report_.usability.reason, report_.usability.what_to_do);
    } else if (!asked && lane_for_driver(version, 0) == nullptr) {
      card_problem("driver", version + " is too old for every CUDA that mkbench is built for",
                   driver_fault(version, 0, cuda_lanes().back().cuda).what_to_do);
    } else {
      fine("driver", asked ? fmt::format("{} (CUDA {})", version.empty() ? "present" : version,
                                         cuda_version_text(list_.driver_cuda_version))
                           : version);
    }
  }

  void judge_runtime() {
    const std::string runtime =
        fmt::format("CUDA {}; our code: {}", cuda_version_text(list_.runtime_cuda_version),
                    in_.our_architectures.empty() ? "none for GPUs" : in_.our_architectures);
    if (lane_of_cuda(list_.runtime_cuda_version) != nullptr) {
      fine("runtime", runtime);
    } else {
      card_problem("runtime",
                   fmt::format("{}; wanted {} or later", runtime, cuda_lanes().back().name),
                   "scripts/setup.sh builds with a supported toolkit, or says where to get one");
    }
  }

  void judge_devices() {
    const Usability& asked = report_.usability;
    if (list_.devices.empty()) {
      if (told_above(asked.unfit)) {
        add(Finding::kNote, "GPU", "none is visible without a suitable driver");
      } else {
        card_problem("GPU", list_.error.empty() ? "none" : "none: " + list_.error,
                     advice_for(list_.error, asked.what_to_do));
      }
      return;
    }
    for (const DeviceInfo& d : list_.devices) judge_card(d, fmt::format("GPU {}", d.index));
    if (asked.unfit == Unfit::kNoSuchIndex)
      card_problem(fmt::format("GPU {}", in_.gpu), asked.reason, asked.what_to_do);
    if (asked.usable()) judge_megakernel();
  }

  // If ring cannot run, plain can, so this is no problem.
  void judge_megakernel() {
    constexpr char kTopic[] = "megakernel";
    if (!in_.ring_obstacle.empty()) {
      fine(kTopic, "plain, not ring: " + in_.ring_obstacle);
      return;
    }
    const std::string text =
        fmt::format("ring runs {}; its pace on this card: {}", in_.model, in_.ring_pace);
    if (in_.ring_pace.ends_with("not measured")) {
      add(Finding::kNote, kTopic, text,
          "mkbench tune measures it, and prints the row for kernels/ring/tuning.cpp");
    } else {
      fine(kTopic, text);
    }
  }

  void judge_card(const DeviceInfo& d, const std::string& topic) {
    const Usability use = judge_device(list_, d.index, in_.our_architectures);
    const std::string text = fmt::format("{}, sm_{}{}, {} free of {}{}", d.name, d.sm_major,
                                         d.sm_minor, gib(d.free_bytes), gib(d.total_bytes),
                                         d.state.mig.value_or(false) ? ", MIG" : "");
    if (use.usable() || told_above(use.unfit)) {
      fine(topic, text);
    } else if (d.index == in_.gpu) {
      card_problem(topic, text + ": " + use.reason, use.what_to_do);
    } else {
      warning(topic, text + ": " + use.reason, use.what_to_do);
    }
    const GpuState& s = d.state;
    if (s.throttle_reasons && is_throttled(*s.throttle_reasons)) {
      warning(topic, "clocks limited by: " + s.throttle_text,
              "times vary while clocks are limited: cool the card or raise its limit");
    }
    if (s.power_limit_w && s.default_power_limit_w && *s.power_limit_w < *s.default_power_limit_w) {
      warning(topic,
              fmt::format("power limit {:.0f} W, default {:.0f} W: slower than other such cards",
                          *s.power_limit_w, *s.default_power_limit_w),
              fmt::format("sudo nvidia-smi -i {} -pl {:.0f}, or report the limit too", d.index,
                          *s.default_power_limit_w));
    }
    if (report_.checked && d.index == in_.gpu) judge_memory_clock(d, topic);
    if (s.compute_mode == "prohibited") {
      card_problem(topic, "compute mode prohibited: no program may compute on the card",
                   fmt::format("sudo nvidia-smi -i {} -c DEFAULT", d.index));
    } else if (d.exclusive) {
      fine(topic, "compute mode exclusive: engines are opened one at a time");
    }
    if (s.processes.empty()) return;
    std::string others;
    for (const GpuProcess& p : s.processes)
      others += fmt::format("{}{} {}", others.empty() ? "" : ", ", p.pid, p.name);
    warning(topic, fmt::format("{} other process(es): {}", s.processes.size(), others),
            "times are not to be trusted while others use the card; --gpu chooses another");
  }

  void judge_memory_clock(const DeviceInfo& d, const std::string& topic) {
    const GpuState& s = d.state;
    if (!s.memory_clock_mhz || !s.max_memory_clock_mhz) return;
    const double share = memory_clock_share(s);
    std::string text = fmt::format("memory at {} of {} MHz while it computes", *s.memory_clock_mhz,
                                   *s.max_memory_clock_mhz);
    if (d.pin_gb_per_s > 0) {
      text += fmt::format(": its pins give {:.0f} of {:.0f} GB/s", share * d.pin_gb_per_s,
                          d.pin_gb_per_s);
    }
    if (share >= kFullMemoryClock) {
      fine(topic, text);
    } else {
      warning(topic, text,
              fmt::format("if the clock was locked: sudo nvidia-smi -i {} -rmc", d.index));
    }
  }

  // Only building needs a toolkit, so no finding here is a problem for a built mkbench.
  void judge_toolkit() {
    const Toolkit& toolkit = report_.toolkit;
    // Without a driver, set-up takes the newest lane.
    const bool driver = list_.driver_cuda_version > 0 || !list_.driver_version.empty();
    const CudaLane* of_driver =
        driver ? lane_for_driver(list_.driver_version, list_.driver_cuda_version) : nullptr;
    const CudaLane& lane = of_driver != nullptr ? *of_driver : cuda_lanes().front();
    const bool from_pypi = lane.toolkit == "pypi";
    const std::string where =
        from_pypi ? std::string("scripts/setup.sh installs a compiler into its environment")
                  : fmt::format(
                        "to build for this driver: apt-get install {} (NVIDIA's "
                        "repository), or the image {}",
                        lane.toolkit, lane.image);
    const std::string found = fmt::format("CUDA {} ({})", toolkit.version, toolkit.nvcc);
    const CudaLane* own = lane_of_cuda(cuda_version_number(toolkit.version));
    if (toolkit.nvcc.empty()) {
      const std::string text = "no nvcc on this machine";
      from_pypi ? fine("toolkit", text + "; " + where) : warning("toolkit", text, where);
    } else if (own == nullptr) {
      warning("toolkit", fmt::format("{}, older than {}", found, cuda_lanes().back().name), where);
    } else if (of_driver != nullptr && own->cuda > of_driver->cuda) {
      warning("toolkit", found + ", newer than the driver runs", where);
    } else {
      fine("toolkit", own->cuda >= lane.cuda
                          ? found
                          : fmt::format("{}: scripts/setup.sh --cuda {} uses it; otherwise {}",
                                        found, own->name, where));
    }
  }

  void judge_torch() {
    constexpr char kTopic[] = "libtorch";
    if (!in_.torch_problem.empty()) {
      problem(kTopic, in_.torch_problem, advice_for(in_.torch_problem, kRepair));
      return;
    }
    const std::string torch = fmt::format(
        "{} built on CUDA {}, {}", in_.torch_version,
        in_.torch_cuda_version.empty() ? "none" : in_.torch_cuda_version,
        in_.torch_architectures.empty() ? "architectures unknown" : in_.torch_architectures);
    const bool should_see = card_ != nullptr && report_.usability.usable();
    if (should_see && in_.torch_cuda_version.empty()) {
      card_problem(kTopic, torch + ": a build for the CPU beside a GPU", kPinnedTorch);
    } else if (card_ != nullptr && !split_architectures(in_.torch_architectures).empty() &&
               !runs_on(in_.torch_architectures, *card_)) {
      card_problem(kTopic,
                   fmt::format("{}; sm_{}{} is NOT SUPPORTED by this libtorch: its kernels would "
                               "end with \"no kernel image is available for execution on the "
                               "device\"",
                               torch, card_->sm_major, card_->sm_minor),
                   kPinnedTorch);
    } else if (should_see && !in_.torch_cuda_available) {
      card_problem(kTopic, torch + ": does not see the GPU",
                   "unset CUDA_VISIBLE_DEVICES; nvidia-smi; else " + std::string(kPinnedTorch));
    } else if (card_ != nullptr && !in_.torch_architectures.empty()) {
      fine(kTopic, fmt::format("{}; sm_{}{} is SUPPORTED by this libtorch", torch, card_->sm_major,
                               card_->sm_minor));
    } else {
      fine(kTopic, torch);
    }
  }

  // Results of mkbench's own operation and of libtorch's matrix product on the card.
  void judge_operations() {
    if (in_.card_problem.empty()) {
      judge_check("operation", report_.checked ? &report_.check : nullptr, "no usable GPU",
                  "the card does not compute: look at dmesg (Xid), nvidia-smi -q and the driver");
    }
    if (in_.torch_problem.empty()) {
      judge_check("torch matmul", report_.torch_check ? &*report_.torch_check : nullptr,
                  "libtorch sees no GPU", kPinnedTorch);
    }
  }

  void judge_check(const char* topic, const DeviceCheck* check, const char* why_not,
                   const char* otherwise) {
    if (check == nullptr) {
      add(Finding::kNote, topic, fmt::format("not run: {}", why_not));
    } else if (check->ok) {
      fine(topic,
           fmt::format("bf16 on GPU {}: the sum is {:.0f}, as expected", in_.gpu, check->got));
    } else {
      card_problem(topic, check->error, advice_for(check->error, otherwise));
    }
  }

  void judge_memory() {
    if (card_ != nullptr && in_.device_bytes_needed > 0) {
      const std::string text = fmt::format("{} on the GPU needs {}, free {}", in_.model,
                                           gib(in_.device_bytes_needed), gib(card_->free_bytes));
      if (card_->free_bytes >= in_.device_bytes_needed) {
        fine("GPU memory", text);
      } else {
        card_problem("GPU memory", text, "free memory on the card, or choose a smaller --model");
      }
    }
    const HostMachine& machine = report_.machine;
    if (in_.host_bytes_needed <= 0 || machine.memory_free <= 0) return;
    const std::string text = fmt::format(
        "{} needs {}, free {}{}", in_.model, gib(in_.host_bytes_needed), gib(machine.memory_free),
        machine.memory_total > 0 ? " of " + gib(machine.memory_total) : "");
    if (machine.memory_free >= in_.host_bytes_needed) {
      fine("host memory", text);
    } else {
      warning("host memory", text,
              machine.wsl.version == 2 ? "WSL2 gets part of Windows' memory; memory= under [wsl2] "
                                         "in .wslconfig sets how much"
                                       : "close other programs, or choose a smaller --model");
    }
  }

  void judge_surroundings() {
    constexpr double kLittleDisk = 1e9;  // room for reports and their plots
    const HostMachine& machine = report_.machine;
    fine("cores", fmt::format("{:g}", machine.cores));
    if (!machine.disk_folder.empty()) {
      const std::string text = fmt::format("{} free of {} in {}", gb(machine.disk_free),
                                           gb(machine.disk_total), machine.disk_folder);
      if (static_cast<double>(machine.disk_free) < kLittleDisk) {
        warning("disk", text, "a run writes a report folder: free some space, or use --out");
      } else {
        fine("disk", text);
      }
    }
    if (!machine.container.empty()) {
      fine("container",
           fmt::format("{}, /dev/shm {}", machine.container, gb(machine.shared_total)));
    }
  }

  // The most common mistake is to install NVIDIA's Linux driver inside WSL2: it hides Windows'
  // driver, the only one that reaches the card.
  void judge_wsl() {
    constexpr char kTopic[] = "WSL2";
    const Wsl& wsl = report_.machine.wsl;
    if (wsl.version == 1) {
      card_problem(kTopic, "this is WSL1, which has no GPUs",
                   "in Windows: wsl --set-version <distribution> 2");
    }
    if (wsl.version != 2) return;
    if (!wsl.linux_libcuda.empty()) {
      const std::string text =
          fmt::format("yes; a Linux driver was installed inside it ({})", wsl.linux_libcuda);
      constexpr char kRemove[] =
          "sudo apt-get purge '^nvidia-driver.*' '^libnvidia-compute.*'; in Windows: wsl "
          "--shutdown";
      if (list_.devices.empty()) {
        card_problem(kTopic, text + ", and hides Windows' driver, which the card needs", kRemove);
      } else {
        warning(kTopic, text + ": it does not hide Windows' driver now, but may later", kRemove);
      }
    } else if (wsl.windows_libcuda.empty()) {
      card_problem(kTopic, "yes, without Windows' driver in /usr/lib/wsl/lib",
                   "install NVIDIA's driver in Windows, none in Linux; then wsl --shutdown");
    } else if (list_.driver_cuda_version == 0) {
      warning(kTopic, "yes; Windows' driver is installed, but programs do not find it",
              "export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH");
    } else {
      fine(kTopic, "yes, with Windows' driver in /usr/lib/wsl/lib");
    }
    add(Finding::kNote, "WSL2 limits",
        "Windows may end a kernel after 2 s, does not report clocks, throttling and other "
        "processes, gives WSL2 part of the memory, and also runs its desktop on the card",
        "docs/machine.md: what each means for a run, and what to set");
  }

  const DoctorInputs& in_;
  DoctorReport& report_;
  const DeviceList& list_;
  const DeviceInfo* card_;
};

void conclude(const DoctorInputs& inputs, DoctorReport& report) {
  const bool no_run = !inputs.torch_problem.empty() || !inputs.card_problem.empty();
  report.gpu_ready = report.usability.usable() && report.checked && report.check.ok &&
                     !inputs.cpu_only && report.problems() == 0;
  if (no_run) {
    report.verdict = "nothing can be judged: a program of mkbench cannot start";
    report.next = advice_here("scripts/setup.sh");
  } else if (report.gpu_ready) {
    report.verdict = fmt::format("ready on GPU {}", inputs.gpu);
    report.next = "mkbench --compare eager";
  } else {
    report.verdict = inputs.cpu_only
                         ? "ready for the CPU, where the host twin runs instead of the megakernel"
                         : "no usable GPU (see the problems above); on the CPU, the host twin runs "
                           "instead of the megakernel";
    report.next = "mkbench --compare eager --device cpu";
  }
}

}  // namespace

void judge_machine(const DoctorInputs& inputs, DoctorReport& report) {
  Judge(inputs, report).judge();
  const DeviceInfo* card = find_device(report.devices, inputs.gpu);
  report.python_items.clear();
  if (report.python)
    report.python_items = judge_python(*report.python, card, report.devices.driver_version);
  conclude(inputs, report);
}

}  // namespace mkbench
