// The parent's picture of a case: put together from a host's messages, complete at any moment.
#pragma once

#include <optional>
#include <string>

#include "harness/parent/supervisor.h"
#include "harness/report/report.h"
#include "harness/wire/job.h"

namespace mkbench {

class CaseCollector {
 public:
  explicit CaseCollector(const CaseJob& job);

  // Takes one message. A message that does not belong to a case becomes one of the case's reasons.
  void take(const FromHost& message);

  // Turns the way the host ended into verdicts: a crash or a missed deadline is the verdict of the
  // engine that was running.
  void finish(const WorkerEnd& end, double deadline_s);
  // Ends a case that ran in this process (--in-process).
  void finish_in_process(bool interrupted);

  CaseReport& report() { return report_; }
  bool interrupted() const { return interrupted_; }
  const std::optional<ModelShape>& shape() const { return shape_; }

 private:
  EngineReport* engine(const std::string& worker_name);
  EngineReport* running_engine();
  void strike(EngineReport* guilty, Verdict verdict, const std::string& reason);
  void blame(Verdict verdict, const std::string& reason);
  std::string where() const;

  struct Taker;  // what each message changes

  CaseReport report_;
  std::optional<ModelShape> shape_;
  std::optional<StageProgress> progress_;  // the last one received
  bool done_ = false, interrupted_ = false;
};

// The parity findings of a finished case, for CaseJob::judged of later cases of the same model in
// the same run; empty unless every engine passed against committed references.
std::optional<JudgedCase> parity_memo(const CaseReport& c);

}  // namespace mkbench
