// The check `head` on the tiny checkpoints: the fp32 oracle as it is, and with an argmax that is
// wrong in one way.
#include <algorithm>
#include <functional>
#include <regex>
#include <set>
#include <span>
#include <utility>

#include "harness/judge/budget.h"
#include "harness/judge/head.h"
#include "harness/selftest/recorded_engine.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

// Returns the id for a row of logits, which it may change.
using Pick = std::function<int32_t(std::span<float> logits)>;

int32_t lowest(std::span<const float> z) {
  return static_cast<int32_t>(std::max_element(z.begin(), z.end()) - z.begin());
}
int32_t highest(std::span<const float> z) {
  return static_cast<int32_t>(z.rend() - std::max_element(z.rbegin(), z.rend()) - 1);
}

// The oracle, whose ids `pick` chooses.
class Picking : public Engine {
 public:
  Picking(const ModelWeights& weights, Pick pick, bool shows_logits)
      : oracle_(make_oracle_engine(weights)),
        vocab_(static_cast<size_t>(weights.config.shape.vocab)),
        pick_(std::move(pick)),
        shows_logits_(shows_logits) {}

  EngineCapabilities capabilities() const override {
    EngineCapabilities can = oracle_->capabilities();
    can.logits = shows_logits_;
    return can;
  }
  void reset() override { oracle_->reset(); }
  void poison() override {}
  void prefill(std::span<const int32_t> ids) override { oracle_->prefill(ids); }
  std::vector<int32_t> decode(int n, const int32_t* forced, float* logits_out) override {
    std::vector<float> logits(vocab_ * static_cast<size_t>(n));
    oracle_->decode(n, forced, logits.data());
    std::vector<int32_t> ids;
    for (size_t t = 0; t < static_cast<size_t>(n); ++t)
      ids.push_back(pick_(std::span(logits).subspan(t * vocab_, vocab_)));
    if (logits_out != nullptr) std::copy(logits.begin(), logits.end(), logits_out);
    return ids;
  }
  void set_pending(int32_t id) override { oracle_->set_pending(id); }
  Snapshot save() override { return oracle_->save(); }
  void restore(const Snapshot& s) override { oracle_->restore(s); }
  int position() const override { return oracle_->position(); }
  int64_t launch_count() const override { return oracle_->launch_count(); }
  DecodeTimes last_times() const override { return {}; }
  Progress progress() const override { return {}; }

 private:
  const std::unique_ptr<Engine> oracle_;
  const size_t vocab_;
  const Pick pick_;
  const bool shows_logits_;
};

struct Model {
  explicit Model(const std::string& name)
      : weights(load_model(resolve_model(name))),
        reference(read_reference(find_references(data_dir(), name).at(0))) {}
  ModelWeights weights;
  GreedyReference reference;
};

const Model& tiny() {
  static const Model model("tiny");
  return model;
}

ParityReport judge(
    const Model& model, const OpenOn& open, const std::function<void()>& stop = [] {}) {
  Findings findings;
  judge_head(model.weights, {model.reference}, false, open, stop, findings);
  ParityReport report;
  findings.conclude(report);
  return report;
}

ParityReport judge(const Pick& pick, bool shows_logits = true, const Model& model = tiny()) {
  return judge(model, [&](const ModelWeights& weights) {
    return std::make_unique<Picking>(weights, pick, shows_logits);
  });
}

std::string detail(const ParityReport& report) { return find_check(report, Check::kHead)->detail; }

TEST_CASE("head: the oracle passes, tied and untied; its winners stand in all parts of the head") {
  std::set<int32_t> rows;
  const Pick pick = [&](std::span<float> z) { return *rows.insert(lowest(z)).first; };
  const ParityReport report = judge(pick);
  INFO(report.reason);
  CHECK(find_check(report, Check::kHead)->status == CheckStatus::kPassed);
  CHECK(detail(report) == "128 steps won by one row, 128 by one of two equal rows");
  CHECK((*rows.begin() == 0 && *rows.rbegin() == tiny().weights.config.shape.vocab - 1));
  int32_t before = -1, gap = 0;
  for (const int32_t row : rows) gap = std::max(gap, row - std::exchange(before, row));
  CHECK(gap <= 8);
  const Model untied("tiny-untied");
  CHECK(judge(lowest, true, untied).reason == "");
  CHECK(find_check(judge(lowest, false), Check::kHead)->status == CheckStatus::kPassed);
}

TEST_CASE("head: an argmax that takes the last of equals is named, with a pair of ids") {
  const ParityReport with = judge(highest);
  CHECK(with.verdict == Verdict::kFailSelf);
  INFO(with.reason);
  CHECK(std::regex_match(
      with.reason, std::regex("of two equal rows [0-9]+ and [0-9]+ of the head the higher id "
                              "came back \\([0-9]+ such pairs\\): the lowest id wins a tie")));
  CHECK(judge(highest, false).verdict == Verdict::kFailToken);
  // A tie that only two neighbours lose, or two rows far apart.
  const auto loses = [](int32_t least, int32_t most) {
    return [=](std::span<float> z) {
      const int32_t away = highest(z) - lowest(z);
      return away >= least && away <= most ? highest(z) : lowest(z);
    };
  };
  CHECK(judge(loses(1, 1)).verdict == Verdict::kFailSelf);
  CHECK(judge(loses(100, 200)).verdict == Verdict::kFailSelf);
}

TEST_CASE("head: equal rows whose logits an engine rounds apart are no tie") {
  const Pick rounds = [](std::span<float> z) {
    z[static_cast<size_t>(highest(z))] += 1e-5F;
    return lowest(z);
  };
  const ParityReport report = judge(rounds);
  INFO(report.reason);
  CHECK(find_check(report, Check::kHead)->status == CheckStatus::kPassed);
}

TEST_CASE("head: a row that cannot win is named") {
  const int32_t vocab = tiny().weights.config.shape.vocab;
  for (const int32_t row : {0, vocab - 1}) {
    const ParityReport report = judge([=](std::span<float> z) {
      z[static_cast<size_t>(row)] = -100;
      return lowest(z);
    });
    CHECK(report.verdict == Verdict::kFailToken);
    CHECK_THAT(report.reason,
               ContainsText("came back where the truth's largest logit stands in row " +
                            std::to_string(row) + " of the head of " + std::to_string(vocab) +
                            " rows (1 such rows)"));
  }
}

TEST_CASE("head: what cannot be judged says why") {
  const OpenOn never = [](const ModelWeights&) -> std::unique_ptr<Engine> {
    throw Error(ErrorKind::kRuntime, "nothing is to be opened");
  };
  const auto ruled_out = [&](const Model& model, const OpenOn& open) {
    const ParityReport report = judge(model, open);
    CHECK(find_check(report, Check::kHead)->status == CheckStatus::kNotApplicable);
    return detail(report);
  };
  Model unsure = tiny();
  unsure.reference.pairwise_d = 1e3;
  CHECK(ruled_out(unsure, never) == "no prompt of the references has a decided step");
  Model ids_alone = tiny();
  ids_alone.reference.token_only = true;
  CHECK(ruled_out(ids_alone, never) == "no prompt of the references has a decided step");
  Model large = tiny();
  large.weights.config.shape.layers = 20'000;
  CHECK_THAT(ruled_out(large, never), ContainsText("it takes a copy of the weights, which are ") &&
                                          ContainsText("made up to 4.3 GB"));
  Model other = tiny();
  --other.weights.lm_head.rows;
  CHECK_THAT(ruled_out(other, never), ContainsText("other numbers of rows"));
  CHECK(ruled_out(tiny(), [](const ModelWeights&) -> std::unique_ptr<Engine> {
          throw Error(ErrorKind::kEnvUnfit, "no room");
        }) == "no room");
  CHECK_THROWS_WITH(judge(tiny(), never), ContainsText("nothing is to be opened"));
}

TEST_CASE("head: prompts of at most 256 ids, and steps whose margin is no near tie") {
  const struct {
    size_t ids;
    double margin;
    bool logits_bf16, judged;
  } cases[] = {{256, 9, false, true}, {257, 9, false, false}, {3, 1.5, false, true},
               {3, 1, false, false},  {3, 1.03, true, false}, {3, 1.07, true, true}};
  for (const auto& c : cases) {
    Model model = tiny();
    ReferencePrompt prompt = model.reference.prompts.front();
    prompt.ids.resize(c.ids, prompt.ids.front());
    for (ReferenceStep& s : prompt.steps) s.margin = c.margin, s.max_abs = 9;  // a bf16 step: 1/16
    model.reference.pairwise_d = 1;
    model.reference.prompts = {prompt};
    Findings findings;
    bool opened = false;
    judge_head(
        model.weights, {model.reference}, c.logits_bf16,
        [&](const ModelWeights&) -> std::unique_ptr<Engine> {
          opened = true;
          throw Error(ErrorKind::kEnvUnfit, "no room");
        },
        [] {}, findings);
    INFO(c.ids << " " << c.margin);
    CHECK(opened == c.judged);
  }
}

TEST_CASE("head: a time budget that ends is INCOMPLETE; what was found before stands") {
  for (const bool sound : {true, false}) {
    int calls = 0;
    const ParityReport report = judge(
        tiny(),
        [&](const ModelWeights& weights) {
          return std::make_unique<Picking>(weights, sound ? Pick(lowest) : Pick(highest), true);
        },
        [&] {
          if (++calls > 1) throw BudgetEnded();
        });
    CHECK(report.verdict == (sound ? Verdict::kIncomplete : Verdict::kFailSelf));
    CHECK_THAT(report.reason, ContainsText("1 of 4 renamed heads"));
  }
}

}  // namespace
}  // namespace mkbench
