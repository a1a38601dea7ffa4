#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <string>

#include "baselines/eager.h"

namespace mkbench {
namespace {

constexpr int kRows = 512, kColumns = 768, kDepth = 256;

// -1, 0 or 1: a sum of 256 products is at most 256, and bf16 holds every such integer.
at::Tensor small_integers(const at::Tensor& numbers) { return numbers.remainder(3) - 1; }

}  // namespace

TorchCheck check_torch(bool cuda, int gpu) {
  TorchCheck check;
  try {
    const at::Tensor rows = at::arange(kRows, at::kLong).unsqueeze(1);
    const at::Tensor columns = at::arange(kColumns, at::kLong).unsqueeze(0);
    const at::Tensor left = small_integers(rows * 7 + at::arange(kDepth, at::kLong) * 5);
    const at::Tensor right =
        small_integers(at::arange(kDepth, at::kLong).unsqueeze(1) * 4 + columns * columns);
    const at::Tensor wanted = at::matmul(left, right);
    const at::Device device =
        cuda ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(gpu)) : at::Device(at::kCPU);
    const at::Tensor found = at::matmul(left.to(at::TensorOptions(device).dtype(at::kBFloat16)),
                                        right.to(at::TensorOptions(device).dtype(at::kBFloat16)))
                                 .to(at::TensorOptions(at::kCPU).dtype(at::kLong));
    check.got = found.sum().item<double>();
    check.wanted = wanted.sum().item<double>();
    const int64_t wrong = found.ne(wanted).sum().item<int64_t>();
    check.ok = wrong == 0;
    if (!check.ok) {
      check.error = std::to_string(wrong) + " of " + std::to_string(wanted.numel()) +
                    " elements are wrong; their sum is " + std::to_string(check.got) + ", wanted " +
                    std::to_string(check.wanted);
    }
  } catch (const std::exception& error) {
    // libtorch adds a stack trace in further lines.
    check.error = error.what();
    check.error.erase(std::min(check.error.size(), check.error.find('\n')));
  }
  return check;
}

}  // namespace mkbench
