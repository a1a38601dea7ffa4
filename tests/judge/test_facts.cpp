// Facts about a failure: each at the edge of its threshold, and none where nothing is measured.
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "harness/judge/facts.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_engine.h"

using namespace mkbench;
using namespace mkbench::testing;

namespace {

constexpr double kLimit = 2;  // of a step's logit error over the baseline's

// Prompts of the given lengths with `steps` steps each, all of them right: truth's tokens are the
// cache lengths, the baseline's error is 1 % of the logits' norm of 100, the engine's half of that.
class Run {
 public:
  Run(const std::vector<int>& lengths, int steps) {
    for (const int length : lengths) {
      ReferencePrompt& prompt = prompts_.emplace_back();
      prompt.name = "p" + std::to_string(length);
      prompt.ids.assign(static_cast<size_t>(length), 7);
      for (int t = 0; t < steps; ++t) {
        ReferenceStep& truth = prompt.steps.emplace_back();
        truth.position = length - 1 + t;
        truth.token = length + t;
        truth.baseline_error_norm = 1;
        truth.centred_norm = 100;
      }
      for (int t = 0; t < steps; ++t) {
        const int32_t token = prompt.steps[static_cast<size_t>(t)].token;
        seen.push_back({&prompt, t, {.id = token, .argmax = token, .error = StepError{0.25}}});
      }
    }
  }
  Run(const Run&) = delete;

  static int rows(const SeenStep& s) { return static_cast<int>(s.prompt->ids.size()) + s.step; }
  static int32_t truth(const SeenStep& s) {
    return s.prompt->steps[static_cast<size_t>(s.step)].token;
  }
  // Changes every step that `takes` selects.
  Run& change(const std::function<bool(const SeenStep&)>& takes,
              const std::function<void(SeenStep&)>& how) {
    for (SeenStep& s : seen) {
      if (takes(s)) how(s);
    }
    return *this;
  }
  Run& by_ids_alone() {
    return change(always, [](SeenStep& s) {
      s.forced.argmax = -1;
      s.forced.error.reset();
    });
  }
  std::string facts(bool takes_forced = true) const {
    std::string text;
    for (const std::string& fact : facts_of_steps(seen, kLimit, takes_forced)) text += fact + "\n";
    return text;
  }

  // What the truth gave; its errors and norms may be changed.
  ReferenceStep& truth_at(size_t prompt, size_t step) { return prompts_[prompt].steps[step]; }

  static bool always(const SeenStep&) { return true; }
  std::vector<SeenStep> seen;

 private:
  std::deque<ReferencePrompt> prompts_;
};

// The engine emits `id` and its logits agree.
std::function<void(SeenStep&)> emits(int32_t id) {
  return [=](SeenStep& s) {
    s.forced.id = s.forced.argmax = id;
    s.wrong = true;
  };
}
std::function<void(SeenStep&)> has_error(double norm) {
  return [=](SeenStep& s) { s.forced.error = StepError{norm * norm}; };
}
std::function<bool(const SeenStep&)> from_row(int rows) {
  return [=](const SeenStep& s) { return Run::rows(s) >= rows; };
}

const std::vector<float>& truth_logits() {
  static const std::vector<float> z = FakeEngine::true_logits({0, 3, 4});
  return z;
}
// The baseline's largest error is 0.01.
LastStep step_with(const std::function<float(int, float)>& logit) {
  LastStep step;
  step.truth = truth_logits();
  for (int i = 0; i < kFakeVocab; ++i) {
    const float z = step.truth[static_cast<size_t>(i)];
    step.baseline.push_back(z + (i % 2 == 0 ? 0.01F : -0.01F));
    step.candidate.push_back(logit(i, z));
  }
  return step;
}
std::string facts_of(const std::function<float(int, float)>& logit) {
  const std::vector<std::string> facts = facts_of_logits(step_with(logit));
  CHECK(facts.size() < 2);
  return facts.empty() ? "" : facts.front();
}

}  // namespace

TEST_CASE("a right engine has no facts, and neither has a judging without steps") {
  CHECK(Run({1, 2, 9}, 30).facts().empty());
  CHECK(Run({3, 3, 3, 3, 3, 3, 3, 3}, 1).facts().empty());  // one id is right at all steps
  Run unjudged({1, 4}, 10);
  CHECK(facts_of_steps(unjudged.change(Run::always, has_error(50)).seen, 0, true).empty());
  CHECK(facts_of_steps({}, kLimit, true).empty());
  CHECK(facts_of([](int, float z) { return z; }).empty());
  CHECK(facts_of_logits({}).empty());
}

TEST_CASE("facts: ids that were not written, and the first NaN in the order of judging") {
  Run one({5}, 4);
  one.seen[2].forced.id = -1;
  CHECK_THAT(one.facts(), ContainsText("id -1 at 1 of 4 steps: no id was written; did decode() "
                                       "return before its work was done?"));
  one.seen[2].forced.is_largest = true;
  CHECK_THAT(one.facts(), !ContainsText("of equal logits"));
  Run later({1, 4}, 10);
  later.change(from_row(2), [](SeenStep& s) { s.forced = {.id = s.forced.id, .non_finite = 1}; });
  CHECK_THAT(later.facts(), ContainsText("right with 1 KV row (1 of 20 steps), wrong from 2 on"));
  Run nan({9, 2}, 3);
  for (const size_t at : {size_t{2}, size_t{3}}) {
    nan.seen[at].forced.non_finite = at == 2 ? 64 : 1;
    nan.seen[at].forced.first_non_finite = at == 2 ? 0 : 5;
  }
  CHECK_THAT(nan.facts(), ContainsText("the first NaN or Inf: prompt 'p9' position 10, logit 0 "
                                       "(64 at this step; "));
}

TEST_CASE("facts: one id at every step, from eight steps on, where the truth's differ") {
  for (const int steps : {7, 8}) {
    Run run({5}, steps);
    run.change(Run::always, emits(3));
    CHECK(holds(run.facts(), "the id is 3 at each of 8 steps") == (steps == 8));
  }
  Run other({5}, 8);
  other.change(Run::always, emits(3)).seen[7].forced.id = 4;
  CHECK_THAT(other.facts(), !ContainsText("the id is"));
}

TEST_CASE("facts: ids one step late, at nine of ten steps, right ones among them") {
  struct Row {
    int late, steps;
    bool told;
  };
  for (const auto& [late, steps, told] :
       {Row{7, 7, false}, {8, 8, true}, {8, 10, false}, {9, 10, true}, {9, 11, false}}) {
    Run run({5}, steps);
    // The first step's input is the prompt's last id.
    for (int t = 0; t < late; ++t) {
      const auto at = static_cast<size_t>(t);
      emits(t == 0 ? 7 : Run::truth(run.seen[at - 1]))(run.seen[at]);
    }
    INFO(run.facts());
    CHECK(holds(run.facts(), "at " + std::to_string(late) + " of " + std::to_string(steps) +
                                 " steps whose right id is another the id is the step's "
                                 "input") == told);
    CHECK(holds(run.facts(), "the step's input") == told);
  }
  // At the first of the two steps behind each prompt the input is the right id, too.
  Run same({7, 7, 7, 7, 7, 7, 7, 7}, 2);
  same.change([](const SeenStep& s) { return s.step > 0; }, emits(7));
  CHECK_THAT(same.facts(), ContainsText("at 8 of 8 steps whose right id is another"));
}

TEST_CASE("facts: an id of the same logit that is not the lowest") {
  Run run({5}, 9);
  for (const size_t at : {size_t{3}, size_t{6}}) run.seen[at].forced.argmax = 1;
  CHECK_THAT(run.facts(), !ContainsText("of equal logits"));
  run.change(Run::always, [](SeenStep& s) { s.forced.is_largest = true; });
  run.seen[6].forced.is_largest = false;
  CHECK_THAT(run.facts(), ContainsText("at 1 of 2 steps whose id is not the argmax of the engine's "
                                       "own logits, its logit is as large"));
}

TEST_CASE("facts: ids that are never emitted, by the argmax of the engine's logits or the truth") {
  // 17 ids are emitted. That 3 others are the largest of all 20 has p = 1/1,140; 2 of 19: 1/171.
  for (const bool own : {true, false}) {
    for (const int lost : {2, 3}) {
      Run run({5}, 17 + lost);
      run.change(from_row(22), [&](SeenStep& s) {
        s.forced.argmax = own ? Run::truth(s) + 1 : 5;
        s.forced.id = 5;
        s.wrong = !own;
      });
      if (own) emits(7)(run.seen[0]);  // wrong, and its own argmax
      const std::string line =
          own ? "no emitted id is 23 or more, and where the id is not the argmax of the engine's "
                "own logits, that argmax always is"
              : "no emitted id is 22 or more, and the right id of a wrong step always is";
      INFO(run.facts());
      CHECK(holds(run.facts(), line) == (lost == 3));
      if (!own) CHECK(holds(run.by_ids_alone().facts(), line) == (lost == 3));
      run.seen[1].forced.id = -1;  // 16 ids are emitted
      CHECK_THAT(run.facts(), !ContainsText("no emitted id"));
    }
  }
  // Emitted once, 22 is no part of what never wins.
  Run once({5}, 30);
  once.change(from_row(22), emits(5)).seen[0].forced.id = 22;
  CHECK_THAT(once.facts(), !ContainsText("no emitted id"));
}

TEST_CASE("facts: the cache length from which steps are wrong") {
  const std::string advice = "look at what depends on position or on older rows";
  Run theta({1, 4}, 10);
  theta.change(from_row(2), has_error(2.01));
  CHECK_THAT(theta.facts(), ContainsText("right with 1 KV row (1 of 20 steps), wrong from 2 on (19 "
                                         "of 19): " +
                                         advice));
  CHECK(Run({1, 4}, 10).change(from_row(2), has_error(1.99)).facts().empty());
  // Ids alone are right by chance: three steps must be.
  for (const int prompts : {2, 3}) {
    Run ids(std::vector<int>(static_cast<size_t>(prompts), 1), 10);
    ids.by_ids_alone().change(from_row(2), emits(50));
    CHECK(holds(ids.facts(), advice) == (prompts == 3));
    CHECK(holds(ids.facts(), "right with 1 KV row (") == (prompts == 3));
  }
  // Three failing steps with logits.
  CHECK_THAT(Run({1}, 4).change(from_row(2), has_error(5)).facts(), ContainsText(advice));
  CHECK_THAT(Run({1}, 3).change(from_row(2), has_error(5)).facts(), !ContainsText(advice));
  CHECK_THAT(Run({4}, 10).change(Run::always, has_error(5)).facts(), !ContainsText("right with"));
  // The limit is of the step's own baseline where that errs more.
  for (const double error : {5.9, 6.1}) {
    Run own({1}, 12);
    for (size_t t = 9; t < 12; ++t) {
      own.truth_at(0, t).baseline_error_norm = 3;
      has_error(error)(own.seen[t]);
    }
    CHECK(own.facts().empty() == (error < 6));
  }
  Run later({1, 30}, 40);
  later.change(from_row(33), has_error(5));
  CHECK_THAT(later.facts(), ContainsText("right with up to 32 KV rows (35 of 80 steps), wrong from "
                                         "33 on (45 of 45): look at what changes at 33 rows"));
  // Nine of ten steps from there on: 45 steps, of which 4 or 5 are right.
  for (const int right : {4, 5}) {
    later.change([=](const SeenStep& s) { return s.prompt->ids.size() > 1 && s.step > 39 - right; },
                 has_error(1));
    INFO(later.facts());
    CHECK(holds(later.facts(), "look at what changes at 33 rows") == (right == 4));
  }
  CHECK_THAT(later.facts(), ContainsText("wrong at 40 of 45 from 33 on"));
  // All among the last 45 of 80: ten steps by chance in 2 of 1,000 cases, eleven in less than one.
  for (const int wrong : {10, 11}) {
    Run few({1, 30}, 40);
    few.change(
        [=](const SeenStep& s) {
          return s.prompt->ids.size() > 1 && s.step >= 3 && s.step < 3 + wrong;
        },
        has_error(5));
    INFO(few.facts());
    CHECK(holds(few.facts(), "wrong at 11 of 45 from 33 on") == (wrong == 11));
    CHECK(holds(few.facts(), "right with up to 32 KV rows") == (wrong == 11));
  }
  Run first({1, 4}, 10);
  first.seen[0].wrong = true;
  CHECK_THAT(first.facts(), ContainsText("wrong already where a step sees 1 KV row, its own"));
  CHECK_THAT(first.facts(), !ContainsText("right with"));
}

TEST_CASE("facts: failures that keep to the steps behind a prefill, or to the others") {
  const auto is_first = [](const SeenStep& s) { return s.step == 0; };
  const auto is_later = [](const SeenStep& s) { return s.step > 0; };
  for (const std::vector<int>& lengths : {std::vector{3, 4}, std::vector{3, 4, 9}}) {
    Run decode(lengths, 9), prefill(lengths, 11);
    decode.change([](const SeenStep& s) { return s.step > 4; }, emits(60));
    prefill.change(is_first, emits(60));
    const bool told = lengths.size() == 3;
    CHECK(holds(decode.facts(),
                "right at the first step behind each of 3 prefills, right at "
                "12 of 24 later steps: look at what decode() hands on") == told);
    CHECK(holds(prefill.facts(),
                "wrong at the first step behind each of 3 prefills, right at "
                "30 of 30 later steps: look at the end of prefill()") == told);
    // Without forced ids every step stands behind a prefill of its own.
    CHECK_THAT(prefill.facts(false), !ContainsText("prefill"));
    if (!told) continue;
    prefill.change([](const SeenStep& s) { return s.step == 1; }, emits(60));
    CHECK_THAT(prefill.facts(), ContainsText("right at 27 of 30 later steps"));
    prefill.seen[2].wrong = true;
    CHECK_THAT(prefill.facts(), !ContainsText("prefill"));
    decode.seen[8].wrong = false;  // fewer than half of the later steps are wrong
    CHECK_THAT(decode.facts(), !ContainsText("prefill"));
  }
  CHECK_THAT(Run({3, 4, 9, 12}, 3).change(is_later, emits(60)).facts(),
             ContainsText("right at the first step behind each of 4 prefills, right at 0 of 8"));
  CHECK_THAT(Run({1, 1, 1}, 9).change(is_later, emits(60)).facts(), !ContainsText("prefill"));
  Run one({3, 4, 9}, 11);
  emits(60)(one.seen[0]);
  CHECK_THAT(one.facts(), !ContainsText("prefill"));
  Run all({3, 4, 9}, 9);
  CHECK_THAT(all.change(is_later, emits(60)).change(is_first, emits(60)).facts(),
             !ContainsText("prefill"));
}

TEST_CASE("facts: logit errors that grow with position, or do not") {
  const auto errors = [](int steps, double short_ones, double long_ones, int from = 21) {
    Run run({1}, steps);
    run.change(Run::always, has_error(short_ones)).change(from_row(from), has_error(long_ones));
    return run.facts();
  };
  CHECK_THAT(errors(32, 3, 6), ContainsText("logit errors grow with position: median 0.03 of the "
                                            "logits' norm with up to 8 KV rows, 0.06 from 25 on"));
  CHECK_THAT(errors(31, 3, 6), !ContainsText("logit errors"));
  CHECK_THAT(errors(32, 3, 5.9), !ContainsText("logit errors"));
  CHECK_THAT(errors(32, 4, 5), ContainsText("logit errors do not grow with position"));
  CHECK_THAT(errors(32, 5, 4), ContainsText("logit errors do not grow with position"));
  CHECK_THAT(errors(32, 4, 5.1), !ContainsText("logit errors"));
  CHECK_THAT(errors(32, 6, 4), !ContainsText("logit errors"));
  CHECK_THAT(errors(32, 3, 12, 29), ContainsText("0.075 from 25 on"));  // the mean of 3 and 12
  Run unknown({1}, 32);
  unknown.change(Run::always, has_error(3)).change(from_row(17), has_error(6));
  unknown.truth_at(0, 0).centred_norm = 0;
  CHECK_THAT(unknown.facts(), !ContainsText("logit errors"));
  // At least half of the errors must be over the limit; wrong ids do not count.
  Run ids({1}, 32);
  CHECK_THAT(ids.change(Run::always, emits(60)).facts(), !ContainsText("logit errors"));
  CHECK_THAT(errors(32, 1, 6, 17), ContainsText("logit errors grow"));
  CHECK_THAT(errors(32, 1, 6, 18), !ContainsText("logit errors"));
}

TEST_CASE("facts: a factor between the logits and the truth's, which explains 99 % of the error") {
  CHECK(facts_of([](int, float z) { return 0.125F * z + 3; }) ==
        "the engine's logits (less their mean) are 0.125 times the truth's; this factor explains "
        "100.0 % of their squared error");
  CHECK_THAT(facts_of([](int, float z) { return -z; }), ContainsText("are -1 times the truth's"));
  CHECK(facts_of([](int, float) { return 2.5F; }) == "all logits of this step are 2.5");
  // A rest that is orthogonal to the truth's logits: 1 % of the squared error, more and less.
  const std::vector<float>& t = truth_logits();
  const double mean = mean_of(t.data(), kFakeVocab);
  double power = 0;
  for (const float z : t) power += (z - mean) * (z - mean);
  // (t2 - t3, t3 - t1, t1 - t2) is orthogonal to (t1, t2, t3) and has the sum 0.
  const std::vector<double> rest = {t[2] - t[3], t[3] - t[1], t[1] - t[2]};
  const double norm = std::hypot(rest[0], rest[1], rest[2]);
  for (const double share : {0.0099, 0.0101}) {
    // Error: 0.5 t and the rest r, |r|^2 = share x (0.25 |t|^2 + |r|^2).
    const double size = std::sqrt(share / (1 - share) * 0.25 * power);
    const std::string fact = facts_of([&](int i, float z) {
      const double part = i >= 1 && i <= 3 ? size * rest[static_cast<size_t>(i) - 1] / norm : 0;
      return static_cast<float>(1.5 * z + part);
    });
    INFO(share << fact);
    CHECK(holds(fact, "times the truth's") == (share < 0.01));
  }
}

TEST_CASE("facts: the ids whose logits are off, alone") {
  const auto off = [](const std::function<bool(int)>& takes, float by = 1) {
    return facts_of([=](int i, float z) { return takes(i) ? z + by : z + 0.005F; });
  };
  CHECK(off([](int i) { return i == 63; }) ==
        "at this step the logits of id 63 alone are off (of 64 ids)");
  CHECK_THAT(off([](int i) { return i % 10 == 3; }),
             ContainsText("of ids 3, 13, 23, 33, 43, 53, 63"));
  CHECK(off([](int i) { return i % 8 == 3; }).empty());  // eight ids, and no pattern
  CHECK(off([](int i) { return i >= 40; }) ==
        "at this step the logits of ids 40 to 63 alone are off (of 64 ids)");
  // Half of the span at least, and not all of the vocabulary.
  CHECK_THAT(off([](int i) { return (i > 7 && i < 19) || i == 31; }), ContainsText("ids 8 to 31"));
  CHECK(off([](int i) { return (i > 7 && i < 19) || i == 32; }).empty());
  CHECK(off([](int i) { return i < 30 || i == 61; }).empty());
  CHECK_THAT(off([](int i) { return i >= 8 && i < 20; }), ContainsText("of ids 8 to 19 alone"));
  // More than half of the ids: what the others have in common is then no yardstick.
  CHECK(facts_of([](int i, float z) { return i < 31 ? z : z + 0.1F * i; }).empty());
  CHECK_FALSE(facts_of([](int i, float z) { return i < 33 ? z : z + 0.1F * i; }).empty());
  CHECK_THAT(facts_of([](int i, float z) { return i < 50 ? z : 0; }),
             ContainsText("alone are off (of 64 ids): all are 0"));
  // Off is over twice the baseline's largest error; a pattern is told over four times.
  CHECK_THAT(off([](int i) { return i == 63; }, 0.0451F), ContainsText("of id 63 alone"));
  CHECK(off([](int i) { return i == 63; }, 0.0449F).empty());
  for (const float other : {0.0249F, 0.0251F}) {
    const std::string fact = facts_of([=](int i, float z) {
      return i == 63 ? z + 1 : i == 5 ? z + other : z + 0.005F;
    });
    CHECK_THAT(fact, ContainsText(other < 0.025F ? "of id 63 alone" : "of ids 5, 63 alone"));
  }
  LastStep bare = step_with([](int i, float z) { return i == 63 ? z + 1 : z; });
  CHECK(facts_of_logits(bare).size() == 1);
  bare.baseline.clear();
  CHECK(facts_of_logits(bare).empty());
  bare.candidate.clear();
  CHECK(facts_of_logits(bare).empty());
  LastStep nan = step_with([](int, float z) { return 2 * z; });
  nan.candidate[4] = std::numeric_limits<float>::infinity();
  CHECK(facts_of_logits(nan).empty());
}

TEST_CASE("the logits of a step: argmax, NaN, and whether the id's logit is the largest") {
  std::vector<float> all = {3, 1, 3, 3, -1, 3};  // the row, and what lies before and behind it
  float* z = all.data() + 1;
  ForcedStep step{.id = 2};
  scan_logits(z, 4, step);
  CHECK((step.argmax == 1 && step.is_largest && step.non_finite == 0));
  CHECK(step.first_non_finite == -1);
  z[1] = std::nanf("");
  z[3] = std::numeric_limits<float>::infinity();
  for (const int32_t id : {0, 4, -1}) {
    ForcedStep other{.id = id};
    scan_logits(z, 4, other);
    CHECK((other.argmax == 2 && !other.is_largest));
    CHECK((other.non_finite == 2 && other.first_non_finite == 1));
  }
}
