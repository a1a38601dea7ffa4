#include <fmt/format.h>

#include "harness/judge/findings.h"

namespace mkbench {
namespace {

void judge_ratio(Check check, const char* name, double value, double limit,
                 const std::string& where, const std::string& unlimited, Findings& findings) {
  if (limit <= 0) {
    findings.rule_out(check, "reported, not judged: " + unlimited, value);
    return;
  }
  findings.measured(check, value, limit);
  if (value <= limit) return;
  const std::string found =
      value < 1000 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
  findings.fail(check, Verdict::kFailFidelity,
                fmt::format("{} {} > {:.3g}{}", name, found, limit, where));
}

void judge_ratchet(const Ratios& found, const ParityOptions& options, Findings& findings) {
  if (options.limits.rms <= 0) {
    findings.rule_out(Check::kRatchet, "not judged: " + options.unlimited);
    return;
  }
  if (!options.ratchet) {
    findings.rule_out(Check::kRatchet,
                      options.ratchet_key
                          ? "reports/ratchet.json has no entry; scripts/update_ratchet.py adds " +
                                ratchet_entry(*options.ratchet_key, found)
                          : "only candidates on committed references have a ratchet");
    return;
  }
  findings.measured(Check::kRatchet, found.rms, kRatchetFactor * options.ratchet->rms);
  const std::string over = over_ratchet(found, *options.ratchet);
  if (!over.empty()) findings.fail(Check::kRatchet, Verdict::kFailFidelity, "ratchet: " + over);
}

}  // namespace

void note_bits(const std::string& repeats_sha256, const Ratchet& committed, Findings& findings) {
  if (committed.repeats_sha256.empty() || repeats_sha256.empty()) return;
  findings.note(Check::kRatchet, committed.repeats_sha256 == repeats_sha256
                                     ? "logits: the committed bits"
                                     : "logits: other bits than in reports/ratchet.json; "
                                       "scripts/update_ratchet.py --reason records why");
}

void rule_out_ratios(const std::string& why, Findings& findings) {
  for (const Check check : {Check::kRms, Check::kStep, Check::kInf, Check::kKl, Check::kRatchet}) {
    findings.rule_out(check, why);
  }
}

void judge_ratios(const RatioSums& sums, const GreedyReference& reference,
                  const ParityOptions& options, ParityReport& report, Findings& findings) {
  const std::optional<Ratios> found = sums.ratios();
  if (!found) {
    throw Error(ErrorKind::kInvalidReference,
                fmt::format("reference {}: baseline error norms are all 0, wanted > 0 somewhere",
                            reference.path.string()));
  }
  report.r_rms = found->rms;
  if (report.suspect_prompt.empty()) {
    report.suspect_prompt = found->worst_prompt;
    report.suspect_position = found->worst_position;
  }
  const RatioLimits& limits = options.limits;
  // A baseline that rounds its logits has an error that the fp32-head baseline lacks, so its R_rms
  // is reported, and no ratio is judged.
  if (options.is_baseline && options.logits_bf16) {
    report.r_rms_limit = 0;
    rule_out_ratios("not judged: the baseline rounds its logits", findings);
    return;
  }
  report.r_rms_limit = limits.rms;
  judge_ratio(Check::kRms, "R_rms", found->rms, limits.rms, "", options.unlimited, findings);
  judge_ratio(
      Check::kStep, "R_step", found->step, limits.step,
      fmt::format(" at prompt '{}' position {}", found->worst_prompt, found->worst_position),
      options.unlimited, findings);
  judge_ratio(Check::kInf, "R_inf", found->inf, limits.inf, "", options.unlimited, findings);
  judge_ratio(Check::kKl, "R_KL", found->kl, limits.kl, "", options.unlimited, findings);
  judge_ratchet(*found, options, findings);
}

}  // namespace mkbench
