// The report as JUnit XML, for CI systems: a suite for each case and engine, a test case for each
// prompt and each check of its parity, and one for its verdict.
#pragma once

#include <string>

#include "harness/report/report.h"

namespace mkbench {

// `text` as it may stand inside an element or a double-quoted attribute. XML 1.0 has no form for
// most control characters, nor for bytes that are not UTF-8, so they become escapes like \x07.
std::string xml_escape(const std::string& text);

// Wrong results are failures; an engine or a case that could not be judged (crash, hang, no usable
// reference) is an error; checks that do not apply and skipped engines are skipped. A suite has a
// time only where samples were timed.
std::string render_junit(const Report& report);

}  // namespace mkbench
