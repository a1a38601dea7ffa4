#include "harness/report/ceiling_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace mkbench {
namespace {

using Way = ReadPattern::Way;

// How the text of each ReadPattern::Way begins.
constexpr std::string_view kPlainText = "plain loads of 16 bytes", kBulkText = "bulk copies, ",
                           kRingText = "the ring's copies without waits, ",
                           kTurnsText = ", back and forth", kKeptText = " MiB kept in L2";

// Both remove a part from the front of `text`; false if `text` does not begin with it.
bool take(std::string_view& text, std::string_view part) {
  if (text.substr(0, part.size()) != part) return false;
  text.remove_prefix(part.size());
  return true;
}
bool take(std::string_view& text, uint32_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

}  // namespace

std::string pattern_text(const BulkPlan& plan) {
  return fmt::format("{} x {} KiB in flight, {:.3f} ns apart", plan.stages, plan.copy_bytes / 1024,
                     1e-3 * plan.gap_ps);
}

std::string pattern_text(const ReadPattern& pattern) {
  std::string text(kPlainText);
  if (pattern.way != Way::kPlain) {
    text =
        std::string(pattern.way == Way::kBulk ? kBulkText : kRingText) + pattern_text(pattern.plan);
  }
  if (pattern.back_and_forth) text += kTurnsText;
  if (pattern.kept_mib > 0) text += fmt::format(", {}{}", pattern.kept_mib, kKeptText);
  return text;
}

std::optional<ReadPattern> read_pattern_text(std::string_view text) {
  ReadPattern found;
  std::string_view rest = text;
  if (!take(rest, kPlainText)) {
    found.way = take(rest, kBulkText) ? Way::kBulk : Way::kRing;
    uint32_t kib = 0, ns = 0, ps = 0;
    if (found.way == Way::kRing && !take(rest, kRingText)) return std::nullopt;
    if (!take(rest, found.plan.stages) || !take(rest, " x ") || !take(rest, kib) ||
        !take(rest, " KiB in flight, ") || !take(rest, ns) || !take(rest, ".") || !take(rest, ps) ||
        !take(rest, " ns apart"))
      return std::nullopt;
    found.plan.copy_bytes = kib * 1024;
    found.plan.gap_ps = ns * 1000 + ps;
  }
  found.back_and_forth = take(rest, kTurnsText);
  std::string_view kept = rest;
  uint32_t mib = 0;
  if (take(kept, ", ") && take(kept, mib) && take(kept, kKeptText)) found.kept_mib = mib;
  const std::string whole = pattern_text(found);
  if (text.substr(0, whole.size()) != whole) return std::nullopt;
  return found;
}

bool alike_patterns(std::string_view a, std::string_view b) {
  constexpr double kMostGapShare = 0.005;
  const std::optional<ReadPattern> one = read_pattern_text(a), other = read_pattern_text(b);
  if (!one || !other || one->way != other->way || one->back_and_forth != other->back_and_forth ||
      one->kept_mib != other->kept_mib)
    return false;
  const BulkPlan &p = one->plan, &q = other->plan;
  const double gap = p.gap_ps, other_gap = q.gap_ps;
  return p.stages == q.stages && p.copy_bytes == q.copy_bytes &&
         std::abs(gap - other_gap) <= kMostGapShare * std::max(gap, other_gap);
}

}  // namespace mkbench
