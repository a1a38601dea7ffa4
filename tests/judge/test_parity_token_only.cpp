// Published continuations without logits, receipts of timed samples, and the closed form against a
// reference.
#include "harness/judge/check_reference.h"
#include "harness/judge/parity.h"
#include "harness/judge/receipts.h"
#include "harness/judge/token_only.h"
#include "references/base/error.h"
#include "references/synthetic.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_engine.h"

using namespace mkbench;
using mkbench::testing::At;
using mkbench::testing::FakeEngine;

namespace {

GreedyReference published(const std::string& name, const std::vector<int32_t>& tokens) {
  GreedyReference r;
  r.path = name + ".json";
  r.token_only = true;
  ReferencePrompt p;
  p.name = name;
  p.set = "near-tie";
  p.ids = {1, 2};
  for (size_t t = 0; t < tokens.size(); ++t) {
    ReferenceStep step;
    step.position = 1 + static_cast<int>(t);
    step.token = tokens[t];
    p.steps.push_back(step);
  }
  r.prompts.push_back(p);
  return r;
}

// Two continuations that part at the third token.
GreedyReference two_published() {
  return merge_token_only(
      {published("a", {10, 11, 12, 13, 14}), published("b", {10, 11, 22, 23, 24})});
}

ParityReport judge(const std::vector<int32_t>& tokens, const GreedyReference& reference) {
  FakeEngine engine({.at_step = [&](const At& at, std::vector<float>&, int32_t& id) {
    id = tokens[static_cast<size_t>(at.step)];
  }});
  return judge_parity(engine, reference, {});
}

using V = StepVerdict;
std::vector<V> verdicts(const ParityReport& p) {
  std::vector<V> list;
  for (const ParityRow& row : p.rows) list.push_back(row.verdict);
  return list;
}

}  // namespace

TEST_CASE("either of two published continuations is exact") {
  const GreedyReference both = two_published();
  for (const auto& tokens : {std::vector<int32_t>{10, 11, 12, 13, 14}, {10, 11, 22, 23, 24}}) {
    const ParityReport p = judge(tokens, both);
    CHECK(p.verdict == Verdict::kPass);
    CHECK(p.exact == 5);
    CHECK(p.prompts == 1);
    CHECK_FALSE(p.r_rms);
    CHECK_FALSE(p.first_divergence);
    CHECK(p.rows[2].reference_id == tokens[2]);
  }
}

TEST_CASE("a third path at the published fork, or behind it, drifts; before it, it fails") {
  const GreedyReference both = two_published();
  const ParityReport at_fork = judge({10, 11, 32, 33, 34}, both);
  CHECK(at_fork.verdict == Verdict::kPass);
  CHECK(verdicts(at_fork) == std::vector<V>{V::kExact, V::kExact, V::kDrift, V::kDrift, V::kDrift});
  CHECK(at_fork.first_divergence == 2);
  const ParityReport behind = judge({10, 11, 12, 33, 14}, both);
  CHECK(behind.verdict == Verdict::kPass);
  CHECK(verdicts(behind) == std::vector<V>{V::kExact, V::kExact, V::kExact, V::kDrift, V::kDrift});
  const ParityReport before = judge({10, 31, 12, 13, 14}, both);
  CHECK(before.verdict == Verdict::kFailToken);
  CHECK(before.rows[1].verdict == V::kWrong);
  CHECK(before.rows[2].verdict == V::kDrift);
  CHECK_THAT(before.reason, ContainsText("position 2") && ContainsText("found 31"));
  // The two paths must not be mixed: 23 belongs after 22 only.
  CHECK(judge({10, 11, 12, 23, 24}, both).drifts == 2);
}

TEST_CASE("one published continuation alone is followed to the end") {
  const GreedyReference one = merge_token_only({published("a", {10, 11, 12})});
  CHECK(judge({10, 11, 12}, one).verdict == Verdict::kPass);
  CHECK(judge({10, 11, 13}, one).verdict == Verdict::kFailToken);
}

TEST_CASE("two token-only runs must agree") {
  int runs = 0;
  FakeEngine engine({.at_step = [&runs](const At& at, std::vector<float>&, int32_t& id) {
    runs += at.step == 0;
    const std::vector<int32_t> first = {10, 11, 12, 13, 14}, second = {10, 11, 22, 23, 24};
    id = (runs == 1 ? first : second)[static_cast<size_t>(at.step)];
  }});
  CHECK(judge_parity(engine, two_published(), {}).verdict == Verdict::kNondeterministic);
}

TEST_CASE("references with logits or of other weights are not merged") {
  GreedyReference with_logits = published("c", {1});
  with_logits.token_only = false;
  CHECK_THROWS_AS(merge_token_only({with_logits}), Error);
  GreedyReference other = published("d", {1});
  other.weights_sha256 = "00";
  CHECK_THROWS_WITH(merge_token_only({published("a", {1}), other}), ContainsText("weights sha256"));
  CHECK_THROWS_AS(merge_token_only({}), Error);
}

TEST_CASE("receipts: every timed token counts, and so does the length") {
  const std::vector<int32_t> expected = {4, 5, 6};
  const ReceiptCheck good = check_receipts(expected, expected);
  CHECK((good.ok() && good.checked == 3 && !good.first_wrong));
  const ReceiptCheck wrong = check_receipts(std::vector<int32_t>{4, 7, 8}, expected);
  CHECK((!wrong.ok() && wrong.wrong == 2));
  CHECK(wrong.first_wrong == 1);
  CHECK(check_receipts(std::vector<int32_t>{4, 5}, expected).first_wrong == 2);
  CHECK(check_receipts(std::vector<int32_t>{4, 5, 6, 7}, expected).wrong == 1);
  CHECK_FALSE(check_receipts({}, {}).ok());  // nothing checked is nothing shown
}

TEST_CASE("a reference of other weights is refused with both hashes") {
  ModelWeights weights;
  weights.sha256 = "aa11";
  GreedyReference r = published("a", {1});
  CHECK_NOTHROW(check_reference_weights(r, weights));  // published ids name no weights
  r.weights_sha256 = "aa11";
  CHECK_NOTHROW(check_reference_weights(r, weights));
  r.weights_sha256 = "bb22";
  CHECK_THROWS_WITH(check_reference_weights(r, weights),
                    ContainsText("found bb22, wanted aa11") && ContainsText("a.json"));
}

TEST_CASE("a reference of the analytic checkpoint must be its closed form") {
  GreedyReference r;
  r.path = "reference.json";
  ReferencePrompt p;
  p.name = "short";
  p.set = "strict";
  p.ids = synthetic_prompt(20, 5);
  for (const int32_t token : synthetic_continuation(p.ids, "short", 12)) {
    ReferenceStep step;
    step.position = 20 + static_cast<int>(p.steps.size());
    step.token = token;
    p.steps.push_back(step);
  }
  r.prompts.push_back(p);
  CHECK_NOTHROW(check_closed_form(r, "short", kQwen3_0_6B.vocab));
  CHECK_THROWS_AS(check_closed_form(r, "early", kQwen3_0_6B.vocab), Error);
  CHECK_THROWS_WITH(check_closed_form(r, "deep", kQwen3_0_6B.vocab), ContainsText("wanted over"));
  r.prompts[0].steps[7].token ^= 1;
  CHECK_THROWS_WITH(check_closed_form(r, "short", kQwen3_0_6B.vocab), ContainsText("position 27"));
  // A near-tie prompt has no closed form to follow.
  r.prompts[0].set = "near-tie";
  CHECK_NOTHROW(check_closed_form(r, "short", kQwen3_0_6B.vocab));
}

TEST_CASE("a live reference is held to the closed form wherever it has one, whatever its sets") {
  constexpr int kVocab = 3072;  // the talker's: ids beyond 2,048 states have none
  const StateCode code(kVocab);
  GreedyReference live;
  const auto add = [&](const std::vector<int32_t>& ids, const std::vector<int32_t>& tokens) {
    ReferencePrompt p;
    p.name = "live";
    p.set = "near-tie";
    p.ids = ids;
    for (const int32_t token : tokens) {
      p.steps.emplace_back();
      p.steps.back().position = static_cast<int>(ids.size() + p.steps.size()) - 2;
      p.steps.back().token = token;
    }
    live.prompts.push_back(p);
  };
  const std::vector<int32_t> prompt = synthetic_prompt(20, 5, kVocab);
  add(prompt, synthetic_continuation(prompt, "short", 12, kVocab));
  add(synthetic_prompt(4, 5, kVocab), {1, 2, 3});  // too short
  int32_t stateless = 0;
  while (code.state(stateless) >= 0) ++stateless;
  std::vector<int32_t> other = prompt;
  other[3] = stateless;
  add(other, {1, 2, 3});
  CHECK(check_live_closed_form(live, "short", kVocab) == 1);
  live.prompts[0].steps[7].token ^= 1;
  CHECK_THROWS_WITH(check_live_closed_form(live, "short", kVocab), ContainsText("position 27"));
}
