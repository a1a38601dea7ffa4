// Nsight Compute as a counter of bytes: ncu is run around a program that decodes once.
#pragma once

#include <string>
#include <vector>

#include "harness/measure/byte_counts.h"

namespace mkbench {

// The file of ncu: on PATH, beside nvcc, in /usr/local/cuda/bin, or the newest below
// /opt/nvidia/nsight-compute. Empty where there is none.
std::string find_ncu();

// What `program` and its arguments read while NVTX's range "decode" of the domain "mkbench" is open.
// Where ncu cannot run, may not count, or does not end in `timeout_s`, the problem says so.
ByteCounts count_with_ncu(const std::string& ncu, const std::vector<std::string>& program,
                          double timeout_s);

}  // namespace mkbench
