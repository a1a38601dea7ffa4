#include "harness/flow/job.h"

#include <fmt/format.h>

#include <algorithm>

namespace mkbench {

int context_for(int positions, int max_positions) {
  const int rounded = (positions + 63) / 64 * 64;
  return max_positions > 0 ? std::min(rounded, max_positions) : rounded;
}

std::string case_name(const CaseJob& job) {
  if (!job.only_prompt.empty())
    return fmt::format("{} parity of '{}'", job.model.name, job.only_prompt);
  if (job.whole_parity) return fmt::format("{} parity", job.model.name);
  if (job.n_prompt > 0) return fmt::format("{} pp{}", job.model.name, job.n_prompt);
  return fmt::format("{} d={} n={}", job.model.name, first_depth(job), job.n_gen);
}

}  // namespace mkbench
