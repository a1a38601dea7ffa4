#include "harness/plugin/weight_storage.h"

#include <fmt/format.h>

#include "references/base/error.h"

namespace mkbench {
namespace {

int bits_of(int32_t dtype, const char* field, const std::string& who) {
  switch (dtype) {
    case MKBENCH_BF16:
    case MKBENCH_FP16:
      return 16;
    case MKBENCH_FP32:
      return 32;
    case MKBENCH_FP8_E4M3:
    case MKBENCH_INT8:
    case MKBENCH_UINT8:
      return 8;
    case MKBENCH_INT4:
      return 4;
    default:
      throw Error(ErrorKind::kBadInput,
                  fmt::format("{}: {} is {}, wanted one of MKBENCH_BF16, ... (engine_abi.h)", who,
                              field, dtype));
  }
}

}  // namespace

std::optional<WeightStorage> storage_of(const mkbench_storage* told, const std::string& who) {
  if (told == nullptr) return std::nullopt;
  const mkbench_storage s = mkbench_own(told);
  WeightStorage storage{.bits = bits_of(s.dtype, "dtype", who),
                        .block_out = s.scale_out,
                        .block_in = s.scale_in,
                        .bytes = static_cast<int64_t>(s.bytes)};
  if (s.scale_dtype != 0) storage.scale_bits = bits_of(s.scale_dtype, "scale_dtype", who);
  if (s.zero_dtype != 0) storage.zero_bits = bits_of(s.zero_dtype, "zero_dtype", who);
  const bool blocks = s.scale_out > 0 && s.scale_in > 0;
  if (blocks != (s.scale_dtype != 0))
    throw Error(ErrorKind::kBadInput,
                fmt::format("{}: scale_dtype is {} and a block {} x {}, wanted both or neither",
                            who, s.scale_dtype, s.scale_out, s.scale_in));
  return storage;
}

}  // namespace mkbench
