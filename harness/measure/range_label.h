// What a profiler shows of a decode: the label of its NVTX range (device/nvtx.h).
#pragma once

#include <string>

#include "references/base/fields.h"

namespace mkbench {

// The domain of all ranges, and the range of a decode that has no label.
inline constexpr char kNvtxDomain[] = "mkbench", kDecodeRange[] = "decode";

struct RangeLabel {
  std::string message;   // "ring d=512 block 3"
  std::string category;  // the engine
  int payload = 0;       // the block
  // The message of a range that several decodes share: the first of them opens it, the last one
  // closes it. Empty: this decode opens none.
  std::string opens{};
  bool closes = false;
  bool tokens = false;  // the tokens are decoded one by one, each in a range of its own

  static void fields(auto& v) {
    list_fields(v, "message", &RangeLabel::message, "category", &RangeLabel::category, "payload",
                &RangeLabel::payload, "opens", &RangeLabel::opens, "closes", &RangeLabel::closes,
                "tokens", &RangeLabel::tokens);
  }
};

// "ring d=512", without the characters that filters of Nsight's tools take for operators. If
// `engine` is a path, only the file's name is shown.
std::string range_name(const std::string& engine, int depth);

// The label of one block of an engine: "ring d=512 block 3".
RangeLabel block_label(const std::string& engine, int depth, int block);

}  // namespace mkbench
