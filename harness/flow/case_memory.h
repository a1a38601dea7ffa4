// The memory that a case takes, and what would fit if it is too much. Nothing is loaded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "harness/flow/job.h"
#include "harness/flow/services.h"

namespace mkbench {

struct CaseMemory {
  int64_t needed = 0;  // bytes for all engines of the case, and for the runs that judge them
  // `needed` if a ceiling, with its copy of the bytes it reads, is open beside the timed engines.
  int64_t with_ceiling = 0;
  int64_t free = 0;  // bytes on the job's device; 0: not known

  bool fits() const { return free <= 0 || needed <= free; }
  bool ceiling_fits() const { return free <= 0 || with_ceiling <= free; }
  // What the case will take: without the ceiling if its copy does not fit.
  int64_t taken() const { return ceiling_fits() ? std::max(needed, with_ceiling) : needed; }
};

// Tokens of a timed run, and the positions that it needs.
int timed_tokens(const CaseJob& job);
int timed_positions(const CaseJob& job);

// Bytes of the job's device that the case will take, and the bytes that are free now. The weights
// need not exist yet.
CaseMemory case_memory(const CaseJob& job, const CaseServices& services, const ModelConfig& config);

// Where all engines together (and the ceiling, if it is to be timed) do not fit, sets the first of
// these with which they do: job.one_at_a_time, if job.may_open_one; job.truth_on_host, on a card, for
// a truth that transformers computes; both. With ablations, engines that fit together stay open.
// Returns the reason in one line; empty if the job is unchanged.
std::string choose_residency(CaseJob& job, const CaseServices& services, const ModelConfig& config);

// The first of these that fits: the largest depth for these engines; the largest with one of them
// open at a time; the same without some of them; the largest model of the shape table. One line:
// "what would fit: --n-depth 300 (3812 MB)".
std::string what_would_fit(const CaseJob& job, const CaseServices& services,
                           const ModelConfig& config, int64_t free);

// Says why no ceiling is timed beside engines that fit without it.
std::string ceiling_refusal(const CaseJob& job, const CaseMemory& memory);

// "memory of cuda: 9912 MB needed, 4001 MB free; what would fit: ...", if a case does not fit.
std::string memory_refusal(const CaseJob& job, const CaseServices& services,
                           const ModelConfig& config, const CaseMemory& memory);

}  // namespace mkbench
