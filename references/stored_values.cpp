#include "references/stored_values.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace mkbench {
namespace {

constexpr size_t kPart = 1 << 18;  // values of F32 that are rounded at a time

float from_f16(uint32_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const auto digits = static_cast<float>(exponent == 0 ? fraction : 1024 + fraction);
  const float value = exponent < 31   ? std::ldexp(digits, std::max(exponent, 1) - 25)
                      : fraction == 0 ? INFINITY
                                      : NAN;
  return (bits & 0x8000u) != 0 ? -value : value;
}

std::vector<Bf16> all_of_f16() {
  std::vector<Bf16> rounded;
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) rounded.push_back(to_bf16(from_f16(bits)));
  return rounded;
}

}  // namespace

bool is_read_type(std::string_view dtype) {
  return dtype == "BF16" || dtype == "F16" || dtype == "F32";
}

uint64_t Located::values() const { return entry->bytes() / (entry->dtype == "F32" ? 4 : 2); }

void Located::read(uint64_t first, std::span<Bf16> out) const {
  if (entry->dtype != "F32") {
    file->read(*entry, sizeof(Bf16) * first, std::as_writable_bytes(out));
    if (!is_rounded()) return;
    static const std::vector<Bf16> table = all_of_f16();
    for (Bf16& value : out) value = table[value.bits];
    return;
  }
  std::vector<float> stored(std::min(out.size(), kPart));
  for (size_t at = 0; at < out.size(); at += kPart) {
    const std::span<Bf16> part = out.subspan(at, std::min(kPart, out.size() - at));
    const std::span<float> values = std::span(stored).first(part.size());
    file->read(*entry, sizeof(float) * (first + at), std::as_writable_bytes(values));
    std::transform(values.begin(), values.end(), part.begin(), to_bf16);
  }
}

}  // namespace mkbench
