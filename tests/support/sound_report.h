// A report that follows from its samples, as a run would have written it, and what verify says of a JSON.
#pragma once

#include <fmt/format.h>

#include "harness/archive/clock_file.h"
#include "harness/archive/recompute.h"
#include "harness/flow/text.h"
#include "harness/flow/timed_truth.h"
#include "harness/judge/conclude.h"
#include "harness/report/render.h"
#include "references/base/json_fields.h"
#include "references/base/sha256.h"
#include "tests/support/example_report.h"

namespace mkbench {

using nlohmann::json;

constexpr int kDepth = 512, kTokens = 4, kBlocks = 8;
constexpr uint64_t kPromptSeed = 77;

inline json option(const std::string& text) { return {{"value", text}, {"source", "default"}}; }

// The timed prompt and ids as a run would have had them.
inline void time_for_real(CaseReport& c) {
  CaseJob job;
  job.model = {.row = find_model(c.model), .name = c.model};
  job.depth = c.depth;
  job.n_gen = c.n_gen;
  job.prompt_seed = kPromptSeed;
  ModelWeights weights;
  weights.lagset = c.lagset;
  weights.salt = c.salt;
  weights.config.shape = kQwen3_0_6B;
  const TimedTruth truth = find_timed_truth(job, weights);
  c.ids_sha256 = sha256_hex(truth.prompt.data(), truth.prompt.size() * sizeof(int32_t));
  for (EngineReport& e : c.engines) {
    for (std::vector<Sample>* samples : {&e.samples, &e.dropped_samples}) {
      const int first = samples == &e.samples ? 1000 : 2000;
      for (Sample& s : *samples) {
        s.engine = e.resolved_name;
        s.late_id = truth.late_ids.at(static_cast<size_t>(first + s.block));
        s.ids = find_timed_truth(job, weights, s.process).expected(*s.late_id, c.n_gen).value();
      }
    }
  }
  ObservedReport& observed = c.engines.back().observed;
  observed.handovers = {{0, 2, {1.0}, {1.2}}};
  observed.decodes = {{0, 0, c.n_gen, 1.1 * c.engines.back().samples[0].times.host_ms}};
  c.generated_text = sequence_text(kQwen3_0_6B, c.engines[0].samples[0].ids);
}

inline void sum_up(const Report& r, CaseReport& c) {
  aggregate(c, 0.95, 1, false, recorded_margin(r.calibration));
}

// Block 2 as it was run after block 4, and in its process.
inline void run_again(std::vector<Sample>& samples) {
  samples[2].start_ms = 4830 + 50 * samples[2].order;
  samples[2].process = samples[4].process;
  std::rotate(samples.begin() + 2, samples.begin() + 3, samples.begin() + 5);
}

// Block 2 was throttled in the first engine's sample, and run again after block 4. All engines had
// their clocks compared and the card read.
inline void drop_a_block(CaseReport& c) {
  for (EngineReport& e : c.engines) {
    testing::add_example_card(e);
    e.throttle_reasons = {"idle", "power cap"};
    e.dropped_samples = {e.samples[2]};
    Sample& dropped = e.dropped_samples[0];
    const bool first = &e == &c.engines[0];
    if (first) dropped.card->limits = dropped.card->throttled = "power cap";
    dropped.dropped_for = first ? "power cap" : kOtherEngine;
    run_again(e.samples);
  }
  run_again(c.ceiling.samples);
}

inline json row_of(int processes, double half_width) {
  return {{"processes", processes}, {"splits", 200},         {"excluding_one", 9},
          {"most_allowed", 21},     {"faster_or_slower", 0}, {"half_width", half_width}};
}

inline Report sound_report() {
  Report r = testing::example_report();
  r.cases = {testing::example_case(kDepth, kBlocks, kTokens)};
  r.meta["options"] = {
      {"confidence", option("0.95")}, {"seed", option("1")}, {"order", option("abba")}};
  r.meta["prompt_seed"] = kPromptSeed;
  r.environment["gpu"]["l2_bytes"] = 50'000'000;
  r.environment["gpu"]["pin_gb_per_s"] = 1600.0;
  r.calibration["clock"] = {{"half_width", 0.008},
                            {"margin", 0.012},
                            {"alpha", 0.05},
                            {"processes", 3},
                            {"rows", json::array({row_of(3, 0.008), row_of(5, 0.006)})},
                            {"source", "A/A of 60 processes, 2026-11-23"}};
  drop_a_block(r.cases[0]);
  r.cases[0].salt = 11;
  time_for_real(r.cases[0]);
  for (EngineReport& e : r.cases[0].engines) e.parity->precision = "bf16";
  r.cases[0].engines[1].profile = testing::example_profile(770, 300);
  sum_up(r, r.cases[0]);
  r.reasons.clear();
  conclude(r);
  return r;
}

inline std::vector<Difference> differences_of(const json& written, bool sealed) {
  Differences differences;
  recompute(report_of(written), written, differences);
  if (sealed) recheck_seal(written, differences);
  return differences.all();
}

inline std::string refusal(const json& written) {
  try {
    report_of(written);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The report as a minor version of the schema.
inline json of_version(json report, int minor) {
  report["schema"]["version"] = fmt::format("{}.{}.0", kReportSchemaMajor, minor);
  report["seal"] = seal_of(report);
  return report;
}

}  // namespace mkbench
