// mkbench verify: every number of a report is edited in turn, and what recomputing does not find is a
// short list of inputs, each with its reason. The seal finds those too.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>

#include "harness/flow/text.h"
#include "harness/flow/timed_truth.h"
#include "harness/parent/recompute.h"
#include "harness/report/render.h"
#include "references/base/json_fields.h"
#include "references/base/sha256.h"
#include "tests/support/catch2.h"
#include "tests/support/example_report.h"

using namespace mkbench;
using nlohmann::json;

namespace {

constexpr int kDepth = 512, kTokens = 4, kBlocks = 8;
constexpr uint64_t kPromptSeed = 77;

json option(const std::string& text) { return {{"value", text}, {"source", "default"}}; }

// The timed prompt and ids as a run would have had them.
void time_for_real(CaseReport& c) {
  CaseJob job;
  job.model = c.model;
  job.depth = c.depth;
  job.n_gen = c.n_gen;
  job.prompt_seed = kPromptSeed;
  ModelWeights weights;
  weights.lagset = c.lagset;
  weights.config.shape = kQwen3_0_6B;
  const TimedTruth truth = find_timed_truth(job, weights);
  c.ids_sha256 = sha256_hex(truth.prompt.data(), truth.prompt.size() * sizeof(int32_t));
  for (EngineReport& e : c.engines) {
    for (Sample& s : e.samples) {
      s.engine = e.resolved_name;
      s.late_id = truth.late_ids.at(static_cast<size_t>(1000 + s.block));
      s.ids = truth.expected(*s.late_id, c.n_gen).value();
    }
  }
  c.generated_text = sequence_text(kQwen3_0_6B, c.engines[0].samples[0].ids);
}

Report sound_report() {
  Report r = testing::example_report();
  r.cases = {testing::example_case(kDepth, kBlocks, kTokens)};
  r.meta["options"] = {
      {"confidence", option("0.95")}, {"seed", option("1")}, {"order", option("abba")}};
  r.meta["prompt_seed"] = kPromptSeed;
  r.environment["gpu"]["l2_bytes"] = 50'000'000;
  time_for_real(r.cases[0]);
  for (EngineReport& e : r.cases[0].engines) e.parity->precision = "bf16";
  r.cases[0].engines[1].profile = testing::example_profile(770, 300);
  aggregate(r.cases[0], 0.95, 1, false);
  r.reasons.clear();
  conclude(r);
  return r;
}

std::vector<Difference> differences_of(const json& written, bool sealed) {
  Differences differences;
  const Report report = json_fields::read_as<Report>(written, "");
  recompute(report, written, differences);
  if (sealed) recheck_seal(written, differences);
  return differences.all();
}

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

// Numbers that nothing is computed from, or not always.
const std::map<std::string, std::string> kInputs = {};

}  // namespace

TEST_CASE("a sound report has no difference") {
  const json written = to_json(sound_report());
  const std::vector<Difference> found = differences_of(written, true);
  for (const Difference& d : found)
    UNSCOPED_INFO(d.path << ": " << d.found << " / " << d.recomputed);
  CHECK(found.empty());
}

TEST_CASE("every number, edited in turn, is found by recomputing or is a known input") {
  const json written = to_json(sound_report());
  std::vector<json::json_pointer> numbers;
  numbers_of(written, json::json_pointer(), numbers);
  std::map<std::string, int> unfound;
  int missed = 0;
  for (const json::json_pointer& at : numbers) {
    INFO(at.to_string());
    bool found = true;
    for (const json& edit : edits_of(written[at])) {
      json changed = written;
      changed[at] = edit;
      found = found && finds(changed, false);
      CHECK(finds(changed, true));
    }
    if (found) continue;
    ++missed;
    ++unfound[pattern_of(at)];
  }
  fmt::print("{} of {} numbers are not found by recomputing ({:.1f} %)\n", missed, numbers.size(),
             100.0 * missed / static_cast<double>(numbers.size()));
  for (const auto& [path, count] : unfound) fmt::print("  {} ({})\n", path, count);
  std::vector<std::string> found_list, known_list;
  for (const auto& [path, count] : unfound) found_list.push_back(path);
  for (const auto& [path, reason] : kInputs) known_list.push_back(path);
  CHECK(found_list == known_list);
}
