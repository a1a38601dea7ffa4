// One repeated step: what truth and engine said there, and the verdict.
#include <cmath>

#include "harness/judge/replay.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_engine.h"

using namespace mkbench;
using namespace mkbench::testing;

namespace {

constexpr double kMostError = 3;
constexpr int kStep = 70;  // in the second call of a walk with logits

struct Repeated {
  FailedStep step;
  Verdict verdict;
};

// Repeats one step of the truth's own path with an engine that behaves so.
Repeated repeated(const FakeBehaviour& behaviour, int32_t first_id = 0, double d = 0,
                  const ReplayOptions& how = {}) {
  ReferencePrompt prompt;
  prompt.name = "p";
  prompt.ids = {first_id, 2, 3};
  FakeEngine truth, baseline({.noise_seed = 5, .noise = 0.02}), engine(behaviour), path;
  path.prefill(prompt.ids);
  for (const int32_t id : path.decode(kStep + 1, nullptr, nullptr)) {
    prompt.steps.emplace_back();
    prompt.steps.back().token = id;
    prompt.steps.back().position = 2 + static_cast<int>(prompt.steps.size()) - 1;
  }
  ReplayOptions options = how;
  options.vocab = kFakeVocab;
  options.pairwise_d = d;
  options.text_of = [](int32_t id) { return "<" + std::to_string(id) + ">"; };
  const FailedStep step = replay_step({engine, truth, baseline}, prompt, kStep, options);
  return {step, verdict_of(step, kMostError)};
}

// An engine that emits another id at the repeated step, with the logits that say so.
FakeBehaviour giving(int32_t other) {
  return {.noise_seed = 6, .noise = 0.02, .at_step = [=](const At& at, auto& z, int32_t& id) {
            if (at.position != 2 + kStep) return;
            id = other >= 0 ? other : id;
            if (other >= 0 && other < kFakeVocab) z[static_cast<size_t>(other)] = 9;
          }};
}

}  // namespace

TEST_CASE("a sound engine's step is exact, and its walk can be rebuilt from the file") {
  const auto [step, verdict] = repeated({.noise_seed = 6, .noise = 0.02});
  CHECK(verdict == Verdict::kPass);
  CHECK(step.verdict == StepVerdict::kExact);
  CHECK(step.position == 2 + kStep);
  CHECK(step.forced_ids.size() == kStep);
  CHECK(step.error_norm > 0);
  CHECK(step.error_norm < 2 * step.baseline_error_norm);
  REQUIRE(step.expected_top.size() == 5);
  CHECK(step.expected_top[0].id == step.expected);
  CHECK(step.expected_top[0].text == "<" + std::to_string(step.expected) + ">");
  CHECK(step.margin == step.expected_top[0].logit - step.expected_top[1].logit);
  const ReferencePrompt again = prompt_of(step);
  CHECK(again.ids == step.prompt_ids);
  REQUIRE(again.steps.size() == kStep + 1);
  CHECK(again.steps.back().position == step.position);
  CHECK(again.steps[3].token == step.forced_ids[3]);
}

TEST_CASE("a wrong token, one that is missing and one outside the vocabulary are FAIL_TOKEN") {
  const int32_t right = repeated({}).step.expected;
  for (const int32_t id : {(right + 1) % kFakeVocab, 9999}) {
    const auto [step, verdict] = repeated(giving(id));
    CHECK(step.found == id);
    CHECK(step.verdict == StepVerdict::kWrong);
    // No logits say an id outside the vocabulary.
    CHECK(verdict == (id == 9999 ? Verdict::kFailSelf : Verdict::kFailToken));
  }
  const auto [step, verdict] = repeated({.missing_ids = 1});
  CHECK(step.found == -1);
  CHECK(verdict == Verdict::kFailToken);
}

TEST_CASE("within tau of the top another token is a tie") {
  // Prompts that start with another id than 0 meet ties; one whose repeated step is one is searched.
  int ties = 0;
  for (int32_t first = 1; first < 40; ++first) {
    const Repeated sound = repeated({}, first);
    if (sound.step.margin > 2 * FakeEngine::kTieGap) continue;
    ++ties;
    const FakeBehaviour flips{.tie_error = 2 * FakeEngine::kTieGap};
    CHECK(repeated(flips, first, 0.02).step.verdict == StepVerdict::kTie);
    CHECK(repeated(flips, first, 0.001).step.verdict == StepVerdict::kWrong);
  }
  CHECK(ties > 0);
}

TEST_CASE("logits far from the truth, or not finite, are FAIL_FIDELITY behind the right token") {
  CHECK(repeated({.noise_seed = 6, .noise = 0.2}).verdict == Verdict::kFailFidelity);
  const FakeBehaviour nan{.at_step = [](const At&, auto& z, int32_t&) { z[63] = std::nanf(""); }};
  CHECK(repeated(nan).verdict == Verdict::kFailFidelity);
  const auto [step, verdict] = repeated({.has_logits = false});
  CHECK(step.found_top.empty());
  CHECK(verdict == Verdict::kPass);
}

TEST_CASE("the right id beside logits that say another one is FAIL_SELF") {
  const FakeBehaviour other{.at_step = [](const At& at, auto& z, int32_t& id) {
    if (at.position == 2 + kStep) z[static_cast<size_t>((id + 1) % kFakeVocab)] = 6.01F;
  }};
  const auto [step, verdict] = repeated(other, 0, 0, {.error_limit = 0.0});
  CHECK(step.verdict == StepVerdict::kExact);
  CHECK(verdict == Verdict::kFailSelf);
}

TEST_CASE("a step of a run without logits is repeated without them") {
  // Wrong only where nobody asks for logits, and in a call of 80 tokens.
  const FakeBehaviour cheat{.at_step = [](const At& at, auto&, int32_t& id) {
    if (!at.with_logits && at.position == 2 + kStep) id = (id + 1) % kFakeVocab;
  }};
  CHECK(repeated(cheat).verdict == Verdict::kPass);
  const auto [step, verdict] = repeated(cheat, 0, 0, {.free_tokens = 80});
  CHECK(step.free_tokens == 80);
  CHECK(step.verdict == StepVerdict::kWrong);
  CHECK(step.found == (step.expected + 1) % kFakeVocab);
  CHECK(step.found_top[0].id == step.expected);
  CHECK(verdict == Verdict::kFailToken);
  // Fewer tokens than there are steps: the others come from a second call.
  CHECK(repeated(cheat, 0, 0, {.free_tokens = 8}).verdict == Verdict::kFailToken);
  CHECK(repeated({}, 0, 0, {.free_tokens = 8}).verdict == Verdict::kPass);
  // A near tie that goes the other way without logits is no wrong token, and is not the same.
  const Repeated tie = repeated(cheat, 0, 100, {.free_tokens = 80});
  CHECK(tie.step.verdict == StepVerdict::kTie);
  CHECK(tie.verdict == Verdict::kNondeterministic);
}

TEST_CASE("a step that was judged by another limit keeps it") {
  const FakeBehaviour noisy{.noise_seed = 6, .noise = 0.2};
  const double error = repeated(noisy).step.error_norm;
  CHECK(repeated(noisy).verdict == Verdict::kFailFidelity);
  CHECK(repeated(noisy, 0, 0, {.error_limit = error * 1.01}).verdict == Verdict::kPass);
  CHECK(repeated(noisy, 0, 0, {.error_limit = error * 0.99}).verdict == Verdict::kFailFidelity);
  CHECK(repeated(noisy, 0, 0, {.error_limit = 0.0}).verdict == Verdict::kPass);
}

TEST_CASE("a repetition keeps the id that was judged, and says what another run gives") {
  const FailedStep judged = repeated(giving((repeated({}).step.expected + 1) % kFakeVocab)).step;
  FakeEngine truth, baseline({.noise_seed = 5, .noise = 0.02}), sound;
  const FailedStep again = repeat_step({sound, truth, baseline}, judged, {.vocab = kFakeVocab});
  CHECK(again.found == judged.found);
  CHECK(again.verdict == StepVerdict::kWrong);
  CHECK(again.found_top[0].id == judged.expected);
  CHECK(again.localised.find("when it was judged the id was " + std::to_string(judged.found) +
                             ", in another run " + std::to_string(judged.expected)) !=
        std::string::npos);
}
