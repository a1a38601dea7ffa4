#include "harness/measure/range_label.h"

#include <fmt/format.h>

#include <cctype>

namespace mkbench {

std::string range_name(const std::string& engine, int depth) {
  std::string name = engine.substr(engine.rfind('/') + 1);  // npos + 1 is 0
  for (char& c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (!plain && c != '.' && c != '-' && c != '_') c = '_';
  }
  return fmt::format("{} d={}", name, depth);
}

RangeLabel block_label(const std::string& engine, int depth, int block) {
  return {.message = fmt::format("{} block {}", range_name(engine, depth), block),
          .category = engine,
          .payload = block};
}

}  // namespace mkbench
