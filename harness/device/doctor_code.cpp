#include <fmt/format.h>

#include <algorithm>

#include "harness/device/doctor_parts.h"
#include "harness/report/known_errors.h"

namespace mkbench::doctor {
namespace {

// Set-up looks for no other Python then, and installs the pinned torch.
constexpr char kPinnedTorch[] =
    "MKBENCH_VENV=$HOME/.cache/mkbench/pinned scripts/setup.sh  # builds with the pinned torch";

// Whether libtorch's code runs on the card; nothing to say where either is unknown.
void judge_torch_code(const DoctorInputs& inputs, const DeviceInfo& card, Items& items) {
  const auto parts = split_architectures(inputs.torch_architectures);
  if (parts.empty()) return;
  const std::string sm = fmt::format("sm_{}{}", card.sm_major, card.sm_minor);
  if (std::any_of(parts.begin(), parts.end(), [&](const std::string& a) {
        return architecture_runs_on(a, card.sm_major, card.sm_minor);
      })) {
    items.fine("libtorch", sm + " is SUPPORTED by this libtorch");
  } else {
    add_of_card(inputs, items, "libtorch",
                fmt::format("{} is NOT SUPPORTED by this libtorch: its kernels would end with \"no "
                            "kernel image is available for execution on the device\"",
                            sm),
                kPinnedTorch);
  }
}

void judge_torch(const DoctorInputs& inputs, const DoctorReport& report, Items& items) {
  if (!inputs.torch_problem.empty()) {
    items.problem("libtorch", inputs.torch_problem, advice_for(inputs.torch_problem, kRepair));
    return;
  }
  const std::string torch = fmt::format(
      "{} built on CUDA {}, {}", inputs.torch_version,
      inputs.torch_cuda_version.empty() ? "none" : inputs.torch_cuda_version,
      inputs.torch_architectures.empty() ? "architectures unknown" : inputs.torch_architectures);
  const DeviceInfo* card = find_device(report.devices, inputs.gpu);
  const bool should_see = card != nullptr && report.usability.usable();
  if (should_see && inputs.torch_cuda_version.empty()) {
    add_of_card(inputs, items, "libtorch", torch + ": a build for the CPU beside a GPU",
                kPinnedTorch);
  } else if (should_see && !inputs.torch_cuda_available) {
    add_of_card(inputs, items, "libtorch", torch + ": does not see the GPU",
                "unset CUDA_VISIBLE_DEVICES; nvidia-smi; else " + std::string(kPinnedTorch));
  } else {
    items.fine("libtorch", torch);
  }
  if (card != nullptr) judge_torch_code(inputs, *card, items);
}

void judge_product(const DoctorInputs& inputs, const DoctorReport& report, Items& items) {
  if (!inputs.torch_problem.empty()) return;
  constexpr char kTopic[] = "torch matmul";
  if (!report.torch_check) {
    items.note(kTopic, "not run: libtorch sees no GPU");
  } else if (report.torch_check->ok) {
    items.fine(kTopic, fmt::format("bf16 [512, 256] x [256, 768] on GPU {}: sum {:.0f}, as "
                                   "expected",
                                   inputs.gpu, report.torch_check->got));
  } else {
    add_of_card(inputs, items, kTopic, report.torch_check->error,
                advice_for(report.torch_check->error, kPinnedTorch));
  }
}

void judge_operation(const DoctorInputs& inputs, const DoctorReport& report, Items& items) {
  const DeviceInfo* device = find_device(report.devices, inputs.gpu);
  if (device != nullptr && device->has_bf16()) {
    items.fine("bf16", "in hardware");
  } else if (device != nullptr) {
    add_of_card(inputs, items, "bf16",
                fmt::format("sm_{}{} has none", device->sm_major, device->sm_minor),
                "use a GPU of compute capability 8.0 or later, or --device cpu");
  }
  if (!inputs.card_problem.empty()) return;
  if (!report.checked) {
    items.note("operation", "not run: no usable GPU");
  } else if (report.check.ok) {
    items.fine("operation",
               fmt::format("bf16 dot product on {} cooperating blocks: {:.0f}, as expected",
                           report.check.blocks, report.check.got));
  } else {
    add_of_card(inputs, items, "operation", report.check.error,
                advice_for(report.check.error,
                           "the card does not compute: look at dmesg (Xid), nvidia-smi -q and the "
                           "driver"));
  }
}

}  // namespace

void judge_code(const DoctorInputs& inputs, const DoctorReport& report, Items& items) {
  if (inputs.card_problem.empty()) {
    items.fine("our code",
               inputs.our_architectures.empty() ? "no GPU code" : inputs.our_architectures);
  }
  // Where ring cannot run, plain can, so this is no problem.
  if (report.usability.usable()) {
    items.fine("megakernel", inputs.ring_obstacle.empty()
                                 ? fmt::format("ring runs {}", inputs.model)
                                 : "plain, not ring: " + inputs.ring_obstacle);
  }
  judge_torch(inputs, report, items);
  judge_operation(inputs, report, items);
  judge_product(inputs, report, items);
}

}  // namespace mkbench::doctor
