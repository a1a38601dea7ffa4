#include "harness/flow/sample_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/judge/receipts.h"

namespace mkbench {

std::string first_said(std::initializer_list<std::string> texts) {
  const auto said = std::find_if(texts.begin(), texts.end(),
                                 [](const std::string& text) { return !text.empty(); });
  return said != texts.end() ? *said : "";
}

std::string clock_doubt(const Sample& sample, const Traces& traces) {
  const std::string clocks = clock_disagreement(sample.times, traces.overhead);
  return clocks.empty() ? traces.doubt : clocks;
}

bool has_gap(const std::vector<int32_t>& ids) {
  return std::find(ids.begin(), ids.end(), -1) != ids.end();
}

Verdict judge_sample(Sample& sample, const Engine& engine, const Traces& traces,
                     const std::optional<std::vector<int32_t>>& expected, int wanted_receipts) {
  const auto invalid = [&](Verdict verdict, std::string reason) {
    sample.valid = false;
    sample.invalid_reason = std::move(reason);
    return verdict;
  };
  const ReceiptCheck receipts = expected ? check_receipts(sample.ids, *expected) : ReceiptCheck{};
  sample.receipts_checked = receipts.checked + traces.kv_rows;
  sample.receipts_wrong = receipts.wrong;
  if (has_gap(sample.ids)) {
    return invalid(
        Verdict::kIntegrity,
        "a receipt is -1: the step was not run (poison), or a logit of it was not a number");
  }
  if (engine.capabilities().one_launch ? traces.launches != 1 : traces.launches < 1) {
    return invalid(Verdict::kIntegrity,
                   fmt::format("launch counter: {} launches for one decode{}", traces.launches,
                               engine.capabilities().one_launch ? ", wanted 1" : ""));
  }
  const bool came = sample.ids.size() == static_cast<size_t>(wanted_receipts);
  if (!came || (expected && !receipts.ok())) {
    const auto at = static_cast<size_t>(receipts.first_wrong.value_or(0));
    return invalid(Verdict::kFailToken, came ? fmt::format("receipt: token {} is {}, wanted {}", at,
                                                           sample.ids[at], expected->at(at))
                                             : fmt::format("receipts: found {}, wanted {}",
                                                           sample.ids.size(), wanted_receipts));
  }
  if (!traces.kv_equal) {
    return invalid(Verdict::kNondeterministic,
                   "KV rows differ from those of another run over the same ids");
  }
  const std::string clocks = clock_doubt(sample, traces);
  if (!clocks.empty()) return invalid(Verdict::kIntegrity, clocks);
  if (!expected) return invalid(Verdict::kPass, kUnscored);
  sample.valid = true;
  return Verdict::kPass;
}

}  // namespace mkbench
