// Nsight Compute as a counter of bytes, and as a reader of its own reports.
#pragma once

#include <string>
#include <vector>

#include "harness/measure/byte_counts.h"

namespace mkbench {

// Path of ncu or nsys: on PATH, beside nvcc, in /usr/local/cuda/bin, or the newest below
// /opt/nvidia/nsight-compute or -systems. Empty if there is none.
std::string find_ncu();
std::string find_nsys();

// The table of all metrics of a report that ncu has written (measure/ncu_table.h), or ncu's message
// if it cannot read the report.
std::string ncu_raw_page(const std::string& ncu, const std::string& report);

// Bytes that `program` reads while NVTX's range "decode" of the domain "mkbench" is open. If ncu
// cannot run, may not count, or takes longer than `timeout_s`, the result's `problem` says so.
ByteCounts count_with_ncu(const std::string& ncu, const std::vector<std::string>& program,
                          double timeout_s);

}  // namespace mkbench
