// The parity table as it is read: quoted texts, marks, closing line, and how much of it is shown.
#include <algorithm>
#include <string>

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
  const std::string table = render_parity_table(failed_parity());
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

TEST_CASE("the table of a success is short unless it is asked for; that of a failure is whole") {
  ParityReport long_one = testing::example_parity();
  for (int i = 0; i < 60; ++i) {
    long_one.rows.push_back(long_one.rows[i < 50 ? 0 : 4]);
    long_one.rows.back().position = 100 + i;
  }
  const std::string brief = render_parity_table(long_one);
  CHECK(rows_in(brief) == 4 + 6);  // the first rows, and some of those that are not exact
  CHECK_THAT(brief, ContainsText("10 of 66 rows; --parity-table prints all"));
  CHECK(rows_in(render_parity_table(long_one, {.whole_tables = true})) == 66);
  long_one.verdict = Verdict::kFailToken;
  CHECK(rows_in(render_parity_table(long_one)) == 66);

  const CaseReport c = testing::example_case(0);
  const std::string tables = render_parity_tables(c, {});
  CHECK_THAT(tables, ContainsText("Parity table of megakernel (plain)") &&
                         !ContainsText("Parity table of eager"));
  CHECK_THAT(render_parity_tables(c, {.whole_tables = true}),
             ContainsText("Parity table of eager"));
}
