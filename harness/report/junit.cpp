#include "harness/report/junit.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "harness/report/render.h"
#include "references/base/json_strict.h"
#include "references/base/one_line.h"

namespace mkbench {
namespace {

// A CI console shows the first lines only; the parity table of the report has every step.
constexpr int kDifferencesShown = 10;

using Outcome = JunitOutcome;
using TestCase = JunitCase;
using Suite = JunitSuite;

// A wrong result is a failure of the engine; whatever kept the engine from being judged is an
// error.
Outcome outcome_of(Verdict v) {
  switch (exit_code(v)) {
    case 0:
      return v == Verdict::kSkipped ? Outcome::kSkipped : Outcome::kPassed;
    case 3:
    case 4:
    case 5:
    case 8:
      return Outcome::kFailure;
    default:
      return Outcome::kError;
  }
}

// In a strict prompt every row that is not EXACT is wrong; in other sets only WRONG rows are.
bool is_wrong(const ParityRow& row) {
  return row.verdict == StepVerdict::kWrong ||
         (row.set == "strict" && row.verdict != StepVerdict::kExact);
}

std::string row_text(const ParityRow& row) {
  return fmt::format("position {}: found {}, wanted {} ({}, margin {:.4g})", row.position,
                     row.engine_id, row.reference_id, step_verdict_name(row.verdict), row.margin);
}

// The test case of one prompt, whose rows are [begin, end).
TestCase prompt_case(const std::vector<ParityRow>& rows, size_t begin, size_t end) {
  TestCase test;
  test.name = fmt::format("prompt {} ({})", rows[begin].prompt, rows[begin].set);
  int wrong = 0;
  std::string first;
  for (size_t i = begin; i < end; ++i) {
    if (!is_wrong(rows[i])) continue;
    if (++wrong == 1) first = row_text(rows[i]);
    if (wrong <= kDifferencesShown) test.detail += row_text(rows[i]) + "\n";
  }
  if (wrong == 0) return test;
  if (wrong > kDifferencesShown)
    test.detail += fmt::format("and {} more\n", wrong - kDifferencesShown);
  test.outcome = Outcome::kFailure;
  test.type = "tokens";
  test.message = fmt::format("{} of {} tokens differ; first at {}", wrong, end - begin, first);
  return test;
}

void add_prompts(Suite& suite, const std::vector<ParityRow>& rows) {
  const auto same = [&](size_t a, size_t b) {
    return rows[a].prompt == rows[b].prompt && rows[a].set == rows[b].set;
  };
  for (size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    for (end = begin + 1; end < rows.size() && same(begin, end);) ++end;
    suite.cases.push_back(prompt_case(rows, begin, end));
  }
}

// The test case "check r_rms": its message holds value and limit if the check measures a number; a
// check that does not apply is skipped.
TestCase check_case(const CheckResult& result) {
  TestCase test;
  test.name = fmt::format("check {}", check_name(result.check));
  if (result.status == CheckStatus::kPassed) return test;
  const bool failed = result.status == CheckStatus::kFailed;
  test.outcome = failed ? Outcome::kFailure : Outcome::kSkipped;
  test.type = check_name(result.check);
  test.message = result.detail;
  if (failed && result.value && result.limit)
    test.message += fmt::format("{}found {:.6g}, limit {:.6g}", result.detail.empty() ? "" : ": ",
                                *result.value, *result.limit);
  // The promise explains the name of the check.
  test.detail = std::string(kChecks[static_cast<size_t>(result.check)].promise);
  return test;
}

// For a parity report without the check of timed ids, which runs after parity was judged.
TestCase receipts_case(const EngineReport& e) {
  CheckResult result;
  result.check = Check::kReceipts;
  if (e.receipts_wrong > 0) {
    result.status = CheckStatus::kFailed;
    result.detail = fmt::format("{} of {} timed ids differ", e.receipts_wrong, e.receipts_checked);
  }
  return check_case(result);
}

Suite engine_suite(const CaseReport& c, const EngineReport& e) {
  Suite suite;
  suite.name = fmt::format("{} / {}", c.name, e.name);
  if (e.resolved_name != e.name && !e.resolved_name.empty())
    suite.name += fmt::format(" ({})", e.resolved_name);
  double ms = 0;
  for (const Sample& s : e.samples) ms += s.times.host_ms;
  if (ms > 0) suite.seconds = fmt::format("{:.6f}", ms / 1000);
  if (c.format_cost) suite.properties.emplace_back("format_cost", cost_text(*c.format_cost));
  if (e.parity) {
    suite.properties.emplace_back("precision", e.parity->precision);
    if (!e.parity->coverage.empty()) suite.properties.emplace_back("coverage", e.parity->coverage);
    add_prompts(suite, e.parity->rows);
    for (const CheckResult& result : e.parity->checks) suite.cases.push_back(check_case(result));
  }
  if (e.receipts_checked > 0 && !(e.parity && find_check(*e.parity, Check::kReceipts)))
    suite.cases.push_back(receipts_case(e));
  TestCase verdict = junit_verdict(kVerdictCase, e.verdict, e.reasons);
  verdict.file = engine_file(e.name);
  if (verdict.outcome == Outcome::kFailure && e.parity) {
    for (const std::string& line : {where_text(*e.parity), e.parity->diagnosis.text}) {
      if (!line.empty()) verdict.detail += (verdict.detail.empty() ? "" : "\n") + line;
    }
  }
  suite.cases.push_back(std::move(verdict));
  return suite;
}

Suite verdict_suite(const std::string& name, Verdict v, const std::vector<std::string>& reasons) {
  Suite suite;
  suite.name = name;
  suite.cases.push_back(junit_verdict(kVerdictCase, v, reasons));
  return suite;
}

const char* element_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kFailure:
      return "failure";
    case Outcome::kError:
      return "error";
    default:
      return "skipped";
  }
}

std::string case_text(const TestCase& test, const std::string& suite) {
  const std::string head = fmt::format("    <testcase classname=\"{}\" name=\"{}\"",
                                       xml_escape(suite), xml_escape(test.name));
  if (test.outcome == Outcome::kPassed) return head + "/>\n";
  const char* element = element_of(test.outcome);
  std::string text = fmt::format("{}>\n      <{} message=\"{}\"", head, element,
                                 xml_escape(one_line(test.message, 600)));
  if (test.outcome != Outcome::kSkipped) text += fmt::format(" type=\"{}\"", xml_escape(test.type));
  text +=
      test.detail.empty() ? "/>\n" : fmt::format(">{}</{}>\n", xml_escape(test.detail), element);
  return text + "    </testcase>\n";
}

std::string properties_text(const Suite& suite) {
  if (suite.properties.empty()) return "";
  std::string text = "    <properties>\n";
  for (const auto& [name, value] : suite.properties) {
    text += fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", name, xml_escape(value));
  }
  return text + "    </properties>\n";
}

std::string counts_text(int tests, int failures, int errors, int skipped) {
  return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\"", tests, failures,
                     errors, skipped);
}

// Number of bytes of the first character of `text`; 0 if XML 1.0 does not allow the character.
size_t xml_character(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return (first < 0x20 && first != '\n') || first == 0x7f ? 0 : 1;
  for (size_t size = 2; size <= std::min<size_t>(4, text.size()); ++size) {
    const std::string_view sequence = text.substr(0, size);
    if (find_invalid_utf8(sequence) != std::string_view::npos) continue;
    return sequence == "\xef\xbf\xbe" || sequence == "\xef\xbf\xbf" ? 0 : size;
  }
  return 0;
}

}  // namespace

std::string xml_escape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t size = xml_character(std::string_view(text).substr(i));
    if (size == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i++]));
      continue;
    }
    const std::string_view found = std::string_view(text).substr(i, size);
    out += found == "&"    ? "&amp;"
           : found == "<"  ? "&lt;"
           : found == ">"  ? "&gt;"
           : found == "\"" ? "&quot;"
           : found == "\n" ? "&#10;"
                           : found;
    i += size;
  }
  return out;
}

int JunitSuite::count(JunitOutcome outcome) const {
  return static_cast<int>(std::count_if(cases.begin(), cases.end(),
                                        [&](const JunitCase& c) { return c.outcome == outcome; }));
}

JunitCase junit_verdict(const std::string& name, Verdict v,
                        const std::vector<std::string>& reasons) {
  TestCase test;
  test.name = name;
  test.outcome = outcome_of(v);
  test.type = verdict_name(v);
  test.verdict = v;
  if (test.outcome == Outcome::kPassed) return test;
  test.message = test.type;
  if (!reasons.empty()) test.message += ": " + reasons.front();
  if (reasons.size() > 1) test.detail = fmt::format("{}", fmt::join(reasons, "\n"));
  return test;
}

std::string engine_file(const std::string& engine) {
  if (!engine.ends_with(".py") && !engine.ends_with(".so")) return "";
  return engine.starts_with("./") ? engine.substr(2) : engine;
}

// A failure of a whole case (a model that cannot be loaded) or of the whole run (Ctrl-C) is the
// result of no engine, so it gets a suite of its own.
std::vector<JunitSuite> report_suites(const Report& report) {
  std::vector<Suite> suites;
  bool report_told = false;
  for (const CaseReport& c : report.cases) {
    bool case_told = false;
    for (const EngineReport& e : c.engines) {
      suites.push_back(engine_suite(c, e));
      case_told = case_told || e.verdict == c.verdict;
    }
    if (!case_told) suites.push_back(verdict_suite(c.name, c.verdict, c.reasons));
    report_told = report_told || c.verdict == report.verdict;
  }
  if (!report_told) suites.push_back(verdict_suite("mkbench", report.verdict, report.reasons));
  return suites;
}

std::string render_junit(const Report& report) { return render_suites(report_suites(report)); }

std::string render_suites(const std::vector<JunitSuite>& suites) {
  std::string text;
  int tests = 0, failures = 0, errors = 0, skipped = 0;
  for (const Suite& suite : suites) {
    const int failed = suite.count(Outcome::kFailure), broken = suite.count(Outcome::kError);
    const int left_out = suite.count(Outcome::kSkipped), all = static_cast<int>(suite.cases.size());
    tests += all;
    failures += failed;
    errors += broken;
    skipped += left_out;
    text += fmt::format("  <testsuite name=\"{}\" {}{}>\n", xml_escape(suite.name),
                        counts_text(all, failed, broken, left_out),
                        suite.seconds.empty() ? "" : fmt::format(" time=\"{}\"", suite.seconds));
    text += properties_text(suite);
    for (const TestCase& test : suite.cases) text += case_text(test, suite.name);
    text += "  </testsuite>\n";
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"mkbench\" {}>\n{}"
      "</testsuites>\n",
      counts_text(tests, failures, errors, skipped), text);
}

}  // namespace mkbench
