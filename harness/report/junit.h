// The report as JUnit XML, for CI systems: a suite for each case and engine, a test case for each
// prompt and each check of its parity, and one for its verdict.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/report/report.h"

namespace mkbench {

enum class JunitOutcome { kPassed, kFailure, kError, kSkipped };

struct JunitCase {
  std::string name;
  JunitOutcome outcome = JunitOutcome::kPassed;
  std::string type;                // of a failure or an error
  std::string message;             // one line
  std::string detail;              // more lines, or nothing
  std::optional<Verdict> verdict;  // of a case that says one
  std::string file;  // of the engine that a verdict is about; empty: the engine is no file
};

struct JunitSuite {
  std::string name;
  std::string seconds;                                          // empty: nothing was timed
  std::vector<std::pair<std::string, std::string>> properties;  // name, value
  std::vector<JunitCase> cases;

  int count(JunitOutcome outcome) const;
};

// The name of the test case in which a suite's verdict stands.
inline constexpr char kVerdictCase[] = "verdict";
// The test case of a verdict, with its first reason as the message and all as the detail.
JunitCase junit_verdict(const std::string& name, Verdict v,
                        const std::vector<std::string>& reasons);
// The whole file.
std::string render_suites(const std::vector<JunitSuite>& suites);

// `text` as it may stand inside an element or a double-quoted attribute. XML 1.0 has no form for
// most control characters, nor for bytes that are not UTF-8, so they become escapes like \x07.
std::string xml_escape(const std::string& text);

// The file of an engine as asked for, without ./: a path that ends in .py or .so; else empty.
std::string engine_file(const std::string& engine);

// The suites of render_junit().
std::vector<JunitSuite> report_suites(const Report& report);

// Wrong results are failures; an engine or a case that could not be judged (crash, hang, no usable
// reference) is an error; checks that do not apply and skipped engines are skipped. A suite has a
// time only if samples were timed.
std::string render_junit(const Report& report);

}  // namespace mkbench
