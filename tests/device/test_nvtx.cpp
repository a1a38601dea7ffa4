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
  for (std::string line; std::getline(file, line);) {
    REQUIRE(line.rfind("nvtx_program ", 0) == 0);
    lines.push_back(line.substr(line.find(' ') + 1));
  }
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

TEST_CASE("one domain, every name, each range closed") {
  const Lines lines = calls_at("block");
  CHECK(count_of(lines, "domain mkbench") == 1);
  CHECK(count_of(lines, "push mkbench load") == 1);
  for (const char* name : {"block", "engine", "prefill", "decode"}) {
    CHECK(count_of(lines, std::string("push mkbench ") + name) == 2);
  }
  CHECK(count_of(lines, "pop mkbench") == 12);
  CHECK(balanced(lines));
}

TEST_CASE("ranges nest as their scopes do") {
  const Lines lines = calls_at("block");
  const auto at = [&](const std::string& line) {
    return std::find(lines.begin(), lines.end(), line) - lines.begin();
  };
  CHECK(at("push mkbench block") < at("push mkbench engine"));
  CHECK(at("push mkbench engine") < at("push mkbench prefill"));
  CHECK(at("push mkbench prefill") < at("push mkbench decode"));
}

TEST_CASE("a label shows engine, depth and block, and engines are categories") {
  const Lines lines = calls_at("block");
  CHECK(count_of(lines, "category mkbench 1 ring") == 1);
  CHECK(count_of(lines, "category mkbench 2 ./mine-2.so") == 1);
  CHECK(count_of(lines, "push mkbench ring d=512 block 3, payload 3, category 1") == 1);
  CHECK(count_of(lines, "push mkbench ring d=512 block 4, payload 4, category 1") == 1);
  CHECK(count_of(lines, "push mkbench mine-2.so d=0 block 0, payload 0, category 2") == 1);
}

TEST_CASE("off means no call at all") { CHECK(calls_at("off").empty()); }
