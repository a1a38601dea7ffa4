// The time and memory that a run will take, printed before it begins, and those that it took.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/flow/case_flow.h"
#include "harness/flow/forecast.h"
#include "harness/flow/foretold.h"
#include "harness/hosts/hosts.h"

namespace mkbench {

struct CaseOutlook {
  std::string name;
  CaseMemory memory;
  Forecast forecast;

  std::string residency;  // what choose_residency() returned
  std::string refusal;    // why it does not fit into memory, and what would; else empty

  bool fits() const { return memory.fits(); }
  // "tiny d=512 n=64: 12.3 MB needed, 900.0 MB free; about 5.0 s (judging ...); ring: pace not known".
  std::string text() const;
};

class Outlook {
 public:
  // `begin`: steady_seconds() at the start of the run.
  Outlook(Hosts& hosts, double begin, double timeout_s)
      : hosts_(hosts), begin_(begin), forecaster_(timeout_s) {}

  // Predicts the memory of every case and, with `measure`, its time, from a few steps of each
  // engine; a model is not loaded if one of its cases does not fit into memory. `whole`: also time
  // engines in files and short runs, and set refusals. Throws like the cases, and Interrupted.
  void predict(std::vector<CaseJob> jobs, bool measure, bool whole);
  const std::vector<CaseOutlook>& cases() const { return cases_; }
  // Adds seconds that are spent outside the cases, such as drawing plots.
  void add(double seconds) { besides_s_ += seconds; }

  // "about 85 s, 1,180 MB of memory (22,144 MB are free)", which is what take() goes by.
  std::string say();
  // Learns from an event. Returns the line to print if the run takes half as much again as was said,
  // else an empty string.
  std::string take(const CaseJob& job, const CaseEvent& event);
  // "took 88 s, 85 s predicted; at most 1,176 MB of memory, 1,180 MB predicted".
  std::string result() const;
  // Prediction and result as numbers, for the report's meta; null if nothing was predicted.
  nlohmann::json json() const;

 private:
  double seconds() const;  // from the start of the run
  int64_t needed() const;
  bool timed() const;  // true if the time of some engine is known

  Hosts& hosts_;
  const double begin_;
  Forecaster forecaster_;
  Foretold foretold_{forecaster_, steady_seconds};
  std::vector<CaseOutlook> cases_;
  std::vector<CaseJob> jobs_;                // of cases_
  double predicted_at_ = 0, besides_s_ = 0;  // seconds since begin_; seconds spent outside cases
  int64_t most_ = 0;                         // most bytes that the run used at once
  int64_t card_held_ = 0;                    // bytes of the card in use at the prediction
};

}  // namespace mkbench
