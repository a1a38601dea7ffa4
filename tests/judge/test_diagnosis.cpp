// The diagnosis: which steps are repeated, and what the fits of known bugs are taken to mean.
#include <string>
#include <vector>

#include "harness/judge/diagnosis.h"
#include "harness/judge/findings.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_engine.h"

using namespace mkbench;
using namespace mkbench::testing;

namespace {

BugFit fit(const std::string& name, double error, double rounding = -1, int wrong = 0) {
  return {.name = name,
          .text = "text of " + name,
          .error = error,
          .rounding = rounding,
          .wrong = wrong};
}

BugFits by_logits(std::vector<BugFit> best, double rounding_of_truth = 0.001) {
  return {.best = std::move(best),
          .truth = fit("none", 1, rounding_of_truth, 9),
          .tried = 100,
          .known = 100};
}

BugFits by_ids(std::vector<BugFit> best, int wrong_of_truth = 9) {
  return {.best = std::move(best),
          .truth = fit("none", -1, -1, wrong_of_truth),
          .tried = 100,
          .known = 100};
}

using Names = std::vector<std::string>;

// At this limit of R_rms an engine may have twice the error of bf16 arithmetic.
Diagnosis concluded(const BugFits& fits) { return conclude_diagnosis(fits, 1.5); }

ReferencePrompt prompt_of_steps(const std::string& name, int ids, int steps) {
  ReferencePrompt prompt;
  prompt.name = name;
  for (int i = 0; i < ids; ++i) prompt.ids.push_back(i);
  for (int t = 0; t < steps; ++t) {
    ReferenceStep step;
    step.position = ids - 1 + t;
    step.token = 40 + t;
    prompt.steps.push_back(step);
  }
  return prompt;
}

// Explains nothing, and keeps what it was asked.
class AskedTruth final : public FakeEngine {
 public:
  std::optional<BugFits> explain(const BugQuestion& question) override {
    asked = question;
    return by_ids({});
  }
  BugQuestion asked;
};

}  // namespace

TEST_CASE("diagnosis by logits: one bug, within what rounding leaves of it") {
  const Diagnosis one = concluded(by_logits({fit("gelu", 0.004, 0.003), fit("eps", 0.4)}));
  CHECK(one.names == Names{"gelu"});
  CHECK(one.text ==
        "the logits are those of: text of gelu (error 0.4 % of what it was, of the next bug 40 %)");
  CHECK(one.error == 0.004);
  CHECK(one.next_error == 0.4);
  CHECK(one.tried == 100);
  CHECK(one.known == 100);
  CHECK(concluded(by_logits({fit("gelu", 0.00005, 0.003)})).text ==
        "the logits are those of: text of gelu (error below 0.01 % of what it was)");
  CHECK_THAT(concluded(by_logits({fit("gelu", 0.0005, 0.003)})).text, ContainsText("0.05 %"));
  for (const auto& [next, shown] :
       {std::pair{0.994, "99 %"}, {0.995, "100 %"}, {1.1, "110 %"}, {12.34, "1234 %"}})
    CHECK_THAT(concluded(by_logits({fit("gelu", 0.004, 0.003), fit("eps", next)})).text,
               ContainsText(std::string("of the next bug ") + shown));
  // Twice the rounding, and half of the error, are the limits.
  CHECK(concluded(by_logits({fit("gelu", 0.5, 0.25)})).names == Names{"gelu"});
  CHECK(concluded(by_logits({fit("gelu", 0.5, 0.2499)})).text ==
        "no known bug fits; the nearest leaves 50 % of the error: text of gelu");
  const Diagnosis none = concluded(by_logits({fit("gelu", 0.501, 0.4)}));
  CHECK(none.text == "no known bug fits");
  CHECK(none.names.empty());
}

TEST_CASE("diagnosis by logits: bugs that leave about the same are named together") {
  const Diagnosis both =
      concluded(by_logits({fit("a", 0.1, 0.1), fit("b", 0.125, 0.1), fit("c", 0.126)}));
  CHECK(both.names == Names{"a", "b"});
  CHECK(both.text ==
        "the logits fit several bugs alike: text of a; text of b (error 10 % of what "
        "it was, of the next bug 13 %)");
  const Diagnosis many =
      concluded(by_logits({fit("a", 0.1, 0.1), fit("b", 0.1), fit("c", 0.1), fit("d", 0.1)}));
  CHECK(many.names.size() == 4);
  CHECK_THAT(many.text, ContainsText("text of c; and 1 more (error 10 % of what it was)"));
}

TEST_CASE("diagnosis by logits: rounding alone") {
  CHECK_THAT(concluded(by_logits({fit("gelu", 0.1, 0.3)}, 0.5)).text,
             ContainsText("the logits are the truth's but for rounding"));
  // An engine of another precision class may have less error, or more.
  CHECK(conclude_diagnosis(by_logits({fit("gelu", 0.1, 0.3)}, 0.5), 0.375).names == Names{"gelu"});
  CHECK(conclude_diagnosis(by_logits({fit("gelu", 0.1, 0.0126)}), 1e9).names == Names{"gelu"});
  CHECK(conclude_diagnosis(by_logits({fit("gelu", 0.1, 0.0124)}), 1e9).names.empty());
  CHECK(concluded(by_logits({fit("gelu", 0.1, 0.3)}, 0.5)).names.empty());
  CHECK(concluded(by_logits({fit("gelu", 0.1, 0.3)}, 0.499)).names == Names{"gelu"});
}

TEST_CASE("diagnosis by ids: the bugs that give all of them") {
  CHECK(concluded(by_ids({fit("a", -1), fit("b", -1, -1, 1)})).names == Names{"a"});
  CHECK(concluded(by_ids({fit("a", -1)})).text == "the ids are those of: text of a");
  CHECK_FALSE(concluded(by_ids({fit("a", -1)})).error);
  const Diagnosis both = concluded(by_ids({fit("a", -1), fit("b", -1)}));
  CHECK(both.names == Names{"a", "b"});
  CHECK(both.text == "the ids fit several bugs, the likeliest first: text of a; text of b");
  CHECK(concluded(by_ids({fit("a", -1, -1, 6)}, 10)).text == "no known bug gives these ids");
  const Diagnosis near = concluded(by_ids({fit("a", -1, -1, 5)}, 10));
  CHECK(near.text ==
        "no known bug gives all of these ids; the nearest leaves 5 of 10 wrong: text of a");
  CHECK(near.names.empty());
  CHECK(concluded(by_ids({fit("a", -1)}, 4)).names == Names{"a"});
  const Diagnosis few = concluded(by_ids({fit("a", -1)}, 3));
  CHECK(few.text ==
        "not told by 3 wrong ids without logits: show them, or judge more ids (mkbench parity "
        "--keep-going)");
  CHECK_THAT(concluded(by_ids({fit("a", -1)}, 1)).text, ContainsText("by 1 wrong id without"));
  CHECK(few.names.empty());
}

TEST_CASE("diagnosis: bugs that were not tried are counted") {
  BugFits fits = by_ids({fit("a", -1)});
  fits.tried = 99;
  CHECK(concluded(fits).text == "the ids are those of: text of a");
  fits.timed_out = true;
  CHECK(concluded(fits).text ==
        "the ids are those of: text of a; 1 of 100 known bugs were not tried in 20 s");
  fits.best.clear();
  CHECK(concluded(fits).text == "not diagnosed: no bug was tried in the time");
}

TEST_CASE("diagnosis: windows around the failing step and the wrong steps of short prompts") {
  GreedyReference reference;
  for (const auto& [name, ids] : {std::pair{"long", 30},
                                  {"failing", 9},
                                  {"short", 3},
                                  {"right", 2},
                                  {"bad", 12},
                                  {"huge", 1020},
                                  {"bad too", 14}})
    reference.prompts.push_back(prompt_of_steps(name, ids, 24));
  reference.prompts.push_back(prompt_of_steps("without steps", 1, 0));
  const auto row = [](const char* prompt, int position, StepVerdict verdict) {
    ParityRow r;
    r.prompt = prompt;
    r.position = position;
    r.verdict = verdict;
    return r;
  };
  const std::vector<ParityRow> rows = {
      row("bad", 12, StepVerdict::kExact), row("bad", 21, StepVerdict::kWrong),  // step 10
      row("bad too", 36, StepVerdict::kWrong), row("huge", 1019, StepVerdict::kWrong)};
  const auto windows = replay_windows(reference, rows, reference.prompts[1], 7, true);
  std::vector<std::string> found;
  for (const ReplayWindow& w : windows)
    found.push_back(w.prompt->name + " " + std::to_string(w.first) + "+" + std::to_string(w.count));
  CHECK(found == Names{"failing 0+16", "bad 3+16", "bad too 16+8", "right 0+9"});
  CHECK(replay_windows(reference, rows, reference.prompts[1], 7, false).size() == 6);
  for (const int ids : {1017, 1016, 1015, 1014})  // 1,024 rows with the first 9 steps at most
    reference.prompts.push_back(prompt_of_steps("edge", ids, 24));
  const auto ids_alone = replay_windows(reference, rows, reference.prompts[1], 7, false);
  CHECK(ids_alone.size() == 8);
  reference.prompts.erase(reference.prompts.end() - 2, reference.prompts.end());
  CHECK(replay_windows(reference, rows, reference.prompts[1], 7, false).size() == 7);
  // Seven steps before the failing one.
  CHECK(replay_windows(reference, rows, reference.prompts[1], 8, true).front().first == 1);
}

TEST_CASE("diagnosis: the engine repeats a window, teacher-forced, with its logits") {
  const ReferencePrompt prompt = prompt_of_steps("p", 3, 9);
  FakeEngine candidate;
  AskedTruth truth;
  const Now still = [] { return 5.0; };
  diagnose(candidate, truth, {{&prompt, 2, 4}}, kFakeVocab, 0.25, still);
  CHECK(truth.asked.tau == 0.25);
  CHECK(truth.asked.seconds == kDiagnosisSeconds);
  REQUIRE(truth.asked.runs.size() == 1);
  const ObservedRun& run = truth.asked.runs.front();
  CHECK(run.prompt == 3);
  CHECK(run.ids == std::vector<int32_t>{0, 1, 2, 40, 41, 42, 43, 44});
  REQUIRE(run.found.size() == 4);
  REQUIRE(run.logits.size() == 4 * kFakeVocab);
  const std::vector<float> first = FakeEngine::true_logits({0, 1, 2, 40, 41});
  CHECK(std::vector<float>(run.logits.begin(), run.logits.begin() + kFakeVocab) == first);
  CHECK(run.found[0] == std::max_element(first.begin(), first.end()) - first.begin());

  FakeEngine without({.has_logits = false});
  diagnose(without, truth, {{&prompt, 0, 4}}, kFakeVocab, 0.25, still);
  CHECK(truth.asked.runs.front().logits.empty());
  CHECK(truth.asked.runs.front().found.size() == 4);
}

TEST_CASE("diagnosis: rows and time are bounded, and a truth may try no bugs") {
  FakeEngine candidate;
  AskedTruth truth;
  double clock = 0;
  const Now now = [&] { return clock; };
  const ReferencePrompt most = prompt_of_steps("most", kMostDiagnosedRows, 2);
  CHECK(diagnose(candidate, truth, {{&most, 0, 1}}, kFakeVocab, 0, now).text ==
        "not diagnosed: no bug was tried in the time");
  CHECK(diagnose(candidate, truth, {{&most, 0, 2}}, kFakeVocab, 0, now).text ==
        "not diagnosed: 1025 rows are too many, at most 1024 are tried");
  const ReferencePrompt prompt = prompt_of_steps("p", 3, 2);
  CHECK(diagnose(candidate, candidate, {{&prompt, 0, 2}}, kFakeVocab, 0, now).text ==
        "not diagnosed: this truth tries no bugs");
  FakeEngine broken({.at_step = [](const At&, std::vector<float>&, int32_t&) {
    throw Error(ErrorKind::kRuntime, "it died");
  }});
  CHECK(diagnose(broken, truth, {{&prompt, 0, 2}}, kFakeVocab, 0, now).text ==
        "not diagnosed: it died");
  // A slow engine: a quarter of the time for the repeats, then the bugs have the rest.
  const Now slow = [&] { return clock += 3; };
  const std::vector<ReplayWindow> windows(4, {&prompt, 0, 2});
  diagnose(candidate, truth, windows, kFakeVocab, 0, slow);
  CHECK(truth.asked.runs.size() == 2);
  CHECK(truth.asked.seconds == kDiagnosisSeconds - 9);
  const Now slower = [&] { return clock += 30; };
  diagnose(candidate, truth, windows, kFakeVocab, 0, slower);
  CHECK(truth.asked.seconds == 0);
}

TEST_CASE("diagnosis: each window is repeated on the engine that is opened for it, if one is") {
  const ReferencePrompt prompt = prompt_of_steps("p", 3, 9);
  FakeEngine candidate, other({.noise_seed = 1, .noise = 0.5});
  AskedTruth truth;
  int opened = 0;
  const auto next = [&]() -> Engine& { return ++opened, other; };
  diagnose(
      candidate, truth, {{&prompt, 2, 4}, {&prompt, 0, 1}}, kFakeVocab, 0, [] { return 0.0; },
      next);
  CHECK((opened == 2 && candidate.resets == 0 && other.resets == 2));
  CHECK(truth.asked.runs[1].logits != FakeEngine::true_logits({0, 1, 2}));
}

TEST_CASE("diagnosis: a failed step is repeated with the steps before it") {
  FakeEngine candidate, baseline;
  AskedTruth truth;
  FailedStep failed;
  failed.prompt_ids = {0, 1};
  for (int i = 0; i < 11; ++i) failed.forced_ids.push_back(20 + i);
  failed.pairwise_d = 0.5;
  failed.localised = "there";
  LastStep last{.truth = {-9, 1}, .by_position = {{.at = 4, .limit = {}}}};
  ReplayOptions options{.vocab = kFakeVocab};
  const auto details = [&] {
    return details_of({candidate, truth, baseline}, failed, last, options, [] { return 0.0; });
  };
  const FailureDetails found = details();
  CHECK(found.localised == "there");
  CHECK(found.error_by_position.front().at == 4);
  CHECK(found.failed_step->forced_ids.size() == 11);
  CHECK(found.diagnosis.text == "not diagnosed: no bug was tried in the time");
  CHECK(truth.asked.tau == 0.5);
  CHECK(truth.asked.runs.front().ids ==
        std::vector<int32_t>{0, 1, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30});
  CHECK(truth.asked.runs.front().found.size() == 8);
  options.logits_bf16 = true;
  failed.late_id = 7;
  last.candidate = {-18, 2};
  CHECK(details().facts.size() == 1);      // twice the truth's logits
  CHECK(truth.asked.tau == 0.5 + 0x1p-4);  // a bf16 step at 9
  CHECK(truth.asked.runs.front().ids[1] == 7);
}
