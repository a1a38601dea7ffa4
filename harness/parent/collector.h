// The parent's picture of a case: put together from a worker's messages, complete at any moment.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "harness/parent/supervisor.h"
#include "harness/report/report.h"
#include "harness/wire/job.h"
#include "references/qwen3.h"

namespace mkbench {

class CaseCollector {
 public:
  explicit CaseCollector(const CaseJob& job);

  // Takes one message. Unknown and malformed ones are told among the case's reasons.
  void take(const nlohmann::json& message);

  // Turns the way the worker ended into verdicts: a death or a deadline strikes the engine that was
  // running.
  void finish(const WorkerEnd& end, double deadline_s);
  // The same for a job done in this process.
  void finish_in_process(bool interrupted);

  CaseReport& report() { return report_; }
  bool interrupted() const { return interrupted_; }
  const std::optional<ModelShape>& shape() const { return shape_; }

 private:
  EngineReport* engine(const std::string& worker_name);
  void take_known(const nlohmann::json& message);
  EngineReport* running_engine();
  void strike(EngineReport* guilty, Verdict verdict, const std::string& reason);
  void take_sample(const nlohmann::json& message);
  void blame(Verdict verdict, const std::string& reason);
  std::string where() const;

  CaseReport report_;
  std::optional<ModelShape> shape_;
  nlohmann::json progress_;  // the last message of that type
  bool done_ = false, interrupted_ = false;
};

// What a finished case has found about the parity of its engines, without the table, for
// CaseJob::judged of later cases of the same model in the same run; null unless every engine passed
// against committed references.
nlohmann::json parity_memo(const CaseReport& c);

}  // namespace mkbench
