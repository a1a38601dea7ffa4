// What several checks found becomes one verdict, one line and one list of results.
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "harness/judge/findings.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_engine.h"

using namespace mkbench;

TEST_CASE("a check that fails again and again says three reasons and how many more") {
  Findings findings;
  for (const char* reason : {"a", "b", "c", "d", "e"})
    findings.fail(Check::kRan, Verdict::kIntegrity, reason);
  findings.fail(Check::kRms, Verdict::kFailFidelity, "f");
  ParityReport report;
  findings.conclude(report);
  CHECK(find_check(report, Check::kRan)->detail == "a; b; c; and 2 more");
  CHECK(find_check(report, Check::kRms)->detail == "f");
  CHECK(report.reason == "a; b; c; f");
}

TEST_CASE("a check that has a result is not ruled out") {
  Findings findings;
  findings.rule_out(Check::kRms, "first", 0.5);
  findings.rule_out(Check::kRms, "second");
  findings.fail(Check::kRan, Verdict::kIntegrity, "a");
  findings.rule_out(Check::kRan, "third");
  ParityReport report;
  findings.conclude(report);
  CHECK(report.checks.size() == 2);
  CHECK(find_check(report, Check::kRms)->detail == "first");
  CHECK(find_check(report, Check::kRan)->status == CheckStatus::kFailed);
}

TEST_CASE("of one number the largest stands, and NaN above all") {
  const auto value_after = [](const std::vector<double>& values) {
    Findings findings;
    for (const double v : values) findings.measured(Check::kStep, v, 3);
    ParityReport report;
    findings.conclude(report);
    return *find_check(report, Check::kStep)->value;
  };
  CHECK(value_after({1, 2, 0.5}) == 2);
  CHECK(std::isnan(value_after({1, std::nan("")})));
}

TEST_CASE("a later finding names the verdict only where it is nearer to the cause") {
  const auto report_after = [](const std::vector<std::pair<Verdict, std::string>>& found) {
    ParityReport report;
    for (const auto& [verdict, reason] : found) {
      Findings findings;
      findings.fail(Check::kRepeats, verdict, reason);
      findings.conclude(report);
    }
    return report;
  };
  const ParityReport broken =
      report_after({{Verdict::kNondeterministic, "bits"}, {Verdict::kIntegrity, "launches"}});
  CHECK(broken.verdict == Verdict::kIntegrity);
  CHECK(broken.reason == "launches; bits");
  const ParityReport token =
      report_after({{Verdict::kFailToken, "id"}, {Verdict::kNondeterministic, "bits"}});
  CHECK(token.verdict == Verdict::kNondeterministic);  // chance explains a wrong id
  CHECK(token.reason == "bits; id");
  const ParityReport then =
      report_after({{Verdict::kNondeterministic, "bits"}, {Verdict::kFailToken, "id"}});
  CHECK((then.verdict == Verdict::kNondeterministic && then.reason == "bits; id"));
  CHECK(report_after({{Verdict::kFailSelf, "own"}, {Verdict::kNondeterministic, "bits"}}).verdict ==
        Verdict::kNondeterministic);
  // A difference between runs of two kinds explains no wrong id.
  Findings kinds;
  kinds.fail(Check::kSame, Verdict::kNondeterministic, "same");
  kinds.fail(Check::kDecided, Verdict::kFailToken, "id");
  ParityReport both;
  kinds.conclude(both);
  CHECK((both.verdict == Verdict::kFailToken && both.reason == "id; same"));
}

TEST_CASE("results of one check from several references: the worse one stands") {
  std::vector<CheckResult> checks;
  merge_check(checks, {.check = Check::kStrict,
                       .status = CheckStatus::kNotApplicable,
                       .detail = "no strict prompt"});
  merge_check(checks, {.check = Check::kRms, .value = 0.5, .limit = 1.25});
  merge_check(checks, {.check = Check::kStrict});
  merge_check(checks, {.check = Check::kRms, .value = 0.25, .limit = 1.25});
  REQUIRE(checks.size() == 2);
  CHECK(checks[0].check == Check::kRms);
  CHECK(*checks[0].value == 0.5);
  CHECK((checks[1].status == CheckStatus::kPassed && checks[1].detail.empty()));
  merge_check(checks, {.check = Check::kRms,
                       .status = CheckStatus::kFailed,
                       .value = 2,
                       .limit = 1.25,
                       .detail = "R_rms 2"});
  CHECK((checks[0].status == CheckStatus::kFailed && checks[0].detail == "R_rms 2"));
}

TEST_CASE("a forced run: calls of at most 64 steps, logits from one step on") {
  ReferencePrompt prompt;
  prompt.ids = {1, 2};
  prompt.steps.resize(130);
  for (ReferenceStep& s : prompt.steps) s.token = 5;
  const struct {
    int shown, end;
    std::string calls;  // first step + steps, L: with logits
  } cases[] = {{0, 0, ""},
               {0, 1, "0+1L "},
               {0, 64, "0+64L "},
               {0, 65, "0+64L 64+1L "},
               {3, 3, "0+3 "},
               {3, 10, "0+3 3+7L "},
               {64, 65, "0+64 64+1L "},
               {10, 3, "0+10 "},
               {65, 130, "0+64 64+1 65+64L 129+1L "}};
  for (const auto& [shown, end, calls] : cases) {
    for (const bool has_logits : {true, false}) {
      testing::FakeEngine engine({.unwritten_logits = true, .has_logits = has_logits});
      Findings findings;
      std::string found;
      forced_run(engine, prompt, shown, end, testing::kFakeVocab, findings,
                 [&](int first, const std::vector<int32_t>& ids, const std::vector<float>& logits) {
                   found += fmt::format("{}+{}{} ", first, ids.size(), logits.empty() ? "" : "L");
                   if (logits.empty()) return;
                   CHECK(logits.size() == ids.size() * testing::kFakeVocab);
                   CHECK(std::isnan(logits.back()));
                 });
      std::string wanted = calls;
      if (!has_logits) std::erase(wanted, 'L');
      CHECK(found == wanted);
    }
  }
}
