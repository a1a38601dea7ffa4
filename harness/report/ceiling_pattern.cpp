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
                           kRingText = "the ring's copies without waits, ";

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
  if (pattern.way == Way::kPlain) return std::string(kPlainText);
  return std::string(pattern.way == Way::kBulk ? kBulkText : kRingText) +
         pattern_text(pattern.plan);
}

std::optional<ReadPattern> read_pattern_text(std::string_view text) {
  if (text.substr(0, kPlainText.size()) == kPlainText) return ReadPattern{};
  for (const Way way : {Way::kBulk, Way::kRing}) {
    std::string_view rest = text;
    uint32_t stages = 0, kib = 0, ns = 0, ps = 0;
    if (!take(rest, way == Way::kBulk ? kBulkText : kRingText)) continue;
    if (!take(rest, stages) || !take(rest, " x ") || !take(rest, kib) ||
        !take(rest, " KiB in flight, ") || !take(rest, ns) || !take(rest, ".") || !take(rest, ps))
      continue;
    const ReadPattern found{way, {stages, kib * 1024, ns * 1000 + ps}};
    const std::string whole = pattern_text(found);
    if (text.substr(0, whole.size()) == whole) return found;
  }
  return std::nullopt;
}

bool alike_patterns(std::string_view a, std::string_view b) {
  constexpr double kMostGapShare = 0.005;
  const std::optional<ReadPattern> one = read_pattern_text(a), other = read_pattern_text(b);
  if (!one || !other || one->way != other->way) return false;
  const BulkPlan &p = one->plan, &q = other->plan;
  const double gap = p.gap_ps, other_gap = q.gap_ps;
  return p.stages == q.stages && p.copy_bytes == q.copy_bytes &&
         std::abs(gap - other_gap) <= kMostGapShare * std::max(gap, other_gap);
}

}  // namespace mkbench
