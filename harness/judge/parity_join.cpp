#include "harness/judge/findings.h"

namespace mkbench {

ParityReport join_parity(const std::vector<ParityReport>& reports) {
  ParityReport all = reports.front();
  std::vector<Verdict> verdicts = {all.verdict};
  for (size_t i = 1; i < reports.size(); ++i) {
    const ParityReport& r = reports[i];
    verdicts.push_back(r.verdict);
    if (!r.reason.empty()) all.reason += (all.reason.empty() ? "" : "; ") + r.reason;
    all.reference += ", " + r.reference;
    if (!r.reference_sha256.empty()) {
      all.reference_sha256 += (all.reference_sha256.empty() ? "" : ", ") + r.reference_sha256;
    }
    if (!r.logits_sha256.empty())
      all.logits_sha256 += (all.logits_sha256.empty() ? "" : ", ") + r.logits_sha256;
    if (!all.first_divergence && r.first_divergence) {
      all.first_divergence = static_cast<int>(all.rows.size()) + *r.first_divergence;
    }
    if (exit_code(all.verdict) == 0 && exit_code(r.verdict) != 0) {
      all.suspect_prompt = r.suspect_prompt;
      all.suspect_position = r.suspect_position;
      all.suspect_is_free = r.suspect_is_free;
      static_cast<FailureDetails&>(all) = r;
      all.verdict = r.verdict;
    }
    all.rows.insert(all.rows.end(), r.rows.begin(), r.rows.end());
    for (const CheckResult& check : r.checks) merge_check(all.checks, check);
    for (int ParityReport::*count :
         {&ParityReport::prompts, &ParityReport::steps, &ParityReport::strict_steps,
          &ParityReport::strict_matched, &ParityReport::decided_steps, &ParityReport::exact,
          &ParityReport::ties, &ParityReport::drifts, &ParityReport::wrong, &ParityReport::flips,
          &ParityReport::flips_allowed, &ParityReport::self_inconsistent,
          &ParityReport::non_finite}) {
      all.*count += r.*count;
    }
    if (r.r_rms && (!all.r_rms || *r.r_rms > *all.r_rms)) {
      all.r_rms = r.r_rms;
      all.r_rms_limit = r.r_rms_limit;
    }
  }
  all.verdict = worst(verdicts);
  return all;
}

}  // namespace mkbench
