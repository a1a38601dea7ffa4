// The three figures of a launch, from the page that Nsight Compute prints, and what it cannot give.
#include <algorithm>

#include "harness/device/nsight.h"
#include "harness/measure/byte_counts.h"
#include "harness/measure/kernel_figures.h"
#include "harness/measure/ncu_table.h"
#include "harness/measure/range_label.h"
#include "harness/measure/telemetry.h"
#include "tests/support/catch2.h"
#include "tests/support/ncu_page.h"

using namespace mkbench;
using namespace mkbench::testing;

namespace {

std::vector<NcuMetric> with(const std::string& name, const std::string& unit,
                            const std::string& value) {
  std::vector<NcuMetric> metrics = made_up_metrics();
  const auto found = std::find_if(metrics.begin(), metrics.end(),
                                  [&](const NcuMetric& m) { return m.name == name; });
  REQUIRE(found != metrics.end());
  *found = {name, unit, value};
  return metrics;
}

std::vector<NcuMetric> lacking(const std::string& part) {
  std::vector<NcuMetric> metrics = made_up_metrics();
  std::erase_if(metrics, [&](const NcuMetric& m) { return holds(m.name, part); });
  return metrics;
}

std::string problem_of(const std::vector<NcuMetric>& metrics) {
  return parse_kernel_figures(ncu_page(metrics)).problem;
}

bool has_in_order(const std::vector<std::string>& words, const std::vector<std::string>& wanted) {
  return std::search(words.begin(), words.end(), wanted.begin(), wanted.end()) != words.end();
}

}  // namespace

TEST_CASE("three figures of one launch") {
  const KernelFigures figures = parse_kernel_figures(ncu_page(made_up_metrics()));
  REQUIRE(figures.problem == "");
  CHECK(figures.kernel == "ring_decode(Params, int)");
  CHECK(figures.dram_bytes == 19.2e9);
  CHECK(figures.gb_per_s == Approx(2400));
  CHECK(figures.peak_percent == Approx(71.6));
  REQUIRE(figures.stalls.size() == 3);
  CHECK(figures.stalls[0].reason == "long_scoreboard");
  CHECK(figures.stalls[0].share == Approx(0.6));  // of 2 + 6 + 1 + 1
  CHECK(figures.stalls[1].reason == "barrier");

  const std::vector<std::string> lines =
      figure_lines(figures, {.tokens = 16, .bytes_token = 1.25e9, .pin_gb_per_s = 3200});
  REQUIRE(lines.size() == 3);
  CHECK(
      lines[0] ==
      "DRAM bytes: 1.2 GB a token, 0.960 of the 1.25 GB of weights and KV rows that it must read");
  CHECK(lines[1] ==
        "DRAM throughput: 2400 GB/s over the launch, 75.0 % of the pins' 3200; ncu: 71.6 % of its "
        "peak");
  CHECK(lines[2] == "top stall: long_scoreboard, 60 % of the warps' cycles; then barrier, 20 %");
}

TEST_CASE("what is not known is not said") {
  KernelFigures figures = parse_kernel_figures(ncu_page(lacking("gpu__dram_throughput")));
  CHECK(figures.problem == "");
  std::vector<std::string> lines = figure_lines(figures, {});
  CHECK(holds(lines[0], "19.2 GB in this launch, which is one of several"));
  CHECK(lines[1] == "DRAM throughput: 2400 GB/s over the launch");
  figures = parse_kernel_figures(ncu_page(lacking("issue_stalled")));
  CHECK(figures.problem == "");
  CHECK(figure_lines(figures, {})[2] == "top stall: ncu gave none");
}

TEST_CASE("a page without the figures names what it lacks") {
  CHECK(problem_of(lacking("dram__bytes_read")) ==
        "ncu: its table has no column dram__bytes_read.sum");
  CHECK(problem_of(lacking("time_duration")) ==
        "ncu: its table has no column gpu__time_duration.sum");
  CHECK(problem_of(with("dram__bytes_read.sum", "Gbyte", "1")) ==
        "ncu: dram__bytes_read.sum is in 'Gbyte', wanted 'byte'");
  CHECK(problem_of(with("gpu__time_duration.sum", "msecond", "8")) ==
        "ncu: gpu__time_duration.sum is in 'msecond', wanted 'ns'");
  CHECK(problem_of(with("gpu__time_duration.sum", "ns", "n/a")) ==
        "ncu: gpu__time_duration.sum is 'n/a', wanted a number");
  CHECK(problem_of(with("gpu__time_duration.sum", "ns", "0")) ==
        "ncu: gpu__time_duration.sum is 0, wanted more");
  CHECK(problem_of(with("gpu__time_duration.sum", "ns", "1")) == "");
  CHECK(parse_kernel_figures(ncu_page(made_up_metrics(), 2)).problem ==
        "ncu: its table has 2 launches, wanted 1");
  CHECK(holds(parse_kernel_figures("").problem, "no table of kernels"));
  CHECK(parse_kernel_figures("==ERROR== Cannot open file\n").problem == "ncu: Cannot open file");
}

TEST_CASE("counts at 0.97 and at 1.05 of the bytes are all read, with L2's share or without") {
  struct Row {
    double dram, hits;
    int tokens;
    CountsSay say;
  };
  for (const Row& row : {Row{97, 0, 2, CountsSay::kAllRead},
                         {96, 0, 2, CountsSay::kNotAllRead},
                         {96, 9, 2, CountsSay::kNothing},
                         {95, 1, 2, CountsSay::kNotAllRead},
                         {96, 1, 2, CountsSay::kNothing},
                         {96, 9, 1, CountsSay::kNotAllRead},
                         {90, 9, 2, CountsSay::kNotAllRead},
                         {90, 9, 3, CountsSay::kNothing},
                         {105, 0, 2, CountsSay::kAllRead},
                         {106, 0, 2, CountsSay::kNothing}}) {
    CAPTURE(row.dram, row.hits, row.tokens);
    const CountsJudged judged =
        judge_counts({.dram_bytes = row.dram, .l2_hit_bytes = row.hits, .kernels = row.tokens}, 100,
                     row.tokens, 4);
    CHECK(judged.say == row.say);
    CHECK(holds(judged.text, row.tokens == 1 ? " to 1 kernel: " : " kernels: "));
    CHECK(holds(judged.text, row.tokens == 1 ? "that 1 token must" : " tokens must"));
  }
}

TEST_CASE("a clock under 0.97 of the median is slow, and throttling says more") {
  std::vector<Telemetry> parts(5);
  for (size_t i = 1; i < parts.size(); ++i)
    parts[i].sm_clock_mhz = std::vector{0, 1000, 100, 400, 200}[i];
  const auto median = [&](size_t count) {
    std::vector<const Telemetry*> some;
    for (size_t i = 0; i < count; ++i) some.push_back(&parts[i]);
    return median_sm_clock(some);
  };
  CHECK_FALSE(median(1));  // none has a clock
  CHECK((median(4) == 400 && median(5) == 300));
  CHECK(
      (condition_doubt(parts[2], 100) == "" && condition_doubt(parts[2], 104) == kSlowClockReason));
  CHECK((condition_doubt(parts[2], {}) == "" && condition_doubt(parts[0], 100) == ""));
  parts[2].sm_clock_mhz = 97;
  CHECK(condition_doubt(parts[2], 100) == "");
  parts[2].throttled = "thermal";
  CHECK(condition_doubt(parts[2], 100) == "thermal");
}

TEST_CASE("quotes inside a cell do not end it") {
  const NcuTable table =
      read_ncu_table("\"ID\",\"a\",\"b\"\n\"\",\"\",\"x\"\n\"0\",\"1  \"\"m:r:\"\" \",\"5\"\n");
  REQUIRE(table.problem == "");
  REQUIRE(table.rows.size() == 1);
  CHECK(table.rows[0] == std::vector<std::string>{"0", "1  \"m:r:\" ", "5"});
  CHECK(table.column("b") == 2);
  CHECK(table.column("c") == -1);
  // The counts of `mkbench audit` come from pages with such cells.
  CHECK(parse_ncu_log(ncu_page(made_up_metrics())).dram_bytes == 19.2e9);
}

TEST_CASE("ncu is limited to one launch of one block, and nsys to the range of all") {
  const std::vector<std::string> ncu = tool_command(
      {ProfileTool::kNcu, "/opt/ncu", block_label("./a@b.so", 7, 0).message, "/out/x"});
  CHECK(ncu.front() == "/opt/ncu");
  CHECK(has_in_order(ncu, {"--target-processes", "all"}));
  CHECK(has_in_order(ncu, {"--replay-mode", "kernel", "--launch-count", "1"}));
  CHECK(has_in_order(ncu, {"--nvtx", "--nvtx-include", "mkbench@a_b.so d=7 block 0/"}));
  CHECK(has_in_order(ncu, {"--clock-control", "none"}));
  CHECK(has_in_order(ncu, {"--export", "/out/x"}));
  CHECK_FALSE(has_in_order(ncu, {"--kernel-name"}));
  CHECK_FALSE(has_in_order(ncu, {"--launch-skip"}));
  const std::vector<std::string> third =
      tool_command({ProfileTool::kNcu, "ncu", "r", "/out/x", "regex:^gemv", 2});
  CHECK(has_in_order(third, {"--kernel-name", "regex:^gemv", "--launch-skip", "2"}));
  CHECK(has_in_order(third, {"--launch-count", "1"}));
  for (const char* section :
       {"SpeedOfLight", "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Chart", "WarpStateStats",
        "SourceCounters", "LaunchStats", "Occupancy"})
    CHECK(has_in_order(ncu, {"--section", section}));
  const std::vector<std::string> nsys =
      tool_command({ProfileTool::kNsys, "nsys", range_name("ring", 512), "/out/x"});
  CHECK(has_in_order(nsys, {"nsys", "profile"}));
  for (const char* word :
       {"--trace=cuda,nvtx", "--capture-range=nvtx", "--nvtx-capture=ring d=512@mkbench",
        "--capture-range-end=stop", "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0", "--kill=none",
        "--output=/out/x"})
    CHECK(has_in_order(nsys, {word}));
}

TEST_CASE("a tool's complaint is its first error, else its last line") {
  CHECK(tool_complaint("==PROF== x\n==ERROR== no driver\nend\n") == "no driver");
  CHECK(tool_complaint("a\n  last\n\n") == "last");
  CHECK(tool_complaint("") == "");
  CHECK(counters_forbidden("==ERROR== ERR_NVGPUCTRPERM - The user"));
  CHECK_FALSE(counters_forbidden("==ERROR== other"));
}
