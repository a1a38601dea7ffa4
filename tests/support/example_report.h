// Reports with every kind of content, made of invented numbers, for tests of the readers and
// writers of reports.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "harness/judge/conclude.h"
#include "harness/report/report.h"

namespace mkbench::testing {

inline Sample example_sample(const std::string& engine, int block, int order, double ms_per_token,
                             int tokens) {
  Sample s;
  s.engine = engine;
  s.process = block / 2;
  s.block = block;
  s.order = order;
  s.tokens = tokens;
  s.start_ms = 10.0 + 1000 * block + 400 * order;
  const double wobble = 1 + 0.002 * ((block * 7 + order * 3) % 5 - 2);
  s.times.host_ms = ms_per_token * tokens * wobble;
  s.times.event_ms = s.times.host_ms * 0.999;
  s.times.sm_ghz = 1.98;
  for (int t = 0; t < tokens; ++t) {
    s.times.per_token_ms.push_back(s.times.host_ms / tokens * (t % 10 == 0 ? 1.09 : 0.99));
    s.ids.push_back(100 + t);
  }
  s.receipts_checked = tokens;
  s.late_id = 500 + block;
  s.state_checked = block == 0 ? "logits and KV rows" : "";
  s.valid = true;
  return s;
}

inline ParityReport example_parity() {
  ParityReport p;
  p.reference = "reference.json";
  p.reference_sha256 = std::string(64, 'a');
  p.prompts = 2;
  p.steps = 6;
  p.strict_steps = p.strict_matched = 3;
  p.decided_steps = 5;
  p.exact = 5;
  p.ties = 1;
  p.flips = 1;
  p.flips_allowed = 4;
  p.r_rms = 0.4187;
  p.r_rms_limit = 1.5;
  for (int i = 0; i < 6; ++i) {
    ParityRow row;
    row.prompt = i < 3 ? "counting" : "capital";
    row.set = i < 3 ? "strict" : "near-tie";
    row.position = 4 + i % 3;
    row.reference_id = 220 + i;
    row.engine_id = i == 4 ? 7 : row.reference_id;
    row.reference_text = i == 1 ? "|" : " w" + std::to_string(i);
    row.engine_text = i == 4 ? "\xc3\xa9\n" : row.reference_text;
    row.verdict = i == 4 ? StepVerdict::kTie : StepVerdict::kExact;
    row.margin = 0.5 * i;
    p.rows.push_back(row);
  }
  p.first_divergence = 4;
  p.checks = {
      {.check = Check::kRms, .value = 0.4187, .limit = 1.5},
      {.check = Check::kStep, .value = 0.9, .limit = 7.8},
      {.check = Check::kInf, .value = 0.5, .limit = 2.5},
      {.check = Check::kKl, .value = 0.3, .limit = 2.5},
      {.check = Check::kRatchet,
       .status = CheckStatus::kNotApplicable,
       .value = 0.4187,
       .detail = "reports/ratchet.json has no entry"},
      {.check = Check::kStrict},
  };
  return p;
}

inline EngineReport example_engine(const std::string& name, const std::string& role,
                                   double ms_per_token, int blocks, int tokens) {
  EngineReport e;
  e.name = name;
  e.resolved_name = name == "megakernel" ? "plain" : name;
  e.role = role;
  e.device = "cuda:0 Example GPU";
  e.verdict = Verdict::kPass;
  e.parity = example_parity();
  e.launches = 42;
  e.settings = role == "baseline" ? "allow_tf32=0" : "";
  for (int b = 0; b < blocks; ++b) {
    const int place = (role == "candidate") == (b % 4 == 0 || b % 4 == 3) ? 1 : 0;
    e.samples.push_back(example_sample(name, b, place, ms_per_token, tokens));
    if (b % 2 == 0)
      e.timed_processes.push_back(
          {.program = "mkbench-host-cuda", .pid = 1000 + b, .start_ms = 100, .open_ms = 50});
  }
  return e;
}

inline CeilingReport example_ceiling(double ms_per_token, int blocks, int tokens) {
  CeilingReport ceiling;
  ceiling.resolved_name = "ceiling";
  ceiling.device = "cuda:0 Example GPU";
  ceiling.settings = "bulk copies, 3 x 16 KiB in flight, 352.500 ns apart, the best of 40";
  for (int b = 0; b < blocks; ++b) {
    Sample s;
    s.engine = "ceiling";
    s.process = b / 2;
    s.block = b;
    s.order = 2;
    s.tokens = 2 * tokens;  // two passes
    s.times.host_ms = ms_per_token * s.tokens * (1 + 0.001 * (b % 3 - 1));
    s.valid = true;
    ceiling.samples.push_back(s);
  }
  return ceiling;
}

// Samples of the engine that is number `engine` of the orders.
inline void place_samples(const std::vector<std::vector<int>>& orders, int engine,
                          std::vector<Sample>& samples) {
  for (Sample& s : samples) {
    const std::vector<int>& order = orders[static_cast<size_t>(s.block)];
    s.order = static_cast<int>(std::find(order.begin(), order.end(), engine) - order.begin());
    s.start_ms = 10.0 + 1000 * s.block + 300 * s.order;
  }
}

inline CaseReport example_case(int depth, int blocks = 10, int tokens = 16) {
  CaseReport c;
  c.name = "synthetic d=" + std::to_string(depth) + " n=" + std::to_string(tokens);
  c.model = "synthetic";
  c.model_id = "synthetic:short";
  c.weights_sha256 = std::string(64, 'b');
  c.lagset = "short";
  c.depth = depth;
  c.n_gen = tokens;
  c.reference = "reference.json";
  c.reference_sha256 = std::string(64, 'a');
  c.reference_versions = "transformers 5.17.0, torch 2.11.0";
  c.timed_check = "closed form";
  c.ids_sha256 = std::string(64, 'c');
  c.generated_text = "one | two\nthree";
  c.bytes_needed = 3'000'000'000;
  c.bytes_free = 140'000'000'000;
  c.engines.push_back(example_engine("eager", "baseline", 9 + depth * 1e-4, blocks, tokens));
  c.engines.push_back(
      example_engine("megakernel", "candidate", 0.8 + depth * 1e-4, blocks, tokens));
  c.memory = memory_bound({.shape = kQwen3_0_6B}, depth, tokens, 0, 1600, 50'000'000);
  c.ceiling = example_ceiling(0.76 + depth * 1e-4, blocks, tokens);
  const auto orders = block_orders(3, blocks, false, 1);
  place_samples(orders, 0, c.engines[0].samples);
  place_samples(orders, 1, c.engines[1].samples);
  place_samples(orders, 2, c.ceiling.samples);
  return c;
}

inline Report example_report() {
  Report r;
  r.meta = {{"version", "0.1.0"},
            {"git_sha", "0123abc"},
            {"seed", 1},
            {"argv", {"mkbench", "--compare", "eager"}},
            {"output", "mkbench-report-example"}};
  r.environment = {
      {"device", "cuda:0 Example GPU"},
      {"gpu",
       {{"name", "Example GPU"}, {"sm", "9.0"}, {"driver", "580.1"}, {"cuda_runtime", "13.0"}}},
      {"libtorch", {{"version", "2.11.0"}}}};
  r.calibration = {{"pin_gb_per_s", 1600.0}};
  for (const int depth : {0, 512, 4096}) r.cases.push_back(example_case(depth));
  for (CaseReport& c : r.cases) aggregate(c, 0.95, 1, false);
  conclude(r);
  return r;
}

// A report with every kind of failure: a wrong token, a hang, a model that cannot be loaded (with a
// message of bytes that XML cannot hold), a skipped engine.
inline Report example_failed_report() {
  Report r = example_report();
  EngineReport& wrong = r.cases[0].engines[1];
  wrong.verdict = wrong.parity->verdict = Verdict::kFailToken;
  wrong.reasons = {"counting: position 5: found 7, wanted 221"};
  wrong.parity->rows[1].verdict = StepVerdict::kWrong;
  wrong.parity->rows[1].engine_id = 7;
  wrong.parity->checks[0].status = CheckStatus::kFailed;
  wrong.parity->checks[0].value = 2.5;
  wrong.receipts_wrong = 3;
  wrong.parity->localised = "KV row 4 of layer 7 first";
  wrong.parity->diagnosis = {.text = "the logits are those of: GELU for SiLU", .names = {"gelu"}};
  EngineReport& hung = r.cases[1].engines[1];
  hung.verdict = Verdict::kHang;
  hung.parity.reset();
  hung.reasons = {"no progress for 10 s"};
  hung.samples.clear();
  r.cases[1].engines[0].verdict = Verdict::kSkipped;
  r.cases[1].engines[0].reasons = {"not here"};
  r.cases[2].engines.clear();
  r.cases[2].verdict = Verdict::kBadInput;
  r.cases[2].reasons = {"a<b> & \"c\" \x07 \xff \xef\xbf\xbf \xc3\xa9"};
  conclude(r);
  return r;
}

inline ProfileReport example_profile(double no_waits_us, double no_loads_us) {
  ProfileReport profile;
  profile.no_waits_runs_us = {no_waits_us + 100, no_waits_us, no_waits_us - 50};
  profile.no_loads_runs_us = {no_loads_us, no_loads_us, 10 * no_loads_us};
  return profile;
}

// A card that was read, a block of it dropped, and clocks that were compared.
inline void add_example_card(EngineReport& e) {
  Telemetry card;
  card.readings = 4;
  card.sm_clock_mhz = card.sm_clock_min_mhz = 1980;
  card.memory_clock_mhz = 2619;
  card.power_w = 412.5;
  card.temperature_c = 54;
  card.limits = "idle";
  card.energy_j = 52;
  card.energy_ms = 130;
  card.counts_energy = true;
  for (Sample& s : e.samples) s.card = card;
  e.dropped_samples = {e.samples[0]};
  e.dropped_samples[0].card->limits = e.dropped_samples[0].card->throttled = "power cap";
  e.dropped_samples[0].dropped_for = "power cap";
  e.throttle_reasons = {"power cap"};
  e.clock_overhead = ClockOverhead{.runs = 20, .event_ms = 0.001, .event_sd_ms = 0.03};
}

// example_report() with ablations and a card that was read at depth 0, a baseline that only judges at
// 512, and a prefill test.
inline Report example_diagnosed_report() {
  Report r = example_report();
  add_example_card(r.cases[0].engines[1]);
  r.cases[0].engines[1].profile = example_profile(770, 300);
  r.cases[1].engines[0].timed = false;
  r.cases[1].engines[0].samples.clear();
  r.cases[2].name = "synthetic pp512";
  r.cases[2].n_prompt = 512;
  r.cases[2].depth = r.cases[2].n_gen = 0;
  r.cases[2].memory = memory_bound({.shape = kQwen3_0_6B}, 0, 0, 512, 1600, 50'000'000);
  r.cases[2].ceiling = {};
  r.cases[2].ceiling.reason = "a prefill test does not read the weights once a token";
  for (EngineReport& e : r.cases[2].engines) {
    for (Sample& s : e.samples) s.prefill_ms = 0.9 * s.times.host_ms;
  }
  for (CaseReport& c : r.cases) aggregate(c, 0.95, 1, false);
  conclude(r);
  return r;
}

// example_report() on a CPU: host twin, no ceiling.
inline Report example_cpu_report() {
  Report r = example_report();
  r.environment = {
      {"device", "cpu"}, {"cpu", {{"name", "Example CPU"}}}, {"libtorch", {{"version", "2.11.0"}}}};
  r.calibration = nullptr;
  r.cases.resize(1);
  CaseReport& c = r.cases[0];
  c.model = c.model_id = "tiny";
  c.name = "tiny d=0 n=16";
  c.timed_check = "late ids, scored by the truth";
  c.memory = memory_bound({.shape = kTiny}, 0, 16, 0, 0, 0);
  c.ceiling = {};
  c.ceiling.reason = "no GPU";
  for (EngineReport& e : c.engines) {
    e.device = "cpu";
    for (Sample& s : e.samples) s.times.event_ms = s.times.sm_ghz = 0;
  }
  c.engines[1].name = c.engines[1].resolved_name = "host-twin";
  for (Sample& s : c.engines[1].samples) s.engine = "host-twin";
  aggregate(c, 0.95, 1, false);
  conclude(r);
  return r;
}

}  // namespace mkbench::testing
