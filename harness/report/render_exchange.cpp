// Results for other programs: Google Benchmark's JSON, OpenMetrics text, GitHub's annotations.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "harness/report/junit.h"
#include "harness/report/render.h"

namespace mkbench {
namespace {

using nlohmann::json;

// A quantity of a flat row as OpenMetrics has it, in base units.
struct Metric {
  std::string_view name, help, column;
  double scale = 1;
};
constexpr std::array<Metric, 12> kMetrics = {
    {{"mkbench_token_seconds", "Mean time of a token.", "ms_per_tok_mean", 1e-3},
     {"mkbench_token_low_seconds", "Lower end of the mean's interval.", "ms_per_tok_ci_low", 1e-3},
     {"mkbench_token_high_seconds", "Upper end of the mean's interval.", "ms_per_tok_ci_high",
      1e-3},
     {"mkbench_tokens_per_second", "Tokens over time.", "tok_per_s"},
     {"mkbench_first_token_seconds", "Prompt and first token, median.", "ttft_ms", 1e-3},
     {"mkbench_speedup_ratio", "Time of the fastest baseline over the engine's.", "speedup"},
     {"mkbench_speedup_low_ratio", "Lower end of the speed-up's interval.", "speedup_ci_low"},
     {"mkbench_speedup_high_ratio", "Upper end of the speed-up's interval.", "speedup_ci_high"},
     {"mkbench_ceiling_ratio", "Time of the ceiling over the engine's.", "share"},
     {"mkbench_ceiling_low_ratio", "Lower end of that share's interval.", "share_ci_low"},
     {"mkbench_ceiling_high_ratio", "Upper end of that share's interval.", "share_ci_high"},
     {"mkbench_wrong_tokens", "Timed tokens that differ from the reference.", "receipts_wrong"}}};

std::string escaped(const std::string& text, const std::map<char, std::string_view>& escapes) {
  std::string out;
  for (const char c : text) {
    const auto found = escapes.find(c);
    out += found != escapes.end() ? std::string(found->second) : std::string(1, c);
  }
  return out;
}

// What a report was measured on, to tell two cards of one kind apart.
std::string card_of(const Report& report) {
  const std::string uuid = json_text(report.environment, {"gpu", "uuid"});
  return json_text(report.environment, {"device"}) + (uuid.empty() ? "" : " " + uuid);
}

std::string labels_of(const Report& report, const CaseReport& c, const EngineReport& e) {
  const std::array<std::pair<const char*, std::string>, 7> labels = {
      {{"case", c.name},
       {"model", c.model},
       {"depth", std::to_string(c.depth)},
       {"engine", e.name},
       {"role", e.role},
       {"device", json_text(report.environment, {"device"})},
       {"uuid", json_text(report.environment, {"gpu", "uuid"})}}};
  std::string text;
  for (const auto& [name, value] : labels) {
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", name,
                        escaped(value, {{'\\', "\\\\"}, {'"', "\\\""}, {'\n', "\\n"}}));
  }
  return text;
}

// The values of a metric by their labels, in the order in which the labels first came.
class Series {
 public:
  void set(const std::string& labels, std::optional<double> value) {
    const auto found = std::ranges::find(values_, labels, &Labelled::first);
    if (found != values_.end())
      found->second = value;
    else
      values_.emplace_back(labels, value);
  }
  // Empty where no labels have a value.
  std::string text(std::string_view name, std::string_view help) const {
    std::string lines;
    for (const auto& [labels, value] : values_)
      if (value) lines += fmt::format("{}{{{}}} {}\n", name, labels, *value);
    return lines.empty() ? ""
                         : fmt::format("# TYPE {0} gauge\n# HELP {0} {1}\n{2}", name, help, lines);
  }

 private:
  using Labelled = std::pair<std::string, std::optional<double>>;
  std::vector<Labelled> values_;
};

// Calls take(report, case, engine, row) for each engine, with its flat row as an object.
template <typename Take>
void for_each_row(std::span<const Report> reports, const Take& take) {
  for (const Report& report : reports) {
    const FlatRows flat = flatten({&report, 1});
    size_t row = 0;
    for (const CaseReport& c : report.cases)
      for (const EngineReport& e : c.engines) take(report, c, e, row_object(flat, row++));
  }
}

json benchmark_of(const std::string& name, const EngineReport& e, const json& row) {
  const int64_t tokens =
      std::accumulate(e.samples.begin(), e.samples.end(), int64_t{0},
                      [](int64_t sum, const Sample& s) { return sum + (s.valid ? s.tokens : 0); });
  json one = {{"name", name},
              {"run_name", name},
              {"run_type", "iteration"},
              {"threads", 1},
              {"iterations", tokens},
              {"real_time", 1e6 * e.ms_per_tok->mean},
              {"cpu_time", 1e6 * e.ms_per_tok->mean},
              {"time_unit", "ns"},
              {"label", verdict_name(e.verdict)}};
  for (const auto& [counter, value] : row.items())
    if (value.is_number()) one[counter] = value;
  return one;
}

}  // namespace

std::string render_benchmark(std::span<const Report> reports) {
  json all = json::array(), untimed = json::array();
  std::map<std::string, int> seen;
  std::set<std::string> cards;
  for (const Report& report : reports) cards.insert(card_of(report));
  for_each_row(reports, [&](const Report& report, const CaseReport& c, const EngineReport& e,
                            const json& row) {
    const std::string name =
        c.name + "/" + e.name + (cards.size() > 1 ? "/" + card_of(report) : "");
    if (e.ms_per_tok) {
      json one = benchmark_of(name, e, row);
      one["repetition_index"] = seen[name]++;
      all.push_back(std::move(one));
    } else if (e.timed) {
      untimed.push_back(fmt::format("{}: {}", name, verdict_name(e.verdict)));
    }
  });
  for (json& one : all) one["repetitions"] = seen[one["name"]];
  json context = {{"json_schema_version", 1},
                  {"executable", "mkbench"},
                  {"caches", json::array()},  // readers want the list
                  {"cpu_time", "the same as real_time: the processor's time is not measured"},
                  {"times_withheld", untimed}};
  if (!reports.empty()) {
    const Report& last = reports.back();
    context["date"] = json_text(last.meta, {"started"});
    context["library_version"] = json_text(last.meta, {"version"});
    context["device"] = json_text(last.environment, {"device"});
  }
  return dump_readable({{"context", context}, {"benchmarks", all}}) + "\n";
}

std::string render_openmetrics(std::span<const Report> reports) {
  Series passed;
  std::array<Series, kMetrics.size()> series;
  for_each_row(reports, [&](const Report& report, const CaseReport& c, const EngineReport& e,
                            const json& row) {
    const std::string labels = labels_of(report, c, e);
    passed.set(labels, times_allowed(e.verdict) ? 1 : 0);
    for (size_t i = 0; i < kMetrics.size(); ++i) {
      const json& value = row.at(std::string(kMetrics[i].column));
      // A value that a later report withholds is gone.
      series[i].set(labels, value.is_number()
                                ? std::optional(kMetrics[i].scale * value.get<double>())
                                : std::nullopt);
    }
  });
  std::string text =
      passed.text("mkbench_passed", "1 for PASS and PASS_LIVE, 0 for other verdicts.");
  for (size_t i = 0; i < kMetrics.size(); ++i)
    text += series[i].text(kMetrics[i].name, kMetrics[i].help);
  return text + "# EOF\n";
}

std::string render_annotations(const std::vector<JunitSuite>& suites) {
  const std::map<char, std::string_view> data = {{'%', "%25"}, {'\r', "%0D"}, {'\n', "%0A"}};
  std::map<char, std::string_view> property = data;
  property.insert({{':', "%3A"}, {',', "%2C"}});
  std::string text;
  for (const JunitSuite& suite : suites) {
    for (const JunitCase& test : suite.cases) {
      const bool fails =
          test.outcome == JunitOutcome::kFailure || test.outcome == JunitOutcome::kError;
      if (!test.verdict || (!fails && test.verdict != Verdict::kInconclusive)) continue;
      text += fmt::format(
          "::{} {}title={}::{}\n", fails ? "error" : "warning",
          test.file.empty() ? "" : fmt::format("file={},", escaped(test.file, property)),
          escaped(fmt::format("mkbench {}: {}{}", test.type, suite.name,
                              test.name == kVerdictCase ? "" : " / " + test.name),
                  property),
          escaped(test.message + (test.detail.empty() ? "" : "\n" + test.detail), data));
    }
  }
  return text;
}

}  // namespace mkbench
