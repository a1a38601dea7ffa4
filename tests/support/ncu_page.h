// The raw page of a report of Nsight Compute, for tests of what reads one.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace mkbench::testing {

struct NcuMetric {
  std::string name, unit, value;
};

// A launch as `ncu --import --csv --page raw --print-units base` prints it: the columns of a launch,
// those of NVTX, whose cells have quotes of their own, and the metrics.
inline std::string ncu_page(const std::vector<NcuMetric>& metrics, int launches = 1) {
  std::string header =
      "\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"thread "
      "Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg\",\"Id:Domain:Start/"
      "Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg\",\"Kernel "
      "Name\",\"Context\",\"Stream\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\"";
  std::string units = "\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"block\",\"\",\"\",\"\"";
  std::string row =
      "\"0\",\"4711\",\"mkbench-host-cuda\",\"127.0.0.1\",\"1  \"\"mkbench:ring d=512 block "
      "0:int32:0:none:none:ascii:none\"\" \",\"\",\"ring_decode(Params, int)\",\"1\",\"7\",\"(288, "
      "1, 1)\",\"(128, 1, 1)\",\"0\",\"9.0\"";
  for (const NcuMetric& metric : metrics) {
    header += ",\"" + metric.name + "\"";
    units += ",\"" + metric.unit + "\"";
    row += ",\"" + metric.value + "\"";
  }
  std::string page = header + "\n" + units + "\n";
  for (int i = 0; i < launches; ++i) page += row + "\n";
  return page;
}

// 16 tokens of 1.2 GB at 2,400 GB/s. The numbers are made for tests and were never measured.
inline std::vector<NcuMetric> made_up_metrics() {
  const auto stall = [](const std::string& reason, const std::string& cycles) {
    return NcuMetric{"smsp__average_warps_issue_stalled_" + reason + "_per_issue_active.ratio",
                     "inst", cycles};
  };
  return {{"dram__bytes_read.sum", "byte", "19,200,000,000"},
          {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "%", "71.6"},
          {"gpu__time_duration.sum", "nsecond", "8,000,000"},
          stall("barrier", "2"),
          stall("long_scoreboard", "6"),
          stall("long_scoreboard_not_issued", "5"),
          stall("selected", "1"),
          stall("short_scoreboard", "1")};
}

}  // namespace mkbench::testing
