// Token receipts of a timed sample: every emitted id against the expected one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

namespace mkbench {

struct ReceiptCheck {
  int checked = 0, wrong = 0;
  std::optional<int> first_wrong;  // index
  bool ok() const { return wrong == 0 && checked > 0; }
};

inline ReceiptCheck check_receipts(std::span<const int32_t> emitted,
                                   std::span<const int32_t> expected) {
  ReceiptCheck check;
  // A missing or surplus receipt is a wrong one: lengths must agree too.
  const size_t count = std::max(emitted.size(), expected.size());
  check.checked = static_cast<int>(count);
  for (size_t i = 0; i < count; ++i) {
    if (i < emitted.size() && i < expected.size() && emitted[i] == expected[i]) continue;
    ++check.wrong;
    if (!check.first_wrong) check.first_wrong = static_cast<int>(i);
  }
  return check;
}

}  // namespace mkbench
