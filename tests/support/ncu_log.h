// A log as Nsight Compute writes it, for tests of what reads one.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace mkbench::testing {

// What ncu writes: lines of its own, names, units, and a row for each pair of bytes and sectors.
inline std::string ncu_log(const std::vector<std::pair<std::string, std::string>>& rows,
                           const std::string& unit = "byte") {
  std::string log =
      "==PROF== Connected to process 7 (/x/mkbench-all)\n==PROF== Profiling \"decode\" - 0: "
      "0%....100% - 1 pass\n==PROF== Disconnected from process 7\n"
      "\"ID\",\"Process ID\",\"Kernel Name\",\"dram__bytes_read.sum\",\"lts__t_sectors_op_read_"
      "lookup_hit.sum\"\n\"\",\"\",\"\",\"" +
      unit + "\",\"sector\"\n";
  for (const auto& [bytes, sectors] : rows)
    log += "\"0\",\"7\",\"decode(Params, int)\",\"" + bytes + "\",\"" + sectors + "\"\n";
  return log;
}

}  // namespace mkbench::testing
