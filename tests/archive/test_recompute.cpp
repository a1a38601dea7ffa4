// mkbench verify: every kind of number in a report is edited, and what recomputing does not find is a
// short list of inputs, each with its reason. The seal finds those too.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <set>

#include "harness/archive/clock_file.h"
#include "harness/archive/recompute.h"
#include "harness/flow/text.h"
#include "harness/flow/timed_truth.h"
#include "harness/judge/conclude.h"
#include "harness/judge/ratios.h"
#include "harness/report/render.h"
#include "references/base/json_fields.h"
#include "references/base/sha256.h"
#include "tests/support/catch2.h"
#include "tests/support/sound_report.h"

using namespace mkbench;
using nlohmann::json;

namespace {

bool finds(const json& written, bool sealed) {
  try {
    return !differences_of(written, sealed).empty();
  } catch (const Error&) {
    return true;  // the reader has refused it
  }
}

// Two numbers with another first digit, one of them smaller where that is possible.
std::vector<json> edits_of(const json& number) {
  const std::string text = number.dump();
  const size_t at = text.find_first_of("0123456789");
  std::vector<json> edits;
  for (const char digit : {text[at] == '9' ? '1' : static_cast<char>(text[at] + 1),
                           text[at] > '1' ? static_cast<char>(text[at] - 1) : '3'}) {
    std::string other = text;
    other[at] = digit;
    edits.push_back(json::parse(other));
  }
  return edits;
}

void numbers_of(const json& j, const json::json_pointer& at, std::vector<json::json_pointer>& out) {
  if (j.is_number()) out.push_back(at);
  if (j.is_object()) {
    for (const auto& [name, value] : j.items()) numbers_of(value, at / name, out);
  } else if (j.is_array()) {
    for (size_t i = 0; i < j.size(); ++i) numbers_of(j[i], at / i, out);
  }
}

// "/cases/0/engines/1/launches" as "cases[].engines[].launches".
std::string pattern_of(const json::json_pointer& at) {
  std::string text = std::regex_replace(at.to_string(), std::regex("/[0-9]+"), "[]");
  std::replace(text.begin(), text.end(), '/', '.');
  return text.substr(1);
}

// Numbers that nothing is computed from, or not always: fields of some objects, and why.
struct Inputs {
  std::vector<std::string> objects, fields;
  std::string why;
};
const std::string kEngine = "cases[].engines[].", kCeiling = "cases[].ceiling.";
const std::vector<Inputs> kInputs = {
    {{"calibration.clock."}, {"alpha", "rows[].splits"}, "named where a row is not trusted"},
    {{"calibration.clock."}, {"processes"}, "as long as it names the same row"},
    {{"calibration.clock.rows[]."},
     {"excluding_one", "faster_or_slower", "most_allowed", "processes"},
     "as long as the row is trusted"},
    {{"calibration.clock.rows[]."}, {"half_width"}, "of the row for other numbers of processes"},
    {{"cases[]."}, {"bytes_free"}, "of the machine at that time"},
    {{"cases[]."}, {"bytes_needed"}, "a forecast; what libraries take is not in the report"},
    {{"cases[].model."}, {"generator"}, "of the build"},
    {{"cases[].model."}, {"reads.fixed"}, "where the model has a row, whose shape gives the bytes"},
    {{"cases[].model."}, {"rope_theta"}, "from the model's config"},
    {{kCeiling + "engine.process.", kEngine + "process.", kEngine + "timed_processes[]."},
     {"crossing_sd_us", "crossing_us", "open_ms", "pid", "start_ms"},
     "of the process"},
    {{kCeiling + "samples[].", kEngine + "samples[]."},
     {"repeats"},
     "dropped runs leave no samples"},
    {{kCeiling + "samples[].", kEngine + "samples[]."},
     {"start_ms"},
     "as long as the order of the samples stays"},
    {{kCeiling + "samples[].times."},
     {"device_ms", "event_ms", "sm_ghz"},
     "its own clocks, of which no figure is made"},
    {{kEngine + "clock_overhead."},
     {"device_ms", "device_sd_ms", "event_sd_ms", "runs"},
     "of decodes that leave no samples, as long as the clocks agree"},
    {{kEngine + "samples[].card.", kEngine + "dropped_samples[].card."},
     {"memory_clock_mhz", "power_w", "readings", "sm_clock_min_mhz", "temperature_c"},
     "read from the card"},
    {{kEngine + "dropped_samples[]."},
     {"card.energy_j", "card.energy_ms", "card.sm_clock_mhz", "repeats", "times.device_ms",
      "times.event_ms", "times.host_ms", "times.per_token_ms[]", "times.sm_ghz"},
     "of a sample that does not count"},
    {{kEngine}, {"launches"}, "counted by the engine, warm-ups and dropped runs too"},
    {{kEngine + "parity."}, {"checks[].value"}, "the logits are not in the report"},
    {{kEngine + "parity."}, {"decided_steps"}, "tau is not in the report; strict steps bound it"},
    {{kEngine + "parity.diagnosis."},
     {"known", "tried"},
     "a count of the search, which leaves no trace"},
    {{kEngine + "parity."},
     {"flips_allowed"},
     "from the margins and the baseline's errors, in the reference"},
    {{kEngine + "parity."}, {"lengths_judged"}, "the sweep leaves no rows"},
    {{kEngine + "parity."}, {"lengths_known"}, "from the model's config"},
    {{kEngine + "parity.rows[]."}, {"margin"}, "the truth's logits are in the reference"},
    {{kEngine + "parity.rows[]."}, {"mk_id", "ref_id"}, "of a near tie: any other id is one too"},
    {{kEngine + "profile."},
     {"no_loads_runs_us[]", "no_waits_runs_us[]"},
     "one of three, of which the median counts"},
    {{kEngine + "samples[]."},
     {"card.sm_clock_mhz", "times.sm_ghz"},
     "one of several, of which the median counts"},
    {{kEngine + "samples[].times."}, {"per_token_ms[]"}, "one of many in percentiles"},
};

// A report of one case that `change` makes fail before it is summed up.
Report failing_report(const std::function<void(CaseReport&)>& change) {
  Report r = sound_report();
  CaseReport& c = r.cases[0];
  change(c);
  sum_up(r, c);
  r.reasons.clear();
  conclude(r);
  return r;
}

std::vector<std::pair<std::string, Report>> failing_reports() {
  std::vector<std::pair<std::string, Report>> all;
  all.emplace_back("wrong receipt", failing_report([](CaseReport& c) {
                     Sample& s = c.engines[1].samples[3];
                     s.receipts_wrong = 1;
                     s.valid = false;
                     s.invalid_reason = "position 5: found 7, wanted 221";
                   }));
  all.emplace_back("faster than the pins", failing_report([](CaseReport& c) {
                     for (Sample& s : c.engines[1].samples)
                       s.times.host_ms /= 10, s.times.event_ms /= 10;
                   }));
  all.emplace_back("parity", failing_report([](CaseReport& c) {
                     EngineReport& e = c.engines[1];
                     e.verdict = e.parity->verdict = Verdict::kFailFidelity;
                     e.parity->reason = "R_rms 2.5 > 1.5";
                     e.reasons = {e.parity->reason};
                     e.parity->checks[0].status = CheckStatus::kFailed;
                     e.parity->checks[0].detail = e.parity->reason;
                     e.parity->checks[0].value = e.parity->r_rms = 2.5;
                     e.samples.clear();
                     c.generated_text = sequence_text(kQwen3_0_6B, c.engines[0].samples[0].ids);
                   }));
  all.emplace_back("hang", failing_report([](CaseReport& c) {
                     EngineReport& e = c.engines[1];
                     e.verdict = Verdict::kHang;
                     e.parity.reset();
                     e.reasons = {"no progress for 10 s"};
                     e.samples.clear();
                   }));
  all.emplace_back("no case ran", failing_report([](CaseReport& c) {
                     c.verdict = Verdict::kBadInput;
                     c.reasons = {"config.json: hidden_size: found 7, wanted 1024"};
                     c.engines.clear();
                     c.ceiling = {};
                     c.comparisons.clear();
                   }));
  Report interrupted = failing_report([](CaseReport& c) { c.interrupted = true; });
  interrupted.interrupted = true;
  conclude(interrupted);
  all.emplace_back("interrupted", interrupted);
  return all;
}

// Every word at a path that ends in one of `names`.
void words_of(const json& j, const json::json_pointer& at, const std::vector<std::string>& names,
              std::vector<json::json_pointer>& out) {
  if (j.is_string() && std::count(names.begin(), names.end(), at.back()) > 0) out.push_back(at);
  if (j.is_object()) {
    for (const auto& [name, value] : j.items()) words_of(value, at / name, names, out);
  } else if (j.is_array()) {
    for (size_t i = 0; i < j.size(); ++i) words_of(j[i], at / i, names, out);
  }
}

TEST_CASE("a text by a tokenizer is computed from the tokens' texts in the report") {
  Report r = sound_report();
  CaseReport& c = r.cases[0];
  const std::vector<int32_t> ids = c.engines[0].samples[0].ids;
  for (const int32_t id : std::set<int32_t>(ids.begin(), ids.end()))
    c.token_texts.push_back({id, fmt::format("\\xc3-{}|", id)});
  c.generated_text = sequence_text(c.token_texts, ids).value();
  const json sound = to_json(r);
  CHECK(differences_of(sound, false).empty());
  const auto differs = [&](const std::function<void(json&)>& edit) {
    json edited = sound;
    edit(edited["cases"][0]);
    const std::vector<Difference> found = differences_of(edited, false);
    return found.size() == 1 && found[0].path == "cases[0].generated_text";
  };
  CHECK(differs([](json& one) { one["generated_text"] = "something else"; }));
  CHECK(differs([](json& one) { one["token_texts"][0]["text"] = "other"; }));
  CHECK(differs([](json& one) { one["token_texts"][0]["text"] = "\\q"; }));
  CHECK(differs([](json& one) { one["token_texts"].erase(0); }));
  CHECK(differs([](json& one) { one["token_texts"].clear(); }));
}

TEST_CASE("the bytes of a model without a row follow from what a step reads") {
  Report r = sound_report();
  const auto differ = [&] {
    const std::vector<Difference> found = differences_of(to_json(r), false);
    return std::any_of(found.begin(), found.end(), [](const Difference& d) {
      return d.path == "cases[0].memory.bytes_per_token";
    });
  };
  r.cases[0].reads = {.fixed = 12345};
  CHECK_FALSE(differ());  // a row has its own bytes, whatever a report says
  r.cases[0].engines[1].declared_bytes = true;
  CHECK(differ());  // but for an engine that declares how it keeps its weights
  r.cases[0].engines[1].declared_bytes = false;
  r.cases[0].model = "./mine";
  CHECK(differ());
  r.cases[0].reads = {};
  CHECK_FALSE(differ());
}

TEST_CASE("how many prompts of a live reference have a closed form is computed again") {
  Report r = sound_report();
  const auto found = [&](const std::string& text) {
    r.cases[0].live_check = text;
    return differences_of(to_json(r), false);
  };
  CHECK(found("").empty());
  CHECK(found("5 of 4 prompts have a closed form, and equal it").size() == 1);
  int equal = 0;
  for (int held = 0; held <= 4; ++held)
    equal += found(fmt::format("{} of 4 prompts have a closed form, and equal it", held)).empty();
  CHECK(equal == 1);
}

}  // namespace

TEST_CASE("a sound report has no difference, whatever its verdict") {
  std::vector<std::pair<std::string, Report>> reports = failing_reports();
  reports.emplace_back("sound", sound_report());
  for (const auto& [name, report] : reports) {
    INFO(name);
    const std::vector<Difference> found = differences_of(to_json(report), true);
    for (const Difference& d : found)
      UNSCOPED_INFO(d.path << ": found " << d.found << ", recomputed " << d.recomputed);
    CHECK(found.empty());
  }
}

TEST_CASE("every verdict, changed to every other word, is found by recomputing") {
  std::vector<std::pair<std::string, Report>> reports = failing_reports();
  reports.emplace_back("sound", sound_report());
  for (const auto& [name, report] : reports) {
    json written = to_json(report);
    written["seal"].erase("verdict");
    std::vector<json::json_pointer> words;
    words_of(written, json::json_pointer(), {"verdict", "status"}, words);
    CHECK(!words.empty());
    for (const json::json_pointer& at : words) {
      std::vector<std::string> others = {"FASTER", "SLOWER", "SAME", "INCONCLUSIVE"};
      for (const VerdictInfo& info : kVerdicts) others.emplace_back(info.name);
      for (const CheckStatus status : enum_values(Tag<CheckStatus>()))
        others.emplace_back(enum_text(status));
      for (const std::string& word : others) {
        if (written[at] == word) continue;
        json changed = written;
        changed[at] = word;
        INFO(name << ": " << at.to_string() << ": " << written[at] << " to " << word);
        CHECK(finds(changed, false));
      }
    }
  }
}

TEST_CASE("which comparisons are of too few processes is recomputed from the rows of A/A") {
  Report r = sound_report();
  json& row = r.calibration["clock"]["rows"][0];
  row["excluding_one"] = 29;
  sum_up(r, r.cases[0]);
  const ComparisonReport& found = r.cases[0].comparisons[0];
  CHECK(found.processes == 4);
  CHECK(found.verdict == "INCONCLUSIVE");
  CHECK_THAT(found.verdict_reason,
             ContainsText("29 of 200 intervals") && ContainsText("--processes 5 or more"));
  json written = to_json(r);
  CHECK(differences_of(written, true).empty());
  written["calibration"]["clock"]["rows"][0]["excluding_one"] = 21;
  const std::vector<Difference> all = differences_of(written, false);
  CHECK(std::any_of(all.begin(), all.end(), [](const Difference& d) {
    return d.path == "cases[0].comparisons[0].verdict" && d.recomputed == "\"FASTER\"";
  }));
}

TEST_CASE("every kind of number, edited, is found by recomputing or is a known input") {
  const json written = to_json(sound_report());
  std::vector<json::json_pointer> numbers;
  numbers_of(written, json::json_pointer(), numbers);
  // The first places of each kind and the last: what is computed from numbers differs little by their place.
  constexpr size_t kPlaces = 6;
  std::map<std::string, std::vector<json::json_pointer>> places;
  for (const json::json_pointer& at : numbers) {
    std::vector<json::json_pointer>& kind = places[pattern_of(at)];
    if (kind.size() == kPlaces) kind.pop_back();
    kind.push_back(at);
  }
  std::vector<std::string> unfound, known;
  for (const auto& [pattern, of_kind] : places) {
    bool found = true;
    for (const json::json_pointer& at : of_kind) {
      INFO(at.to_string());
      for (const json& edit : edits_of(written[at])) {
        json changed = written;
        changed[at] = edit;
        if (finds(changed, false)) continue;
        found = false;
        CHECK(finds(changed, true));
      }
    }
    if (!found) unfound.push_back(pattern);
  }
  for (const Inputs& inputs : kInputs)
    for (const std::string& object : inputs.objects)
      for (const std::string& field : inputs.fields) known.push_back(object + field);
  std::sort(known.begin(), known.end());
  CHECK(unfound == known);
}
