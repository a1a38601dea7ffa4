#include <algorithm>

#include "harness/judge/parity.h"

namespace mkbench {

ReceiptCheck check_receipts(std::span<const int32_t> emitted, std::span<const int32_t> expected) {
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
