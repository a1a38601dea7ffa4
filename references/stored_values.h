// The values of a checkpoint's tensors as bf16, whichever type the file stores them in.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "references/base/bf16.h"
#include "references/safetensors.h"

namespace mkbench {

// Types of the tensors that are read. F16 and F32 are rounded to bf16.
inline constexpr char kReadTypes[] = "BF16, F16 or F32";
bool is_read_type(std::string_view dtype);

// A tensor's file and its entry there. The functions need a type that is_read_type().
struct Located {
  const SafetensorsFile* file = nullptr;
  const TensorEntry* entry = nullptr;

  bool is_rounded() const { return entry->dtype != "BF16"; }
  uint64_t values() const;
  // Reads values [first, first + out.size()), rounded to nearest even, denormals too. NaN and Inf
  // stay; an F32 beyond bf16's largest value becomes Inf. Throws as SafetensorsFile::read() does.
  void read(uint64_t first, std::span<Bf16> out) const;
};

}  // namespace mkbench
