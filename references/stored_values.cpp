#include "references/stored_values.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace mkbench {
namespace {

constexpr size_t kPart = 1 << 18;  // values that are rounded at a time

float from_f16(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude < 0x0400u) {  // zero or denormal: a multiple of 2^-24
    const float value = 0x1p-24f * static_cast<float>(magnitude);
    return sign != 0 ? -value : value;
  }
  // The exponent's bias is 15 in binary16 and 127 in binary32. The exponents of Inf and NaN, 31 and
  // 255, are twice as far apart.
  const uint32_t exponent = magnitude < 0x7c00u ? 127 - 15 : 255 - 31;
  return std::bit_cast<float>(sign | ((magnitude << 13) + (exponent << 23)));
}

// All values of F16, rounded: a look-up takes 0.5 ns, the computation 2.5.
std::vector<Bf16> table_of_f16() {
  std::vector<Bf16> table;
  for (uint32_t bits = 0; bits < 0x10000u; ++bits)
    table.push_back(to_bf16(from_f16(static_cast<uint16_t>(bits))));
  return table;
}

template <typename Stored, typename Round>
void round_all(const std::byte* stored, Round round, std::span<Bf16> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    Stored value;
    std::memcpy(&value, stored + i * sizeof value, sizeof value);
    out[i] = round(value);
  }
}

uint64_t width_of(const TensorEntry& entry) { return entry.dtype == "F32" ? 4 : 2; }

}  // namespace

bool is_read_type(std::string_view dtype) {
  return dtype == "BF16" || dtype == "F16" || dtype == "F32";
}

uint64_t Located::values() const { return entry->bytes() / width_of(*entry); }

void Located::read(uint64_t first, std::span<Bf16> out) const {
  const uint64_t width = width_of(*entry);
  if (!is_rounded()) return file->read(*entry, width * first, std::as_writable_bytes(out));
  std::vector<std::byte> stored(width * std::min(out.size(), kPart));
  for (size_t at = 0; at < out.size(); at += kPart) {
    const std::span<Bf16> part = out.subspan(at, std::min(kPart, out.size() - at));
    file->read(*entry, width * (first + at), std::span(stored).first(width * part.size()));
    if (entry->dtype == "F32") {
      round_all<float>(stored.data(), to_bf16, part);
    } else {
      static const std::vector<Bf16> table = table_of_f16();
      round_all<uint16_t>(
          stored.data(), [&](uint16_t bits) { return table[bits]; }, part);
    }
  }
}

}  // namespace mkbench
