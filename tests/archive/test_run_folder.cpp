// The folder that a run writes to.
#include <algorithm>
#include <filesystem>
#include <latch>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "harness/archive/run_folder.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"
#include "tests/support/micro_model.h"
#include "tests/support/thrown.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

// What each of eight runs gets that begin at once: a folder, or why it has none.
std::vector<std::string> begin_at_once(const std::string& asked) {
  constexpr int kRuns = 8;
  std::vector<std::string> made(kRuns);
  std::latch start(kRuns);
  std::vector<std::jthread> runs;
  for (std::string& one : made) {
    runs.emplace_back([&] {
      start.arrive_and_wait();
      try {
        one = make_output_folder(asked).string();
      } catch (const Error& error) {
        one = error.what();
      }
    });
  }
  runs.clear();
  return made;
}

TEST_CASE("of runs that begin at once each has a folder of its own, or is told that it has none") {
  const testing::TemporaryFolder temporary;
  const fs::path before = fs::current_path();
  fs::current_path(temporary.path());
  const std::vector<std::string> named = begin_at_once("");
  CHECK(std::set<std::string>(named.begin(), named.end()).size() == named.size());
  for (const std::string& name : named) {
    CHECK(name.starts_with("mkbench-report-20"));
    CHECK(fs::is_directory(name));
  }
  fs::create_directory("empty");
  for (const std::string asked : {"new/folder/", "empty"}) {
    const std::vector<std::string> got = begin_at_once(asked);
    CHECK(std::count(got.begin(), got.end(), asked) == 1);
    CHECK(std::count(got.begin(), got.end(),
                     "--out " + asked +
                         ": another run is writing to it; wait until that has "
                         "ended, or name another folder") == 7);
  }
  testing::write_file("file", "");
  fs::create_directories("full/of");
  const auto line = [](const std::string& asked) {
    return testing::error_line([&] { make_output_folder(asked); });
  };
  for (const std::string asked : {"file", "full"})
    CHECK_THAT(line(asked), ContainsText("--out " + asked + ": is there already and not an empty"));
  CHECK(line("file/in") == "--out file/in: Not a directory");
  fs::create_directory("killed");  // within its first report
  testing::write_file("killed/report.json.partial", "{");
  CHECK(make_output_folder("killed") == "killed");
  fs::current_path(before);
}

}  // namespace
}  // namespace mkbench
