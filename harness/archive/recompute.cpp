#include "harness/archive/recompute.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/archive/clock_file.h"
#include "harness/judge/conclude.h"
#include "harness/judge/findings.h"
#include "references/base/error.h"
#include "references/base/json_fields.h"
#include "references/base/one_line.h"
#include "references/model_row.h"

namespace mkbench {
namespace {

using nlohmann::json;

constexpr double kRounding = 1e-12;
constexpr size_t kLongestLine = 1000;

// A field that `verify` cannot recompute in reports older than the minor version `before`.
struct FormerRule {
  int before;
  std::string_view path;
};
constexpr FormerRule kFormerRules[] = {
    // Intervals did not account for correlated blocks and for differences between processes.
    {6, "cases[].comparisons"},
    {6, "cases[].engines[].ms_per_tok.ci"},
    {6, "cases[].engines[].tok_per_s_ci_low"},
    {6, "cases[].engines[].tok_per_s_ci_high"},
    // The ceiling was a bandwidth, measured once a run.
    {6, "cases[].engines[].profile.no_waits_fraction"},
    // The rows of the parity table were in a file of their own.
    {6, "cases[].engines[].parity.exact"},
    {6, "cases[].engines[].parity.ties"},
    {6, "cases[].engines[].parity.drifts"},
    {6, "cases[].engines[].parity.wrong"},
    {6, "cases[].engines[].parity.steps"},
    {6, "cases[].engines[].parity.first_divergence"},
    {6, "cases[].engines[].parity.prompts"},
    {6, "cases[].engines[].parity.strict_steps"},
    {6, "cases[].engines[].parity.strict_matched"},
    {6, "cases[].engines[].parity.flips"},
    // All engines lived in one process, and prefill tests were timed separately.
    {6, "cases[].engines[].samples[].process"},
    {6, "cases[].engines[].samples[].prefill_ms"},
};

bool equal_values(const json& a, const json& b) {
  if (a == b) return true;
  if (!a.is_number_float() && !b.is_number_float()) return false;
  if (!a.is_number() || !b.is_number()) return false;
  const double x = a.get<double>(), y = b.get<double>();
  return std::abs(x - y) <= kRounding * std::max(std::abs(x), std::abs(y));
}

std::string member_path(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

// A member of a free-form object of the report; null if absent.
json member(const json& object, const char* name) {
  return object.is_object() ? object.value(name, json()) : json();
}

double number_or_0(const json& value) { return value.is_number() ? value.get<double>() : 0; }

std::string shown_or_nothing(const json& object, const std::string& name) {
  return object.contains(name) ? json_fields::shown(object[name]) : "nothing";
}

// Counts the leaves of `found` that are not null and differ from `blank`.
int64_t changed_leaves(const json& found, const json& blank) {
  int64_t count = 0;
  if (found.is_object() || found.is_array()) {
    for (const auto& [key, value] : found.items()) {
      const bool there = blank.is_array() ? std::stoul(key) < blank.size()
                                          : blank.is_object() && blank.contains(key);
      const json other = !there ? json() : blank.is_array() ? blank[std::stoul(key)] : blank[key];
      count += changed_leaves(value, other);
    }
    return count;
  }
  return !found.is_null() && found != blank ? 1 : 0;
}

// Removes from `written` the fields that `computed` lacks and, if the report is of an older schema,
// from `computed` the fields that `written` lacks.
void keep_shared(json& written, json& computed, bool older) {
  if (written.is_array() && computed.is_array()) {
    for (size_t i = 0; i < std::min(written.size(), computed.size()); ++i)
      keep_shared(written[i], computed[i], older);
  }
  if (!written.is_object() || !computed.is_object()) return;
  for (auto field = written.begin(); field != written.end();) {
    if (computed.contains(field.key())) {
      keep_shared(*field, computed[field.key()], older);
      ++field;
    } else {
      field = written.erase(field);
    }
  }
  for (auto field = computed.begin(); older && field != computed.end();)
    field = written.contains(field.key()) ? std::next(field) : computed.erase(field);
}

struct Aggregation {
  const CaseSettings& settings;
  SpeedMargin margin;
  void aggregate_case(CaseReport& c) const {
    aggregate(c, settings.confidence, settings.seed, settings.random_order, margin);
  }
};

// The earlier case's parity report from which `e` took its verdict: only that one has parity rows.
const ParityReport* judged_before(const Report& report, size_t case_index, const EngineReport& e) {
  for (size_t i = 0; i < case_index; ++i) {
    const CaseReport& earlier = report.cases[i];
    if (earlier.name != e.parity->judged_in) continue;
    for (const EngineReport& other : earlier.engines) {
      if (other.name == e.name && other.role == e.role && other.parity) return &*other.parity;
    }
  }
  return nullptr;
}

void tally_again(const Report& found, size_t case_index, EngineReport& e) {
  if (!e.parity) return;
  ParityReport& p = *e.parity;
  if (p.judged_in.empty()) {
    tally_rows(p);
    p.steps = static_cast<int>(p.rows.size());
  } else if (const ParityReport* judged = judged_before(found, case_index, e)) {
    const std::string judged_in = p.judged_in;
    p = *judged;
    p.judged_in = judged_in;
    p.rows.clear();
    p.first_divergence.reset();
  }
}

std::optional<ModelConfig> known_config(const CaseReport& c) {
  if (const ModelRow* row = find_model(c.model)) {
    if (c.weights_sha256.empty()) return std::nullopt;
    const bool declared = std::any_of(c.engines.begin(), c.engines.end(),
                                      [](const EngineReport& e) { return e.declared_bytes; });
    return ModelConfig{.shape = row->shape, .reads = declared ? c.reads : StepReads{}};
  }
  if (c.reads.known()) return ModelConfig{.reads = c.reads};
  return std::nullopt;
}

// A copy of the report without derived values. Engines are set to SKIPPED, for which aggregate()
// withholds times.
Report blank_of(const Report& found, const Aggregation& aggregation) {
  Report blank = found;
  for (CaseReport& c : blank.cases) {
    for (EngineReport& e : c.engines) {
      e.verdict = Verdict::kSkipped;
      if (!e.parity) continue;
      ParityReport& p = *e.parity;
      p.exact = p.ties = p.drifts = p.wrong = p.steps = -1;
    }
    if (known_config(c)) c.memory = {};
    aggregation.aggregate_case(c);
    c.verdict = Verdict::kSkipped;
    c.reasons.clear();
  }
  blank.reasons.clear();
  if (!blank.cases.empty()) blank.verdict = Verdict::kPass;
  blank.exit_code = -1;
  return blank;
}

// Gives `e` the verdict and reasons that it had before aggregate(): the recorded ones or, if
// aggregate() worsened the verdict and added the last reason, a pass without that reason.
void choose_start(const CaseReport& found, const CaseReport& blank, size_t index,
                  const Aggregation& aggregation, EngineReport& e) {
  const EngineReport& wanted = found.engines[index];
  e.verdict = wanted.verdict;
  e.reasons = wanted.reasons;
  if (times_allowed(wanted.verdict) || wanted.reasons.empty()) return;
  const json goal = json_fields::write(wanted);
  const auto leads_there = [&](Verdict verdict, const std::vector<std::string>& reasons) {
    CaseReport trial = blank;
    trial.engines = {blank.engines[index]};
    trial.engines[0].verdict = verdict;
    trial.engines[0].reasons = reasons;
    if (wanted.parity) trial.engines[0].parity = e.parity;
    aggregation.aggregate_case(trial);
    Differences differences;
    differences.same("", goal, json_fields::write(trial.engines[0]));
    return differences.all().empty();
  };
  if (leads_there(wanted.verdict, wanted.reasons)) return;
  std::vector<std::string> before = wanted.reasons;
  before.pop_back();
  for (const Verdict pass : {Verdict::kPass, Verdict::kPassLive}) {
    if (!leads_there(pass, before)) continue;
    e.verdict = pass;
    e.reasons = before;
    return;
  }
}

std::vector<std::string> without(const std::vector<std::string>& all,
                                 const std::vector<std::string>& derived) {
  std::vector<std::string> rest;
  for (const std::string& one : all) {
    if (std::find(derived.begin(), derived.end(), one) == derived.end()) rest.push_back(one);
  }
  return rest;
}

// A case that ended before its engines were judged has its own reason and verdict. All other
// reasons and verdicts of cases follow from the engines.
void keep_own_reasons(const Report& found, Report& again) {
  Report derived = again;
  conclude(derived);
  for (size_t i = 0; i < found.cases.size(); ++i) {
    again.cases[i].reasons = without(found.cases[i].reasons, derived.cases[i].reasons);
    if (!again.cases[i].reasons.empty()) again.cases[i].verdict = found.cases[i].verdict;
  }
  derived = again;
  conclude(derived);
  again.reasons = without(found.reasons, derived.reasons);
}

// Margin and half-width must follow from the A/A rows, and the pin rate must be the GPU's.
void recheck_calibration(const Report& found, const SpeedMargin& margin, Differences& d) {
  const json clock = member(found.calibration, "clock");
  if (clock.is_object()) {
    d.same("calibration.clock.margin", member(clock, "margin"), margin.value());
    if (clock.contains("rows"))
      d.same("calibration.clock.half_width", member(clock, "half_width"), margin.half_width);
  }
  const json pins = member(found.calibration, "pin_gb_per_s"),
             of_card = member(member(found.environment, "gpu"), "pin_gb_per_s");
  if (!pins.is_null() && !of_card.is_null()) d.same("calibration.pin_gb_per_s", pins, of_card);
}

}  // namespace

void Differences::add(const std::string& path, const std::string& found,
                      const std::string& recomputed) {
  // An edited report may contain control characters.
  all_.push_back({path.empty() ? "top" : one_line(path, kLongestLine),
                  one_line(found, kLongestLine), one_line(recomputed, kLongestLine)});
}

bool Differences::is_left_out(const std::string& path) {
  if (schema_minor_ >= kReportSchemaMinor) return false;
  std::string without_indices;
  for (size_t i = 0; i < path.size(); ++i) {
    without_indices += path[i];
    if (path[i] == '[') i = path.find(']', i) - 1;
  }
  for (const FormerRule& rule : kFormerRules) {
    if (schema_minor_ >= rule.before || without_indices != rule.path) continue;
    left_out_.insert(std::move(without_indices));
    return true;
  }
  return false;
}

void Differences::same(const std::string& path, const json& found, const json& recomputed) {
  if (is_left_out(path)) return;
  ++figures_;
  compare(path, found, recomputed);
}

void Differences::compare(const std::string& path, const json& found, const json& recomputed) {
  if (is_left_out(path)) return;
  if (found.is_object() && recomputed.is_object()) {
    std::set<std::string> names;
    for (const auto& [name, value] : found.items()) names.insert(name);
    for (const auto& [name, value] : recomputed.items()) names.insert(name);
    for (const std::string& name : names) {
      const std::string at = member_path(path, name);
      if (found.contains(name) && recomputed.contains(name)) {
        compare(at, found[name], recomputed[name]);
      } else {
        add(at, shown_or_nothing(found, name), shown_or_nothing(recomputed, name));
      }
    }
  } else if (found.is_array() && recomputed.is_array() && found.size() == recomputed.size()) {
    for (size_t i = 0; i < found.size(); ++i)
      compare(fmt::format("{}[{}]", path, i), found[i], recomputed[i]);
  } else if (!equal_values(found, recomputed)) {
    add(path, json_fields::shown(found), json_fields::shown(recomputed));
  }
}

void Differences::holds(bool does, const std::string& path, const json& found,
                        const std::string& wanted) {
  if (is_left_out(path)) return;
  ++figures_;
  if (!does) add(path, json_fields::shown(found), wanted);
}

CaseSettings recorded_settings(const json& meta) {
  CaseSettings settings;
  const json all = member(meta, "options");
  for (const Flag<CaseSettings>& flag : flags_of<CaseSettings>(judge_flags(), timing_flags())) {
    const bool counts = flag.name == "confidence" || flag.name == "seed" || flag.name == "order" ||
                        flag.name == "ids";
    const std::string name(flag.name);
    if (!counts || !all.contains(name)) continue;
    const json text = member(all[name], "value");
    const std::string path = fmt::format("meta.options.{}.value", name);
    if (!text.is_string()) json_fields::refuse(path, json_fields::shown(text), "a string");
    try {
      if (!text.get<std::string>().empty()) flag.set(settings, text.get<std::string>());
    } catch (const Error& error) {
      throw Error(ErrorKind::kBadInput, fmt::format("{}: {}", path, error.what()));
    }
  }
  return settings;
}

void set_memory(const Report& report, const std::optional<ModelConfig>& config, CaseReport& c) {
  if (!config) return;
  const json device = member(report.environment, "device");
  const bool cuda = device.is_string() && device.get<std::string>().starts_with("cuda");
  const double pins = number_or_0(member(report.calibration, "pin_gb_per_s"));
  const double l2 = number_or_0(member(member(report.environment, "gpu"), "l2_bytes"));
  c.memory = memory_bound(*config, c.depth, c.n_gen, c.n_prompt, cuda ? pins : 0,
                          cuda ? static_cast<int64_t>(l2) : 0);
}

void recompute(const Report& found, const json& as_written, Differences& differences) {
  differences.read_as(found.schema_minor);
  const CaseSettings settings = recorded_settings(found.meta);
  const Aggregation aggregation{settings, recorded_margin(found.calibration)};
  Report again = blank_of(found, aggregation);
  const json blank = json_fields::write(again);
  for (CaseReport& c : again.cases) set_memory(found, known_config(c), c);
  for (size_t i = 0; i < found.cases.size(); ++i) {
    const CaseReport empty = again.cases[i];
    for (size_t k = 0; k < empty.engines.size(); ++k) {
      EngineReport& e = again.cases[i].engines[k];
      tally_again(found, i, e);
      choose_start(found.cases[i], empty, k, aggregation, e);
    }
    aggregation.aggregate_case(again.cases[i]);
  }
  keep_own_reasons(found, again);
  conclude(again);

  json written = as_written;
  written.erase("seal");
  written.erase("schema");
  json computed = json_fields::write(again);
  keep_shared(written, computed, found.schema_minor < kReportSchemaMinor);
  differences.count(changed_leaves(written, blank));
  differences.same("", written, computed);
  if (member(found.meta, "options").contains("seed"))
    differences.same("meta.seed", member(found.meta, "seed"), settings.seed);
  recheck_calibration(found, aggregation.margin, differences);
  const bool any_stopped = std::any_of(found.cases.begin(), found.cases.end(),
                                       [](const CaseReport& c) { return c.interrupted; });
  differences.holds(found.interrupted || !any_stopped, "verdict.interrupted", found.interrupted,
                    "true: a case was interrupted");
  for (size_t i = 0; i < found.cases.size(); ++i) {
    const CaseReport& c = found.cases[i];
    const std::string path = fmt::format("cases[{}]", i);
    recheck_samples(c, path, settings, found.meta, differences);
    for (size_t k = 0; k < c.engines.size(); ++k)
      recheck_parity(c, c.engines[k], fmt::format("{}.engines[{}]", path, k), found.schema_minor,
                     differences);
  }
}

void recheck_seal(const json& as_written, Differences& differences) {
  if (!as_written.contains("seal")) return;  // read_report() requires a seal since schema 1.6
  const json& found = as_written.at("seal");
  const json seal = seal_of(as_written);
  for (const auto& [part, hash] : seal.items()) {
    differences.holds(
        found.value(part, json()) == hash, part, found.value(part, json("nothing")),
        fmt::format("{} as the sha256 of its values: one of them was changed", hash.dump()));
  }
  for (const auto& [part, hash] : found.items()) {
    differences.holds(seal.contains(part), "seal." + part, hash,
                      "nothing: the report has no such part");
  }
}

Report read_and_recompute(const std::filesystem::path& file, Differences& differences) {
  json as_written;
  Report report = read_report(file, &as_written);
  if (!report.unknown_fields.empty()) {
    fmt::print(
        stderr, "mkbench: {}\n",
        one_line(fmt::format(
                     "{}: fields that this mkbench (schema {}.{}) does not know are left out: {}",
                     file.string(), kReportSchemaMajor, kReportSchemaMinor,
                     fmt::join(report.unknown_fields, ", ")),
                 kLongestLine));
  }
  try {
    recompute(report, as_written, differences);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", file.string(), error.what()));
  }
  recheck_seal(as_written, differences);
  return report;
}

Report read_sound_report(const std::filesystem::path& file, const std::string& asked_by) {
  Differences differences;
  Report report = read_and_recompute(file, differences);
  if (differences.all().empty()) return report;
  const Difference& first = differences.all().front();
  throw Error(ErrorKind::kIntegrity,
              fmt::format("{}: {}: {}: found {}, recomputed {}; mkbench verify lists all", asked_by,
                          file.string(), first.path, first.found, first.recomputed));
}

std::filesystem::path report_file(const std::string& argument) {
  const std::filesystem::path path = argument;
  return std::filesystem::is_directory(path) ? path / "report.json" : path;
}

}  // namespace mkbench
