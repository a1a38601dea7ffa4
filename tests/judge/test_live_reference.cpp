// A reference captured in memory: what makes a prompt strict, and errors that are known exactly.
#include <algorithm>
#include <numeric>

#include "harness/judge/live.h"
#include "harness/judge/parity.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_engine.h"

using namespace mkbench;
using namespace mkbench::testing;

namespace {

const std::vector<std::vector<int32_t>> kPrompts = {{0, 5, 9}, {0, 1}};

size_t second_of(int32_t id) { return static_cast<size_t>(id + 1) % kFakeVocab; }

// Truth, baseline and its run with an fp32 head differ by noise alone; in each step the second id
// lies `gap` under the first, and every logit is raised by `added`.
GreedyReference captured(double noise, float gap, float added = 0) {
  FakeBehaviour exact, noisy{.noise_seed = 1, .noise = noise};
  exact.at_step = noisy.at_step = [=](const At&, std::vector<float>& z, int32_t& id) {
    z[second_of(id)] = z[static_cast<size_t>(id)] - gap;
    for (float& logit : z) logit += added;
  };
  FakeEngine truth(exact), baseline(noisy), head_fp32(noisy);
  return capture_live(truth, baseline, head_fp32, kFakeVocab, kPrompts, 40);
}

}  // namespace

TEST_CASE("live capture: of equal logits the lower index, and errors that are known") {
  // Among equal logits the truth's token is the one with the lower index.
  FakeBehaviour equal;
  equal.at_step = [](const At&, std::vector<float>& z, int32_t& id) {
    z[second_of(id)] = z[static_cast<size_t>(id)];
    id = std::min(id, static_cast<int32_t>(second_of(id)));
  };
  FakeEngine ties(equal), ties_head(equal);
  for (const ReferenceStep& s : capture_path(ties, ties_head, kFakeVocab, "p", {0, 5}, 8).steps) {
    CHECK(s.token == s.top_ids[0]);
    CHECK((s.top_ids[0] < s.top_ids[1] && s.margin == 0));
  }
  // The largest error of a difference is that of the two logits of the truth's top 32 that err most
  // apart, wherever they stand among them, though all 32 err upwards.
  for (size_t at = 0; at < 32; ++at) {
    FakeEngine truth, apart({.at_step = [at](const At&, std::vector<float>&z, int32_t&) {
      std::vector<size_t> order(z.size());
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return z[a] > z[b]; });
      for (size_t i = 0; i < 32; ++i)
        z[order[i]] += i == at ? 0.13F : i == (at + 7) % 32 ? 0.08F : 0.1F;
    }});
    for (const ReferenceStep& s : capture_path(truth, apart, kFakeVocab, "p", {0, 5}, 2).steps) {
      const double mean = (32 * 0.1 + 0.03 - 0.02) / kFakeVocab;
      CHECK(s.baseline_pairwise == Approx(0.05).epsilon(1e-3));
      CHECK(s.baseline_error_inf_top == Approx(0.13 - mean).epsilon(1e-3));
    }
  }
}

TEST_CASE("live capture: a prompt is strict where every margin is over 2 tau, decided over tau") {
  const double tau = captured(0.02, 4).pairwise_d + 0.03125;  // D and a bf16 step at 6
  for (const auto& [taus, decided, set] : {std::tuple{0.99, false, "near-tie"},
                                           {1.01, true, "near-tie"},
                                           {1.99, true, "near-tie"},
                                           {2.01, true, "strict"}}) {
    const GreedyReference r = captured(0.02, static_cast<float>(taus * tau));
    REQUIRE(r.pairwise_d == Approx(tau - 0.03125).epsilon(1e-6));
    INFO(taus << " tau");
    for (const ReferencePrompt& p : r.prompts) {
      CHECK(p.set == set);
      for (const ReferenceStep& s : p.steps) CHECK(s.decided == decided);
    }
  }
}

TEST_CASE("live capture: D of 0.5 is the most, or four bf16 steps at the largest logit") {
  CHECK(captured(0.24, 4).pairwise_d > 0.4);  // a little under twice the noise
  CHECK_THROWS_WITH(captured(0.3, 4), ContainsText("wanted <= 0.5"));
  CHECK(captured(0.48, 4, 32).pairwise_d > 0.8);
  CHECK_THROWS_WITH(captured(0.6, 4, 32), ContainsText("wanted <= 1:"));
}

TEST_CASE("the bf16 step is the spacing of bf16 numbers") {
  for (const float x : {1.0F, 1.5F, 6.0F, 8.0F, 31.0F, 0.01F}) {
    const float at = round_to_bf16(x);
    const float next = to_float({static_cast<uint16_t>(to_bf16(x).bits + 1)});
    CHECK(bf16_step(x) == Approx(next - at).epsilon(1e-12));
  }
  CHECK(bf16_step(0) == 0);
}

TEST_CASE("a baseline is held to all near ties and to enough strict steps, by whole prompts") {
  GreedyReference r;
  const auto add = [&](const char* name, const char* set, size_t steps) {
    ReferencePrompt prompt;
    prompt.name = name;
    prompt.set = set;
    prompt.steps.resize(steps);
    r.prompts.push_back(prompt);
  };
  add("a", "strict", kBaselineSteps - 1);
  add("b", "near-tie", 48);
  add("c", "strict", 64);
  add("d", "strict", 1);
  add("e", "near-tie", 48);
  std::string names;
  for (const ReferencePrompt& prompt : baseline_part(r).prompts) names += prompt.name;
  CHECK(names == "abce");
  r.prompts.resize(2);
  CHECK(baseline_part(r).prompts.size() == 2);
}

TEST_CASE("references that cannot judge are refused") {
  FakeEngine engine;
  ParityOptions options{.vocab = kFakeVocab};
  CHECK_THROWS_AS(judge_parity(engine, GreedyReference{}, options), Error);
  GreedyReference undecided = captured(0.02, 4);
  undecided.prompts[0].steps[5].margin = undecided.pairwise_d / 2;
  CHECK_THROWS_WITH(judge_parity(engine, undecided, options), ContainsText("strict prompt"));
  GreedyReference no_errors = captured(0.02, 4);
  for (ReferencePrompt& p : no_errors.prompts) {
    for (ReferenceStep& s : p.steps) s.baseline_error_norm = 0;
  }
  CHECK_THROWS_WITH(judge_parity(engine, no_errors, options), ContainsText("error norms"));
}
