#include "harness/cli/outlook.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "harness/hosts/host_services.h"
#include "harness/judge/budget.h"
#include "references/base/error.h"
#include "references/model_row.h"

namespace mkbench {

std::string CaseOutlook::text() const {
  std::string text = fmt::format("{}: {:.1f} MB needed, {:.1f} MB free", name,
                                 static_cast<double>(memory.taken()) / 1e6,
                                 static_cast<double>(memory.free) / 1e6);
  if (forecast.seconds() > 0) {
    text += fmt::format("; about {} (judging {}, timing {}, scoring {})",
                        duration_text(forecast.seconds()), duration_text(forecast.judging_s),
                        duration_text(forecast.timing_s), duration_text(forecast.scoring_s));
  }
  for (const std::string& one : forecast.unknown) text += fmt::format("; {}: pace not known", one);
  return text;
}

void Outlook::predict(std::vector<CaseJob> jobs, bool measure, bool whole) {
  std::set<std::string> stated;
  for (CaseJob& planned : jobs) {
    CaseJob job = planned;
    const HostServices services(job, hosts_);
    if (job.cuda() && card_held_ == 0) card_held_ = services.held_bytes();
    CaseOutlook one;
    one.name = case_name(job);
    const ModelRow* row = job.model.row;
    if (!stated.insert(job.model.name).second &&
        may_take_over(row, !has_committed_truth(job.model)))
      job.judged.emplace();
    const ModelConfig config = services.config(job.model);
    one.residency = choose_residency(job, services, config);
    planned.one_at_a_time = job.one_at_a_time;
    planned.truth_on_host = job.truth_on_host;
    one.memory = case_memory(job, services, config);
    if (whole && !one.fits()) one.refusal = memory_refusal(job, services, config, one.memory);
    cases_.push_back(one);
  }
  // Backwards, so that the weights that stay loaded are those of the first case.
  for (size_t i = jobs.size(); measure && i-- > 0;) {
    bool fits = true;
    for (size_t k = 0; k < jobs.size(); ++k)
      fits = fits && (jobs[k].model.name != jobs[i].model.name || cases_[k].fits());
    if (!fits) continue;
    forecaster_.measure(jobs[i], HostServices(jobs[i], hosts_), whole);
  }
  std::set<std::string> judged;
  for (size_t i = 0; i < jobs.size(); ++i) {
    CaseJob job = jobs[i];
    if (!judged.insert(job.model.name).second && forecaster_.takes_over(job.model))
      job.judged.emplace();
    cases_[i].forecast = forecaster_.forecast(job);
    jobs_.push_back(std::move(job));
  }
  predicted_at_ = steady_seconds() - begin_;
}

bool Outlook::timed() const {
  return std::any_of(cases_.begin(), cases_.end(),
                     [](const CaseOutlook& one) { return one.forecast.seconds() > 0; });
}

double Outlook::seconds() const {
  double seconds = predicted_at_ + besides_s_;
  for (const CaseOutlook& one : cases_) seconds += one.forecast.seconds();
  return seconds;
}

int64_t Outlook::needed() const {
  int64_t most = 0;
  for (const CaseOutlook& one : cases_) most = std::max(most, one.memory.taken());
  return most;
}

std::string Outlook::say() {
  foretold_.say(jobs_, timed() ? seconds() : 0, needed());
  std::set<std::string> unknown;
  int64_t free = 0;
  for (const CaseOutlook& one : cases_) {
    unknown.insert(one.forecast.unknown.begin(), one.forecast.unknown.end());
    free = one.memory.free;
  }
  std::string text = timed() ? fmt::format("about {}, ", duration_text(seconds())) : "";
  text += fmt::format("{} of memory ({} are free)", megabytes_text(needed()), megabytes_text(free));
  if (timed() && !unknown.empty())
    text +=
        fmt::format("; plus the time of {}, whose pace is not known yet", fmt::join(unknown, ", "));
  return text;
}

std::string Outlook::take(const CaseJob& job, const CaseEvent& event) {
  const auto* held = std::get_if<MemoryHeld>(&event);
  if (held == nullptr) return foretold_.take(job, event);
  if (cases_.empty() || (job.cuda() && card_held_ == 0)) return "";
  most_ = std::max(most_, held->bytes - (job.cuda() ? card_held_ : 0));
  return foretold_.held(most_);
}

std::string Outlook::result() const {
  const double took = steady_seconds() - begin_;
  std::string text = "took " + duration_text(took);
  if (timed()) text += fmt::format(", {} predicted", duration_text(seconds()));
  if (most_ > 0 && needed() > 0) {
    text += fmt::format("; at most {} of memory, {} predicted", megabytes_text(most_),
                        megabytes_text(needed()));
  }
  return text;
}

nlohmann::json Outlook::json() const {
  if (cases_.empty()) return nullptr;
  nlohmann::json numbers = {{"bytes_predicted", needed()},
                            {"bytes_taken", most_},
                            {"seconds_taken", steady_seconds() - begin_},
                            {"seconds_predicted", nullptr}};
  if (timed()) numbers["seconds_predicted"] = seconds();
  return numbers;
}

}  // namespace mkbench
