// What a format costs: figures from the logits of two models, and the verdict of --max-kl.
#include <cmath>
#include <string>
#include <vector>

#include "harness/judge/conclude.h"
#include "harness/judge/format_cost.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"

namespace mkbench::testing {
namespace {

// Logits whose softmax is p, shifted: no figure may depend on that.
std::vector<float> logits_of(const std::vector<double>& p, double shift = 3) {
  std::vector<float> row;
  for (const double one : p) row.push_back(static_cast<float>(std::log(one) + shift));
  return row;
}

TEST_CASE("KL, largest logits and perplexity are those of the definition") {
  CostSums sums;
  sums.add(logits_of({0.5, 0.25, 0.25}), logits_of({0.25, 0.5, 0.25}, -70), 1);
  sums.add(logits_of({0.1, 0.8, 0.1}), logits_of({0.2, 0.6, 0.2}), 0);
  sums.add(logits_of({0.1, 0.8, 0.1}), logits_of({0.1, 0.8, 0.1}), -1);
  const FormatCost cost = sums.cost();
  const double first = 0.5 * std::log(2.0) - 0.25 * std::log(2.0);
  const double second = 0.2 * std::log(0.5) + 0.8 * std::log(0.8 / 0.6);
  CHECK(cost.steps == 3);
  CHECK(cost.kl == Approx((first + second) / 3));
  CHECK(cost.largest_kl == Approx(first));
  CHECK(cost.same_top == Approx(2.0 / 3));
  CHECK(cost.text_steps == 2);
  CHECK(*cost.original_perplexity.value == Approx(1 / std::sqrt(0.25 * 0.1)));
  CHECK(*cost.perplexity.value == Approx(1 / std::sqrt(0.5 * 0.2)));
}

TEST_CASE("ids that are no text have no perplexity, and rows of two lengths are refused") {
  CostSums sums;
  CHECK(sums.cost().steps == 0);
  sums.add(logits_of({0.5, 0.5}), logits_of({0.5, 0.5}), -1);
  CHECK(sums.cost().kl == 0);
  CHECK_FALSE(sums.cost().perplexity.value.has_value());
  CHECK(sums.cost().original_perplexity.reason == "no prompt is text");
  CHECK_THROWS_AS(sums.add(logits_of({0.5, 0.5}), logits_of({0.4, 0.3, 0.3}), -1), Error);
}

TEST_CASE("a mean KL above --max-kl is FAIL_FIDELITY of its case, and an equal one is not") {
  struct Row {
    double kl, limit;
    Verdict wanted;
  };
  for (const Row& row :
       {Row{0.02, 0.01, Verdict::kFailFidelity}, Row{0.01, 0.01, Verdict::kPass},
        Row{0.02, 0, Verdict::kPass}, Row{std::nan(""), 0.01, Verdict::kFailFidelity}}) {
    Report report;
    CaseReport& c = report.cases.emplace_back();
    c.name = "case";
    c.verdict = Verdict::kPass;
    EngineReport& engine = c.engines.emplace_back();
    engine.role = "candidate";
    engine.verdict = Verdict::kPass;
    c.format_cost = FormatCost{};
    c.format_cost->kl = row.kl;
    c.format_cost->limit = row.limit;
    conclude(report);
    CHECK(report.verdict == row.wanted);
    CHECK(report.cases[0].engines[0].verdict == Verdict::kPass);
    if (row.wanted == Verdict::kPass) {
      CHECK(report.reasons.empty());
    } else {
      REQUIRE(report.reasons.size() == 1);
      CHECK(report.reasons[0].starts_with("case: the format costs a KL of "));
      CHECK(report.reasons[0].ends_with(" a step, more than --max-kl 0.01"));
      conclude(report);
      CHECK(report.reasons.size() == 1);
    }
  }
}

}  // namespace
}  // namespace mkbench::testing
