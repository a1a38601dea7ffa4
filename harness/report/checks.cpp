#include "harness/report/checks.h"

namespace mkbench {

const std::vector<CheckInfo>& check_table() {
  static const std::vector<CheckInfo> table = {
      {Check::kConfig, "config", "config and tensors are those of the model"},
      {Check::kWeights, "weights", "weights and prompt ids are those of the reference"},
      {Check::kRan, "ran", "the engine ran: the launch counter moved, every id came back"},
      {Check::kFinite, "finite", "no NaN or Inf in logits, hidden states or written KV rows"},
      {Check::kRms, "r_rms", "logit error over all steps, against that of the bf16 baseline"},
      {Check::kStep, "r_step", "largest logit error of one step"},
      {Check::kInf, "r_inf", "largest error of one logit among the top 32"},
      {Check::kKl, "r_kl", "divergence of the next-token distribution"},
      {Check::kRatchet, "ratchet", "R_rms is not above this engine's committed value"},
      {Check::kDecided, "decided", "decided steps emit the reference's token"},
      {Check::kNearTie, "near_tie", "near ties stay within tau of the top"},
      {Check::kFlips, "flips", "no more flips than the baseline's allow"},
      {Check::kSelf, "self", "the emitted id is the lowest-index argmax of the engine's logits"},
      {Check::kStrict, "strict", "free-running ids of the strict set are equal"},
      {Check::kSame, "same", "equal ids with and without logits"},
      {Check::kRepeats, "repeats", "the same input again gives the same bits"},
      {Check::kSweep, "sweep", "every cache length gives the same answer"},
      {Check::kIsolation, "isolation", "sequences do not reach each other or rows not their own"},
      {Check::kReceipts, "receipts", "timed ids are the checked ids"},
  };
  return table;
}

std::string_view check_name(Check c) { return check_table()[static_cast<size_t>(c)].name; }

std::vector<Check> enum_values(Tag<Check>) {
  std::vector<Check> all;
  for (const CheckInfo& info : check_table()) all.push_back(info.check);
  return all;
}

std::string_view check_status_name(CheckStatus s) {
  switch (s) {
    case CheckStatus::kPassed:
      return "passed";
    case CheckStatus::kFailed:
      return "failed";
    case CheckStatus::kNotApplicable:
      return "not_applicable";
  }
  return "failed";
}

std::vector<CheckStatus> enum_values(Tag<CheckStatus>) {
  return {CheckStatus::kPassed, CheckStatus::kFailed, CheckStatus::kNotApplicable};
}

}  // namespace mkbench
