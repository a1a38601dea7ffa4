// NVTX ranges as a profiler sees them: a program with ranges runs under an injected library that
// writes down every call.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/catch2.h"

namespace {

using Lines = std::vector<std::string>;

// The calls that the injected library saw while the program ran at `level`.
Lines calls_at(const std::string& level) {
  const std::filesystem::path log =
      std::filesystem::temp_directory_path() / ("mkbench_nvtx_" + std::to_string(getpid()) + level);
  std::filesystem::remove(log);
  const std::string command = "NVTX_INJECTION64_PATH='" MKBENCH_NVTX_INJECTION
                              "' MKBENCH_NVTX_LOG='" +
                              log.string() + "' '" MKBENCH_NVTX_PROGRAM "' " + level;
  REQUIRE(std::system(command.c_str()) == 0);
  std::ifstream file(log);
  Lines lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  file.close();
  std::filesystem::remove(log);
  return lines;
}

long count_of(const Lines& lines, const std::string& wanted) {
  return std::count(lines.begin(), lines.end(), wanted);
}

// Pushes and pops of a thread nest: never more pops than pushes, and none left open.
bool balanced(const Lines& lines) {
  int open = 0;
  for (const std::string& line : lines) {
    if (line.rfind("push ", 0) == 0) ++open;
    if (line.rfind("pop ", 0) == 0 && --open < 0) return false;
  }
  return open == 0;
}

}  // namespace

TEST_CASE("block level: one domain, every name, no tokens") {
  const Lines lines = calls_at("block");
  CHECK(count_of(lines, "domain mkbench") == 1);
  CHECK(count_of(lines, "push mkbench load -") == 1);
  CHECK(count_of(lines, "push mkbench upload -") == 1);
  CHECK(count_of(lines, "push mkbench prefill -") == 2);
  CHECK(count_of(lines, "push mkbench decode -") == 2);
  CHECK(count_of(lines, "push mkbench engine -") == 2);
  CHECK(count_of(lines, "push mkbench block 0") == 1);
  CHECK(count_of(lines, "push mkbench block 1") == 1);
  CHECK(count_of(lines, "push mkbench token 0") == 0);
  CHECK(count_of(lines, "pop mkbench") == 10);
  CHECK(balanced(lines));
}

TEST_CASE("ranges nest as their scopes do") {
  const Lines lines = calls_at("block");
  const auto at = [&](const std::string& line) {
    return std::find(lines.begin(), lines.end(), line) - lines.begin();
  };
  CHECK(at("push mkbench block 0") < at("push mkbench engine -"));
  CHECK(at("push mkbench engine -") < at("push mkbench prefill -"));
  CHECK(at("push mkbench prefill -") < at("push mkbench decode -"));
  CHECK(at("push mkbench decode -") < at("push mkbench block 1"));
}

TEST_CASE("token level adds one range a token") {
  const Lines lines = calls_at("token");
  for (const char* payload : {"0", "1", "2"}) {
    CHECK(count_of(lines, std::string("push mkbench token ") + payload) == 2);
  }
  CHECK(balanced(lines));
}

TEST_CASE("off means no call at all") { CHECK(calls_at("off").empty()); }
