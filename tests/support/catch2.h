// Catch2 v2 (Debian 12) and v3 (Ubuntu 24.04) through one header. Tests include this header and
// none of Catch2's.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#define MKBENCH_CATCH2_MAJOR 3
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#define MKBENCH_CATCH2_MAJOR 2
#endif

#include <cstdio>
#include <string>

namespace mkbench {

// Matches text that holds `part`; v2 and v3 have different names for it.
inline auto ContainsText(const std::string& part) {
#if MKBENCH_CATCH2_MAJOR >= 3
  return Catch::Matchers::ContainsSubstring(part);
#else
  return Catch::Matchers::Contains(part);
#endif
}

inline bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace mkbench

namespace mkbench::testing {

// Set by skip_test(); the common main turns it into exit code 77 when nothing failed.
bool& skipped();

}  // namespace mkbench::testing

// Ends the running test case as skipped (Catch2 v2 has no SKIP), with the reason on stderr.
#define SKIP_TEST(reason)                                               \
  do {                                                                  \
    std::fprintf(stderr, "skipped: %s\n", std::string(reason).c_str()); \
    mkbench::testing::skipped() = true;                                 \
    return;                                                             \
  } while (0)
