#include "harness/flow/foretold.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "harness/report/render.h"

namespace mkbench {
namespace {

constexpr double kWrongBy = 1.5;

}  // namespace

std::string duration_text(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 300) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string megabytes_text(int64_t bytes) {
  return with_commas((bytes + 500'000) / 1'000'000) + " MB";
}

double Foretold::jobs_s() const {
  double seconds = 0;
  for (const CaseJob& job : jobs_) seconds += forecaster_.forecast(job).seconds();
  return seconds;
}

double Foretold::seconds() const { return besides_s_ + jobs_s(); }

void Foretold::say(std::vector<CaseJob> jobs, double seconds, int64_t bytes) {
  jobs_ = std::move(jobs);
  said_s_ = seconds;
  said_bytes_ = bytes;
  besides_s_ = seconds - jobs_s();
}

// Returns whether engine_'s judged steps have become known better.
bool Foretold::see_progress(const StageProgress& now) {
  const double at = now_();
  if (now.stage != stage_ || now.engine != engine_) {
    stage_ = now.stage;
    engine_ = now.engine;
    since_ = at;
    done_ = steps_ = 0;
    spent_s_ = 0;
    warm_ = false;
    return false;
  }
  if (stage_ != "parity" || !now.done || *now.done == done_) return false;
  // A further reference is counted from 0.
  const int steps = *now.done > done_ ? *now.done - done_ : *now.done;
  const double step_s = (at - since_) / steps;
  // The first prompt may have compiled kernels.
  const bool counts = warm_ || *now.done == now.total;
  since_ = at;
  done_ = *now.done;
  warm_ = true;
  if (!counts) return false;
  SeenPace& seen = seen_[engine_];
  seen.least_s = seen.judged_s > 0 ? std::min(seen.least_s, step_s) : step_s;
  spent_s_ += step_s * steps;
  steps_ += steps;
  seen.judged_s = spent_s_ / steps_;
  return true;
}

std::string Foretold::take(const CaseJob& job, const CaseEvent& event) {
  if (std::exchange(model_, job.model.name) != job.model.name) seen_.clear();
  std::string engine;
  if (const auto* now = std::get_if<StageProgress>(&event)) {
    if (see_progress(*now)) engine = engine_;
  } else if (const auto* made = std::get_if<EngineMade>(&event)) {
    if (stage_ == "upload" && engine_ == made->engine) {
      engine = engine_;
      seen_[engine].open_s = now_() - since_;
      stage_.clear();
    }
  } else if (const auto* taken = std::get_if<SampleTaken>(&event)) {
    engine = taken->engine;
    if (job.n_prompt == 0) seen_[engine].token_s = taken->sample.ms_per_token() / 1e3;
  }
  if (engine.empty() || said_s_ <= 0 || !forecaster_.learn(job, engine, seen_[engine])) return "";
  const double now_s = seconds();
  if (now_s <= kWrongBy * said_s_) return "";
  const SeenPace& seen = seen_[engine];
  const std::string text = fmt::format(
      "forecast: the run was foretold {}, now {}: {} takes {} to open and {:.4g} ms for each {}",
      duration_text(said_s_), duration_text(now_s), engine, duration_text(seen.open_s),
      1e3 * (seen.token_s > 0 ? seen.token_s : seen.judged_s),
      seen.token_s > 0 ? "token" : "judged step");
  said_s_ = now_s;
  return text;
}

std::string Foretold::held(int64_t bytes) {
  if (said_bytes_ <= 0 || static_cast<double>(bytes) <= kWrongBy * static_cast<double>(said_bytes_))
    return "";
  const std::string text =
      fmt::format("forecast: memory was foretold {}, now at least {}: {} is open",
                  megabytes_text(said_bytes_), megabytes_text(bytes), engine_);
  said_bytes_ = bytes;
  return text;
}

}  // namespace mkbench
