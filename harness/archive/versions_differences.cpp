#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/archive/recompute.h"
#include "harness/archive/version_parts.h"
#include "harness/archive/versions.h"
#include "harness/report/render.h"
#include "references/base/error.h"
#include "references/base/json_strict.h"

namespace mkbench {
namespace {

// The text for a field on which two reports must agree but differ.
std::string differ(const std::string& field, const std::string& base, const std::string& head) {
  const auto shown = [](const std::string& text) {
    return text.empty() ? std::string("nothing") : in_quotes(text);
  };
  return fmt::format("{}: BASE {}, HEAD {}", field, shown(base), shown(head));
}

void need_same(std::vector<std::string>& all, const std::string& field, const std::string& base,
               const std::string& head) {
  if (base != head) all.push_back(differ(field, base, head));
}

bool same_axes(const CaseReport& a, const CaseReport& b) {
  return a.depth == b.depth && a.n_gen == b.n_gen && a.n_prompt == b.n_prompt;
}

// True if a case of HEAD failed before it had engines; its own verdict is then the result.
bool failed_alone(const CaseReport& c) {
  return !times_allowed(c.verdict) && c.verdict != Verdict::kSkipped && c.engines.empty();
}

// Reports a case that only BASE has; if exactly one case of its model is only in HEAD, names the
// differing axes.
void tell_missing_case(const CaseReport& c, const Report& base, const Report& head,
                       std::vector<std::string>& all) {
  std::vector<const CaseReport*> others;
  for (const CaseReport& other : head.cases) {
    if (other.model == c.model && case_like(other, base) == nullptr) others.push_back(&other);
  }
  if (others.size() != 1) {
    all.push_back(fmt::format("case {}: is not in HEAD", in_quotes(c.name)));
    return;
  }
  const auto axis = [&](const char* name, int CaseReport::*member) {
    need_same(all, fmt::format("case {}: axes.{}", in_quotes(c.name), name),
              std::to_string(c.*member), std::to_string(others.front()->*member));
  };
  axis("depth", &CaseReport::depth);
  axis("n_gen", &CaseReport::n_gen);
  axis("n_prompt", &CaseReport::n_prompt);
}

void compare_cases(const CaseReport& base, const CaseReport& head, std::vector<std::string>& all) {
  const std::string name = fmt::format("case {}: ", in_quotes(base.name));
  // Only weights that were loaded have a sha256; for others the case's verdict says why. Those of an
  // analytic model differ in the salt of each run: its name and depth give the shape and the lag set.
  if (base.generator != 0 && head.generator != 0) {
    need_same(all, name + "model.generator", std::to_string(base.generator),
              std::to_string(head.generator));
  } else if (!base.weights_sha256.empty() && !head.weights_sha256.empty()) {
    need_same(all, name + "model.weights_sha256", base.weights_sha256, head.weights_sha256);
  }
  if (failed_alone(head)) return;
  for (const EngineReport& e : base.engines) {
    const EngineReport* other = engine_like(base, e, head);
    if (!e.timed) continue;
    if (other == nullptr) {
      all.push_back(fmt::format("{}engine {}: is not in HEAD", name, in_quotes(e.name)));
    } else if (!other->timed) {
      all.push_back(fmt::format("{}engine {}: is not timed in HEAD", name, in_quotes(e.name)));
    } else if (other->verdict == Verdict::kSkipped) {
      all.push_back(fmt::format("{}engine {}: is SKIPPED in HEAD: {}", name, in_quotes(e.name),
                                first_reason(other->reasons)));
    }
  }
}

bool has_timed_candidate(const Report& report) {
  return std::any_of(report.cases.begin(), report.cases.end(), [](const CaseReport& c) {
    return std::any_of(c.engines.begin(), c.engines.end(),
                       [](const EngineReport& e) { return gates(e) && e.ms_per_tok; });
  });
}

}  // namespace

double confidence_of(const Report& report) { return recorded_settings(report.meta).confidence; }

const CaseReport* case_like(const CaseReport& c, const Report& in) {
  const auto found = std::find_if(in.cases.begin(), in.cases.end(), [&](const CaseReport& other) {
    return other.model == c.model && same_axes(other, c);
  });
  return found == in.cases.end() ? nullptr : &*found;
}

const EngineReport* engine_like(const CaseReport& c, const EngineReport& e, const CaseReport& in) {
  const auto alike = [&](const EngineReport& other) {
    return other.name == e.name && other.role == e.role;
  };
  auto before = std::count_if(c.engines.data(), &e, alike);
  for (const EngineReport& other : in.engines) {
    if (alike(other) && before-- == 0) return &other;
  }
  return nullptr;
}

std::vector<std::string> machine_differences(const Report& base, const Report& head) {
  const bool base_cuda = !is_cpu_report(base), head_cuda = !is_cpu_report(head);
  if (base_cuda != head_cuda)
    return {differ("env.device", json_text(base.environment, {"device"}),
                   json_text(head.environment, {"device"}))};
  const ClockMachine before = clock_machine(base.environment, base_cuda),
                     after = clock_machine(head.environment, head_cuda);
  std::vector<std::string> all;
  need_same(all, base_cuda ? "env.gpu.name" : "env.cpu.name", before.device, after.device);
  need_same(all, "env.gpu.uuid", before.uuid, after.uuid);
  need_same(all, base_cuda ? "env.gpu.driver" : "env.cpu.kernel", before.driver, after.driver);
  need_same(all, "calibration.clock", recorded_margin(base.calibration).source,
            recorded_margin(head.calibration).source);
  return all;
}

std::vector<std::string> version_differences(const Report& base, const Report& head) {
  std::vector<std::string> all = machine_differences(base, head);
  for (const Report* report : {&base, &head}) {
    if (report->interrupted)
      all.push_back(
          fmt::format("verdict.interrupted: {} is partial; mkbench --resume goes on with it",
                      report == &base ? "BASE" : "HEAD"));
  }
  need_same(all, "meta.options.confidence", fmt::format("{:g}", confidence_of(base)),
            fmt::format("{:g}", confidence_of(head)));
  const auto ring_rows = [](const Report& report) {
    return report.calibration.contains("ring_tuning") ? report.calibration["ring_tuning"].dump()
                                                      : "";
  };
  need_same(all, "calibration.ring_tuning", ring_rows(base), ring_rows(head));
  if (!has_timed_candidate(base)) all.emplace_back("cases: BASE has no candidate with a time");
  for (const CaseReport& c : base.cases) {
    const CaseReport* other = case_like(c, head);
    if (other == nullptr) {
      tell_missing_case(c, base, head, all);
    } else {
      compare_cases(c, *other, all);
    }
  }
  return all;
}

void refuse_differences(const std::string& base, const std::string& head,
                        const std::vector<std::string>& differences) {
  if (differences.empty()) return;
  throw Error(ErrorKind::kBadInput, fmt::format("gate: {} and {} cannot be compared: {}", base,
                                                head, fmt::join(differences, "; ")));
}

}  // namespace mkbench
