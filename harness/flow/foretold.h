// What a run was foretold to take. The pace of an engine in a file, and what it allocates, are not known
// beforehand: they are learned from its first calls, and the forecast is said again once it is wrong by half.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/flow/events.h"
#include "harness/flow/forecast.h"

namespace mkbench {

class Foretold {
 public:
  // Both must outlive this object.
  Foretold(Forecaster& forecaster, Now now) : forecaster_(forecaster), now_(std::move(now)) {}

  // What was said of a run of these jobs; 0: nothing.
  void say(std::vector<CaseJob> jobs, double seconds, int64_t bytes);
  // Learns from an event of a job. Returns the line to print if the run will take half as much again as
  // was said last, else an empty string.
  std::string take(const CaseJob& job, const CaseEvent& event);
  // Takes the bytes of memory that the run holds now. Returns the line to print if they are half as
  // much again as was said last, else an empty string.
  std::string held(int64_t bytes);
  // Seconds of the run by all that is known now.
  double seconds() const;

 private:
  bool see_progress(const StageProgress& now);
  double jobs_s() const;

  Forecaster& forecaster_;
  const Now now_;
  std::vector<CaseJob> jobs_;
  double said_s_ = 0, besides_s_ = 0;  // besides: what was said of no job
  int64_t said_bytes_ = 0;
  std::string stage_, engine_;  // of the last event of progress
  double since_ = 0;            // when it began, or done_ was reached
  int done_ = 0;
  bool warm_ = false;   // a prompt of this engine has been judged
  int steps_ = 0;       // judged since then
  double spent_s_ = 0;  // on these steps
  std::string model_;
  std::map<std::string, SeenPace> seen_;  // by the engine's name, on model_
};

// "0.8 s", "85 s", "12 min", "3.4 h".
std::string duration_text(double seconds);
// "1,180 MB".
std::string megabytes_text(int64_t bytes);

}  // namespace mkbench
