// How long a case will take, from a few measured steps of each of its engines.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/flow/gate.h"
#include "harness/flow/services.h"
#include "harness/report/verdict.h"

namespace mkbench {

// What was measured of one engine, in seconds.
struct StepPace {
  double open_s = 0;
  double step_s = 0;      // a decoded token
  double prefill_s = 0;   // the part of a prefill that does not depend on its rows
  double row_s = 0;       // a row of a prefill
  double logits_s = 0;    // a decoded token with logits, judged
  double prompt_s = 0;    // judging a prompt, besides its steps
  double pass_row_s = 0;  // a forced step of an engine that runs many in one pass (the truth)

  double judged_s() const { return 2 * step_s + logits_s; }  // three walks of judge_parity()
  double rows_s(int64_t rows) const { return row_s * static_cast<double>(rows); }
};

// What the calls of a case have shown of an engine, in seconds; 0: nothing yet.
struct SeenPace {
  double open_s = 0;
  double judged_s = 0;  // a judged step with its share of its prompt: mean of the prompts
  double least_s = 0;   // the same of the prompt with the least
  double token_s = 0;   // a token of a timed decode
};

// A case as predicted. An engine whose pace is not known is named in `unknown`, and its work is not
// counted.
struct Forecast {
  double judging_s = 0, timing_s = 0, scoring_s = 0;
  std::vector<std::string> unknown;
  // What would end the case early, or an engine's part of it, each with the verdict that it would cause.
  std::vector<std::pair<Verdict, std::string>> refusals;

  double seconds() const { return judging_s + timing_s + scoring_s; }
};

class Forecaster {
 public:
  // timeout_s: limit of a single call of an engine.
  explicit Forecaster(double timeout_s) : timeout_s_(timeout_s) {}
  // Loads the job's model and opens each of its engines for a few steps. The pace of an engine that
  // fails stays unknown. Without `whole`, skips engines that are files, and skips runs so short
  // that measuring would take a good part of their time. Throws the errors of loading the model and
  // its references, and Interrupted.
  void measure(const CaseJob& job, const CaseServices& services, bool whole);
  // Result of may_take_over() for a model; false if measure() has not measured it.
  bool takes_over(const Model& model) const;
  // Takes the pace that measure() has not found from what was seen of one of the job's engines. Returns
  // false if it is known, or not seen yet.
  bool learn(const CaseJob& job, const std::string& engine, const SeenPace& seen);
  // Predicts the case from what measure() found for its model, in this or another case of that
  // model. Engines without a measurement are named in Forecast::unknown.
  Forecast forecast(const CaseJob& job) const;

 private:
  struct Measured {
    double load_s = 0;
    ModelShape shape;
    int max_positions = 0;
    CaseReferences references;
    std::map<std::string, StepPace> paces;
    std::set<std::string> learned;  // engines whose pace learn() has set
    std::map<std::string, std::pair<Verdict, std::string>> failed;  // engines whose steps ended so
  };

  double judging(const CaseJob& job, const Measured& model, Forecast& forecast) const;
  double trials(const CaseJob& job, const Measured& model, const StepPace& pace) const;
  int planned_blocks(const CaseJob& job, const Measured& model) const;
  double timing(const CaseJob& job, const Measured& model, Forecast& forecast) const;
  double scoring(const CaseJob& job, const Measured& model) const;

  double timeout_s_;
  std::map<std::string, Measured> models_;
};

}  // namespace mkbench
