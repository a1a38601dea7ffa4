// Every row of the input tables: generates a folder, runs load_probe on it under tight limits, and
// compares exit code and message.
#include <sys/wait.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/device/program_output.h"
#include "tests/support/catch2.h"
#include "tests/support/input_case.h"
#include "tests/support/micro_model.h"

namespace mkbench::testing {
namespace {

constexpr double kTimeLimitS = 60;  // a probe that hangs is killed

void check(const InputCase& input) {
  const TemporaryFolder folder;
  write_micro_model(folder.path());
  input.make(folder.path());
  std::vector<std::string> command = {MKBENCH_LOAD_PROBE, "--limited"};
  command.insert(command.end(), input.options.begin(), input.options.end());
  command.push_back(folder.path().string());
  const ProgramOutput output = program_output(command, {.seconds = kTimeLimitS});
  INFO(input.row << ", " << input.what << ": end " << output.end
                 << ", it said: " << output.text.substr(0, 2000));
  CHECK_FALSE(output.ended);
  REQUIRE(WIFEXITED(output.end));
  CHECK(WEXITSTATUS(output.end) == (input.named.empty() ? 0 : 2));
  CHECK(std::count(output.text.begin(), output.text.end(), '\n') == 1);
  CHECK(output.text.starts_with("loaded ") == input.named.empty());
  CHECK(output.text.size() < 1200);
  for (const std::string& named : input.named) {
    INFO("must name: " << named);
    CHECK(output.text.find(named) != std::string::npos);
  }
}

std::vector<InputCase> all_cases() {
  std::vector<InputCase> cases = container_cases();
  for (const auto& more : {checkpoint_cases(), config_cases()})
    cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

}  // namespace

TEST_CASE("the micro model itself loads under the limits") {
  check({"-", "unchanged", [](const std::filesystem::path&) {}, {}});
}

TEST_CASE("rows S1-S39: one safetensors file") {
  for (const InputCase& input : container_cases()) check(input);
}

TEST_CASE("rows S40-S47: a checkpoint") {
  for (const InputCase& input : checkpoint_cases()) check(input);
}

TEST_CASE("rows C1-C17: config.json") {
  for (const InputCase& input : config_cases()) check(input);
}

TEST_CASE("every row of the two tables has a case") {
  // Rows that no loader can judge, with the check that does.
  const std::map<std::string, std::string> elsewhere = {
      {"C12", "an engine compares the shape with what it was compiled for"},
      {"C14", "the harness compares the wanted context with max_positions and the free memory"}};
  std::set<std::string> wanted, seen;
  for (int i = 1; i <= 47; ++i) wanted.insert("S" + std::to_string(i));
  for (int i = 1; i <= 17; ++i) wanted.insert("C" + std::to_string(i));
  for (const InputCase& input : all_cases()) seen.insert(input.row);
  for (const std::string& row : wanted) {
    INFO(row);
    CHECK(seen.contains(row) != elsewhere.contains(row));
  }
  for (const std::string& row : seen) {
    INFO(row);
    CHECK(wanted.contains(row));
  }
}

}  // namespace mkbench::testing
