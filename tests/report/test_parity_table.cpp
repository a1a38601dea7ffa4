// The parity table as it is read: quoted texts, marks, closing line, and how much of it is shown.
#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "harness/judge/conclude.h"
#include "harness/report/junit.h"
#include "harness/report/render.h"
#include "tests/support/catch2.h"
#include "tests/support/example_report.h"

using namespace mkbench;

namespace {

size_t rows_in(const std::string& table) {
  size_t bars = 0;
  for (size_t at = table.find("\n|"); at != std::string::npos; at = table.find("\n|", at + 1))
    ++bars;
  return bars - 1;  // the first row is the rule
}

ParityReport failed_parity() {
  ParityReport p = testing::example_parity();
  p.verdict = Verdict::kFailToken;
  p.rows[5].verdict = StepVerdict::kWrong;
  p.rows[5].engine_id = 9;
  p.rows[5].engine_text.clear();
  p.exact = 4;
  p.wrong = 1;
  return p;
}

}  // namespace

TEST_CASE("texts are quoted, so that a space is seen, and an id without a text shows none") {
  const std::string table = render_parity_table(failed_parity(), {.whole_tables = true});
  CHECK_THAT(table, ContainsText("| pos | ref_id | mk_id | ref_text | mk_text") &&
                        ContainsText("\" w0\"") && ContainsText("\"\xc3\xa9\\n\"") &&
                        ContainsText("|     9 | \" w5\"    |         |"));
  ParityReport quote = testing::example_parity();
  quote.rows[0].reference_text = "say \"x\"";
  CHECK_THAT(render_parity_table(quote), ContainsText("\"say \\\"x\\\"\""));
}

TEST_CASE("marks and the closing line are words where the terminal is not UTF-8") {
  const ParityReport passed = testing::example_parity();
  const RenderStyle words{.utf8 = false};
  CHECK_THAT(render_parity_table(passed),
             ContainsText("\u2713") && ContainsText("\u2248") &&
                 ContainsText("\nParity: TRUE \u2713 5 of 6 tokens match, 1 near tie \u2248\n"));
  const std::string plain = render_parity_table(passed, words);
  CHECK_THAT(plain, ContainsText("EXACT") && ContainsText("TIE") &&
                        ContainsText("\nParity: TRUE 5 of 6 tokens match, 1 near tie\n"));
  CHECK(std::none_of(plain.begin(), plain.end(), [](char c) { return c == '\x93'; }));
  CHECK_THAT(render_parity_table(failed_parity()),
             ContainsText("\u2717") &&
                 ContainsText("\nParity: FALSE \u2717 first at prompt capital, position 6\n"));
  CHECK_THAT(render_parity_table(failed_parity(), words),
             ContainsText("WRONG") &&
                 ContainsText("\nParity: FALSE first at prompt capital, position 6\n"));
}

TEST_CASE("the closing line of a failure without a wrong token, and of a budget that ended") {
  ParityReport p = testing::example_parity();
  p.verdict = Verdict::kFailFidelity;
  p.checks.front().status = CheckStatus::kFailed;
  CHECK_THAT(render_parity_table(p),
             ContainsText("Parity: FALSE \u2717 5 of 6 tokens match; failed checks: r_rms\n"));
  p.verdict = Verdict::kIncomplete;
  CHECK_THAT(render_parity_table(p),
             ContainsText("Parity: INCOMPLETE, 5 of 6 tokens match so far"));
}

TEST_CASE("tables are short unless they are asked for whole") {
  ParityReport long_one = testing::example_parity();
  for (int i = 0; i < 60; ++i) {
    long_one.rows.push_back(long_one.rows[i < 50 ? 0 : 4]);
    long_one.rows.back().position = 100 + i;
  }
  const std::string brief = render_parity_table(long_one);
  CHECK(rows_in(brief) == 4 + 6);  // the first rows, and some of those that are not exact
  CHECK_THAT(brief,
             ContainsText("10 of 66 rows; --parity-table prints all, report.json has them\n"));
  CHECK(rows_in(render_parity_table(long_one, {.whole_tables = true})) == 66);
  // Four rows before the first wrong one, that row, and five behind it.
  for (const auto& [wrong, first, rows] :
       {std::tuple{30, 26, 10}, {3, 0, 10}, {0, 0, 10}, {62, 58, 8}, {65, 61, 5}}) {
    ParityReport failed = long_one;
    failed.verdict = Verdict::kFailToken;
    failed.rows[static_cast<size_t>(wrong)].verdict = StepVerdict::kWrong;
    failed.rows.back().verdict = StepVerdict::kWrong;
    for (size_t i = 0; i < failed.rows.size(); ++i)
      failed.rows[i].position = 1000 + static_cast<int>(i);
    const std::string window = render_parity_table(failed);
    INFO(window);
    CHECK(rows_in(window) == static_cast<size_t>(rows));
    CHECK_THAT(window, ContainsText(" " + std::to_string(1000 + first) + " |") &&
                           ContainsText(" " + std::to_string(999 + first + rows) + " |"));
    CHECK(rows_in(render_parity_table(failed, {.whole_tables = true})) == 66);
  }

  const CaseReport c = testing::example_case(0);
  const std::string tables = render_parity_tables(c, {});
  CHECK_THAT(tables, ContainsText("Parity table of megakernel (plain)") &&
                         !ContainsText("Parity table of eager"));
  CHECK_THAT(render_parity_tables(c, {.whole_tables = true}),
             ContainsText("Parity table of eager"));
}

TEST_CASE("the line of parity says how far off and how wrong") {
  EngineReport e;
  e.name = "x";
  e.parity = testing::example_parity();
  CHECK_THAT(render_parity_line(e), ContainsText("near-tie set: 2 of 3 exact, 1 tie, R_rms"));
  ParityReport one = testing::example_parity();  // of --only, a strict prompt's step perhaps
  one.rows.resize(1);
  one.rows[0].set = "only";
  one.strict_steps = one.strict_matched = one.ties = 0;
  one.steps = one.exact = 1;
  EngineReport step = e;
  step.parity = one;
  CHECK_THAT(render_parity_line(step), ContainsText("parity of x: tokens: 1 of 1 exact, R_rms"));
  e.parity->rows.clear();  // judged in an earlier case, which has the table
  CHECK_THAT(render_parity_line(e), ContainsText("near-tie set: 2 of 3 exact, 1 tie, R_rms"));
  e.parity->r_rms = 2.5;
  e.parity->wrong = 2;
  e.parity->checks[1].value = 3.5;
  CHECK_THAT(render_parity_line(e), ContainsText("1 tie, 2 WRONG, R_rms 2.50 > 1.5, "
                                                 "R_step 3.50 <= 7.8, R_inf 0.50 <= 2.5"));
}

TEST_CASE("a failing report is brief: ten rows, the reason once, and the facts before the place") {
  Report r = testing::example_report();
  r.cases.resize(1);
  r.cases[0].n_gen = 0;
  EngineReport& e = r.cases[0].engines[1];
  ParityReport& parity = *e.parity;
  for (int i = 0; i < 2000; ++i) parity.rows.push_back(parity.rows[i % 2 == 0 ? 0 : 4]);
  parity.rows[4].verdict = StepVerdict::kWrong;
  e.verdict = parity.verdict = Verdict::kFailToken;
  parity.reason =
      "2 of 2006 tokens wrong, first prompt 'capital' position 5" + std::string(700, 'x');
  parity.facts = {"right with 1 KV row", "two\nlines"};
  parity.localised = "layer 3";
  e.reasons = {parity.reason};
  aggregate(r.cases[0], 0.95, 1, false);
  conclude(r);
  const std::string text = render_markdown(r);
  CHECK(text.size() < 10'000);
  const size_t reason = text.find("\n  - reason: " + parity.reason);
  REQUIRE(reason != std::string::npos);
  CHECK(text.find("2 of 2006", reason + 20) == std::string::npos);
  const size_t fact = text.find("\n  - fact: right with 1 KV row\n  - fact: two\\nlines\n");
  CHECK((reason < fact && fact < text.find("\n  - where: layer 3")));
  CHECK_THAT(text, ContainsText("- verdict: **FAIL_TOKEN**\n") &&
                       ContainsText("10 of 2,006 rows; --parity-table prints all"));
  // One bug says what is wrong; where several fit, the place tells more.
  for (const size_t fitting : {1, 2}) {
    parity.diagnosis = {.text = "no q_norm", .names = std::vector<std::string>(fitting, "x")};
    const std::string page = render_markdown(r), junit = render_junit(r);
    CHECK_THAT(page, ContainsText("\n  - bug: no q_norm\n"));
    CHECK((page.find("where: layer 3") != std::string::npos) == (fitting == 2));
    CHECK((junit.find("layer 3") != std::string::npos) == (fitting == 2));
  }
  // Where the case says more than parity does, it stands below the verdict.
  e.reasons = {"the host died"};
  r.cases[0].reasons.clear();
  conclude(r);
  CHECK_THAT(render_markdown(r),
             ContainsText("- verdict: **FAIL_TOKEN**\n  - megakernel: FAIL_TOKEN: "
                          "the host died\n"));
}
