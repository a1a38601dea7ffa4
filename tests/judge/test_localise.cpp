// The localiser names where a failure begins: layer, KV row, or the lag of a closed form.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "harness/judge/localise.h"
#include "harness/judge/ratios.h"
#include "references/synthetic.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_engine.h"

using namespace mkbench;
using namespace mkbench::testing;

namespace {

constexpr int kModelLayers = 4, kWidth = 16;

// States of a made-up model of four layers: the truth's value plus an error in each element.
std::vector<float> state(uint64_t key, double error, uint64_t error_seed) {
  std::vector<float> x;
  for (uint64_t i = 0; i < kWidth; ++i) {
    const double right = 2 + testing::unit(key * 1000 + i);
    x.push_back(static_cast<float>(right + error * testing::unit(error_seed * 77777 + key + i)));
  }
  return x;
}

// An engine with errors of size `error` before a layer (or a KV row of it) and ten times that
// after.
FakeBehaviour states_of(double error, uint64_t seed, int bad_layer = kModelLayers, int bad_row = -1,
                        double worse = 10) {
  FakeBehaviour b;
  b.hidden = [=](const std::vector<int32_t>& context, int layer) {
    const bool bad = layer >= bad_layer;
    return state(context.size() * 100 + static_cast<uint64_t>(layer), bad ? worse * error : error,
                 seed);
  };
  b.kv_row = [=](const std::vector<int32_t>&, int layer, int row) {
    const bool bad = layer == bad_layer && row == bad_row;
    return state(static_cast<uint64_t>(5000 + layer * 100 + row), bad ? 10 * error : error, seed);
  };
  return b;
}

std::string localised(const FakeBehaviour& behaviour,
                      const FakeBehaviour& baseline = states_of(1e-3, 2),
                      LastStep* last = nullptr) {
  FakeEngine k(behaviour), t(states_of(0, 1)), b(baseline);
  ReferencePrompt prompt;
  prompt.name = "p";
  prompt.ids = {1, 2, 3};
  for (int i = 0; i < 9; ++i) {
    ReferenceStep step;
    step.position = 2 + i;
    step.token = 5;
    prompt.steps.push_back(step);
  }
  return localise({k, t, b}, kModelLayers, kFakeVocab, prompt, 6, last);
}

// The KV rows of the walk above.
constexpr int kRows = 9;

enum Half { kKey = 1, kValue = 2, kBoth = 3 };

// Sound but for one half, or both, of rows [first, last] of a layer.
FakeBehaviour wrong_rows(int bad_layer, Half half, int first, int last) {
  FakeBehaviour b = states_of(1e-3, 3);
  b.kv_row = [=](const std::vector<int32_t>&, int layer, int row) {
    std::vector<float> x = state(static_cast<uint64_t>(5000 + layer * 100 + row), 1e-3, 3);
    const bool bad = layer == bad_layer && row >= first && row <= last;
    for (int i = 0; i < kWidth; ++i) {
      if (bad && (half & (i < kWidth / 2 ? kKey : kValue)) != 0) x[static_cast<size_t>(i)] += 0.1F;
    }
    return x;
  };
  return b;
}

// The recurrence, written a second time: a layer takes its lag of `lags`, or nothing.
int32_t token_after(const std::vector<int32_t>& ids, const Lags& lags) {
  std::vector<uint32_t> row;
  for (const int32_t id : ids) row.push_back(static_cast<uint32_t>(synthetic_state(id)));
  for (const auto& [layer, lag] : lags) {
    std::vector<uint32_t> out = row;
    for (size_t t = static_cast<size_t>(lag); t < row.size(); ++t)
      out[t] = row[t] ^ row[t - static_cast<size_t>(lag)];
    row = out;
  }
  return synthetic_token(lfsr_step(row.back()));
}

}  // namespace

TEST_CASE("localiser: the first layer and the first KV row that leave the band") {
  CHECK_THAT(localised(states_of(1e-3, 3)),
             ContainsText("every hidden state's NMSE is at most 4 times") &&
                 ContainsText("every KV row's NMSE is at most 4 times"));
  for (int layer = 0; layer < kModelLayers; ++layer) {
    const std::string line = localised(states_of(1e-3, 3, layer, 4));
    INFO(line);
    CHECK_THAT(line, ContainsText("prompt 'p' position 8: layer " + std::to_string(layer)));
    CHECK_THAT(line, ContainsText("layer " + std::to_string(layer) + ", position 4"));
  }
  // NMSE grows with the square of the error: an error 1.4 times as large stays within 4 x.
  CHECK_THAT(localised(states_of(1e-3, 2, 1, -1, 1.99)), ContainsText("every hidden state"));
  CHECK_THAT(localised(states_of(1e-3, 2, 1, -1, 2.01)), ContainsText("layer 1 is the first"));
  // A layer's band is the baseline's largest error in it, wherever that stands.
  CHECK_THAT(localised(states_of(1e-3, 3, 1, 4), states_of(1e-3, 2, 1, 0)),
             ContainsText("every KV row's NMSE is at most 4 times"));
  FakeBehaviour nan = states_of(1e-3, 3);
  nan.hidden = [](const std::vector<int32_t>&, int layer) {
    return std::vector<float>(kWidth, layer == 2 ? std::nanf("") : 2.0F);
  };
  const auto close = [](const std::vector<int32_t>&, int) { return std::vector<float>(kWidth, 1); };
  FakeBehaviour wide = states_of(1e-3, 2);
  wide.hidden = close;  // so far from the truth that any number is in its band
  CHECK_THAT(localised(nan, wide), ContainsText("layer 2 is the first whose hidden state leaves"));
  CHECK_THAT(localised({}),
             ContainsText("no hidden states or KV rows are shown: offer show() (engine_abi.h; in "
                          "Python step_decoder.py), and the report names the layer"));
}

TEST_CASE("localiser: which of K and V are out of band, and in which rows, leaves a few parts") {
  const std::string keys = "K out of band, V in band: ", values = "K in band, V out of band: ",
                    both = "K out of band, V out of band: ";
  const struct {
    int layer;
    Half half;
    int first, last;
    std::string text;
  } cases[] = {
      {1, kKey, 1, kRows - 1,
       keys + "RoPE of layer 1, which leaves position 0 as it is; else the K"},
      {1, kKey, 0, kRows - 1, keys + "the K projection, k_norm or RoPE of layer 1"},
      {1, kKey, 1, kRows - 2, keys + "the K projection, k_norm or RoPE of layer 1"},
      {3, kValue, 0, kRows - 1, values + "the V projection of layer 3, or where its rows"},
      {2, kValue, 1, kRows - 1, values + "the V projection of layer 2, or where its rows"},
      {0, kBoth, 0, kRows - 1,
       both + "the embedding, the input norm or the K and V projections of"},
      {0, kBoth, 0, 3,
       both + "the embedding, the input norm or the K and V projections of layer 0\n"},
      {1, kBoth, 1, kRows - 1, both + "the input norm or the K and V projections of layer 1\n"},
      {1, kBoth, 1, kRows - 2,
       both + "the input norm or the K and V projections of layer 1, or the layer before\n"},
  };
  for (const auto& c : cases) {
    const std::string line = localised(wrong_rows(c.layer, c.half, c.first, c.last));
    INFO(line);
    CHECK_THAT(line + "\n", ContainsText(c.text));
    CHECK_THAT(line, ContainsText(fmt::format("is layer {}, position {} (", c.layer, c.first)));
    CHECK_THAT(line, ContainsText(fmt::format("{} of 9 rows", c.last - c.first + 1)));
  }
  // A hidden state that is out of band in an earlier layer comes first, one of the same does not.
  for (const int layer : {1, 2, 3}) {
    FakeBehaviour later = wrong_rows(2, kKey, 0, kRows - 1);
    later.hidden = states_of(1e-3, 3, layer).hidden;
    const bool behind = layer == 1;
    CHECK_THAT(localised(later),
               ContainsText(behind ? "K and V of layer 1 in band" : "RoPE of layer 2"));
  }
}

TEST_CASE("localiser: a step of one KV row tells the query's part of a layer from the rest") {
  for (const bool with_one_row : {true, false}) {
    FakeBehaviour b = states_of(1e-3, 3, 2);
    const auto always = b.hidden, never = states_of(1e-3, 3).hidden;
    b.hidden = [=](const std::vector<int32_t>& context, int layer) {
      CHECK((context.size() > 2 || context.front() == 5));  // the id that the step embeds
      return (context.size() > 2 || with_one_row ? always : never)(context, layer);
    };
    CHECK_THAT(localised(b),
               ContainsText("K and V of layer 2 in band: the fault lies behind them") &&
                   ContainsText(with_one_row ? "it shows too: the V head"
                                             : "it does not show: the Q projection"));
  }
}

TEST_CASE("localiser: the errors of all layers, and states that are missing or of another size") {
  LastStep last;
  localised(states_of(1e-3, 3, 2), states_of(1e-3, 2), &last);
  REQUIRE(last.by_layer.size() == kModelLayers);
  for (int layer = 0; layer < kModelLayers; ++layer) {
    const ErrorAt& e = last.by_layer[static_cast<size_t>(layer)];
    CHECK(e.at == layer);
    CHECK(e.limit == kBandFactor * e.baseline_error);
    CHECK((e.error > e.limit) == (layer >= 2));
  }
  FakeBehaviour rows_alone = wrong_rows(1, kValue, 0, 0), states_alone = states_of(1e-3, 3, 2);
  rows_alone.hidden = {};
  states_alone.kv_row = {};
  CHECK_THAT(localised(rows_alone), ContainsText("no hidden states are shown; the first KV row") &&
                                        ContainsText("the V projection"));
  CHECK_THAT(localised(states_alone), ContainsText("layer 2 is the first") &&
                                          ContainsText("no KV rows are shown") &&
                                          !ContainsText("behind them"));
  FakeBehaviour longer = states_of(1e-3, 3);
  longer.hidden = [](const std::vector<int32_t>&, int) {
    return std::vector<float>(kWidth + 1, 2);
  };
  CHECK_THROWS_WITH(localised(longer),
                    "show(): the hidden state of layer 0: found 17 values, wanted 16");
}

TEST_CASE("localiser: the errors of the logits at the step and at up to 31 steps before it") {
  ReferencePrompt prompt;
  prompt.ids = {1, 2, 3};
  for (int i = 0; i < 40; ++i) {
    prompt.steps.emplace_back();
    prompt.steps.back().position = 2 + i;
    prompt.steps.back().token = 5;
  }
  for (const int step : {0, 31, 32}) {
    FakeEngine k, t, b({.noise_seed = 2, .noise = 0.01});
    LastStep last;
    localise({k, t, b}, 0, kFakeVocab, prompt, step, &last);
    const int count = step == 0 ? 1 : 32;
    REQUIRE(std::ssize(last.by_position) == count);
    CHECK((last.by_position.front().at == 2 + (step == 32) &&
           last.by_position.back().at == 2 + step));
    for (const ErrorAt& e : last.by_position)
      CHECK((e.error == 0 && e.baseline_error > 0.03 && e.baseline_error < 0.07 && !e.limit));
    CHECK(last.by_position.back().baseline_error == centred_distance(last.baseline, last.truth));
    for (const FakeEngine* one : {&k, &t, &b}) CHECK(one->longest_decode == count);
  }
  FakeEngine k({.has_logits = false}), t, b;
  LastStep last;
  localise({k, t, b}, 0, kFakeVocab, prompt, 3, &last);
  CHECK((last.by_position.empty() && last.candidate.empty() && last.truth.size() == kFakeVocab));
}

TEST_CASE("localiser: a wrong token names the planted layer whose lag is missing or shifted") {
  ReferencePrompt prompt;
  prompt.name = "states";
  prompt.ids = synthetic_prompt(20, 9);
  const std::vector<int32_t> behind = synthetic_continuation(prompt.ids, "short", 6);
  for (const int32_t id : behind) {
    ReferenceStep step;
    step.token = id;
    prompt.steps.push_back(step);
  }
  const int step = 4;
  std::vector<int32_t> ids = prompt.ids;
  ids.insert(ids.end(), behind.begin(), behind.begin() + step);
  const auto token_with = [&](const Lags& lags) { return token_after(ids, lags); };
  CHECK(token_with(synthetic_lags("short")) == behind[step]);
  for (const auto& [layer, lag] : synthetic_lags("short")) {
    Lags without = synthetic_lags("short"), shifted = without;
    without.erase(layer);
    shifted[layer] = lag + 2;
    CHECK_THAT(localise_lag("short", kQwen3_0_6B, prompt, step, token_with(without)),
               ContainsText("lag " + std::to_string(lag) + " of layer " + std::to_string(layer) +
                            " is missing") &&
                   !ContainsText("others"));
    CHECK_THAT(localise_lag("short", kQwen3_0_6B, prompt, step, token_with(shifted)),
               ContainsText("of layer " + std::to_string(layer) + " is taken " +
                            std::to_string(lag + 2) + " positions back"));
  }
  // All ids alike: the first layer leaves zeros, and many other lags than its own leave the state.
  ReferencePrompt alike = prompt;
  alike.ids.assign(prompt.ids.size(), synthetic_token(5));
  for (ReferenceStep& s : alike.steps) s.token = synthetic_token(5);
  const std::string many =
      localise_lag("short", kQwen3_0_6B, alike, step, synthetic_token(lfsr_step(5)));
  CHECK_THAT(many, ContainsText(", or 11 others"));
  CHECK(std::count(many.begin(), many.end(), ',') == 3);
  int32_t stateless = 0;
  while (synthetic_state(stateless) >= 0) ++stateless;
  ReferencePrompt early;  // too few ids for the recurrence
  early.ids = {prompt.ids.front()};
  CHECK_THAT(localise_lag("short", kQwen3_0_6B, early, 0, synthetic_token(12345)),
             ContainsText("begins at 11 rows"));
  CHECK_THAT(localise_lag("short", kQwen3_0_6B, prompt, step, stateless),
             ContainsText("is not in the closed form"));
  CHECK_THAT(localise_lag("short", kQwen3_0_6B, prompt, step, synthetic_token(12345)),
             ContainsText("no single planted layer"));
}

TEST_CASE("localiser: lags up to 64 positions off on either side of the right one are tried") {
  ReferencePrompt prompt;
  prompt.ids = synthetic_prompt(1800, 9);
  const Lags right = synthetic_lags("deep");
  for (const auto& [layer, lag] : right) {
    for (const int off : {-65, -64, -1, 1, 64, 65}) {
      if (lag + off < 0) continue;
      Lags shifted = right;
      shifted[layer] = lag + off;
      const std::string text =
          localise_lag("deep", kQwen3_0_6B, prompt, 0, token_after(prompt.ids, shifted));
      INFO(layer << " " << off << " " << text);
      const std::string named =
          fmt::format("lag {} of layer {} is taken {} positions back", lag, layer, lag + off);
      CHECK((text.find(named) != std::string::npos) == (std::abs(off) <= 64));
    }
  }
}
