#include "harness/wire/job.h"

#include <fmt/format.h>

#include "references/base/json_fields.h"

namespace mkbench {

nlohmann::json to_json(const ToHost& job) { return json_fields::write(job); }

ToHost job_from_json(const nlohmann::json& j) { return json_fields::read_as<ToHost>(j, "job"); }

std::string case_name(const CaseJob& job) {
  if (job.whole_parity) return fmt::format("{} parity", job.model);
  if (job.n_prompt > 0) return fmt::format("{} pp{}", job.model, job.n_prompt);
  return fmt::format("{} d={} n={}", job.model, first_depth(job), job.n_gen);
}

}  // namespace mkbench
