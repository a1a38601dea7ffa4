// ncu is run as a program, and what it cannot do is told: a script stands in its place.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "harness/device/ncu.h"
#include "tests/support/catch2.h"
#include "tests/support/micro_model.h"
#include "tests/support/ncu_log.h"

using namespace mkbench;
using namespace mkbench::testing;

namespace {

// A program in place of ncu: writes `log` where --log-file says and ends with `status`.
std::string fake_ncu(const TemporaryFolder& folder, const std::string& log, int status = 0,
                     const std::string& first = "") {
  write_file(folder.path() / "log", log);
  const std::filesystem::path file = folder.path() / "ncu";
  write_file(file, "#!/bin/sh\n" + first + "\nprintf '%s\\n' \"$@\" > '" +
                       (folder.path() / "arguments").string() +
                       "'\nwhile [ \"$1\" != --log-file ]; do shift; done\ncp '" +
                       (folder.path() / "log").string() + "' \"$2\"\nexit " +
                       std::to_string(status) + "\n");
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  return file.string();
}

}  // namespace

TEST_CASE("ncu is run around the program, and its failures are told") {
  const TemporaryFolder folder;
  const std::vector<std::string> program = {"/x/mkbench-all", "audit", "--model", "a b"};
  ByteCounts counts = count_with_ncu(fake_ncu(folder, ncu_log({{"1191000000", "0"}})), program, 20);
  CHECK(counts.problem == "");
  CHECK(counts.dram_bytes == 1191000000);
  std::ifstream in(folder.path() / "arguments");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  REQUIRE(lines.size() > 4);
  CHECK(std::vector<std::string>(lines.end() - 4, lines.end()) == program);
  CHECK(std::count(lines.begin(), lines.end(), "mkbench@decode/") == 1);

  counts = count_with_ncu(fake_ncu(folder, "==ERROR== ERR_NVGPUCTRPERM - no permission\n", 1),
                          program, 20);
  CHECK(holds(counts.problem, "ncu: ERR_NVGPUCTRPERM - no permission; "));
  CHECK(holds(counts.problem, "exit status 1"));
  counts = count_with_ncu(fake_ncu(folder, ncu_log({{"7", "0"}}), 9), program, 20);
  CHECK(holds(counts.problem, "exit status 9"));
  CHECK(counts.dram_bytes == 0);
  counts = count_with_ncu(fake_ncu(folder, "Segmentation fault"), program, 20);
  CHECK(holds(counts.problem, "no table of kernels"));
  counts = count_with_ncu(fake_ncu(folder, "", 0, "sleep 60"), program, 0.5);
  CHECK(holds(counts.problem, "ncu: it did not end in 0.5 s"));
  counts = count_with_ncu((folder.path() / "none").string(), program, 20);
  CHECK(holds(counts.problem, "exit status 127"));
}
