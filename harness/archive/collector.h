// The report of a case, put together from its events, complete at any moment.
#pragma once

#include <optional>
#include <string>

#include "harness/flow/job.h"
#include "harness/report/report.h"

namespace mkbench {

class CaseCollector {
 public:
  explicit CaseCollector(const CaseJob& job);

  void take(const CaseEvent& event);
  // Ends the case: engines that were not reached get a reason that says so.
  void finish(bool interrupted);

  CaseReport& report() { return report_; }
  bool interrupted() const { return interrupted_; }
  const std::optional<ModelConfig>& config() const { return config_; }

 private:
  EngineReport* engine(const std::string& flow_name);
  void end_case(Verdict verdict, const std::string& reason);

  struct Taker;  // what each event changes

  CaseReport report_;
  std::optional<ModelConfig> config_;
  bool interrupted_ = false;
};

// The parity findings of a finished case, for CaseJob::judged of later cases of the same model in
// the same run; nullopt unless every engine passed and may_take_over() permits it for the model.
std::optional<JudgedCase> parity_memo(const CaseReport& c);

}  // namespace mkbench
