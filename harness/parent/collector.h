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

  // Takes one message. What is no message of a case is told among the case's reasons.
  void take(const FromHost& message);

  // Turns the way the host ended into verdicts: a death or a deadline strikes the engine that was
  // running.
  void finish(const WorkerEnd& end, double deadline_s);
  // The end of a job that was done in this process.
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

  // One for each message of a case; the last one for all others.
  void take_one(const StageProgress& m) { progress_ = m; }
  void take_one(const MemoryStated& m);
  void take_one(const ModelLoaded& m);
  void take_one(const ReferencesFound& m);
  void take_one(const TimedCheckChosen& m);
  void take_one(const EngineMade& m);
  void take_one(const ParityJudged& m);
  void take_one(const ProfileTaken& m);
  void take_one(const SampleTaken& m);
  void take_one(const VerdictGiven& m);
  void take_one(const CaseInterrupted&) { interrupted_ = true; }
  void take_one(const Done&) { done_ = true; }
  void take_one(const Garbage& m);
  template <typename Other>
  void take_one(const Other&);

  CaseReport report_;
  std::optional<ModelShape> shape_;
  std::optional<StageProgress> progress_;  // the last one
  bool done_ = false, interrupted_ = false;
};

// What a finished case has found about the parity of its engines, for CaseJob::judged of later cases
// of the same model in the same run; nothing unless every engine passed against committed
// references.
std::optional<JudgedCase> parity_memo(const CaseReport& c);

}  // namespace mkbench
