#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "harness/archive/recompute.h"
#include "harness/engines/plugin_file.h"
#include "harness/flow/text.h"
#include "harness/flow/timed_truth.h"
#include "harness/judge/check_reference.h"
#include "harness/measure/statistics.h"
#include "references/base/json_fields.h"
#include "references/base/sha256.h"
#include "references/model_row.h"

namespace mkbench {
namespace {

using nlohmann::json;

// The job of a timed case: only the fields on which the case's name and prompt depend.
CaseJob job_of(const CaseReport& c, const CaseSettings& settings, const json& meta) {
  CaseJob job;
  job.model = {.row = find_model(c.model), .name = c.model};
  job.depth = c.depth;
  job.n_gen = c.n_gen;
  job.n_prompt = c.n_prompt;
  job.ids = settings.ids;
  if (meta.is_object() && meta.value("prompt_seed", json()).is_number_unsigned())
    job.prompt_seed = meta["prompt_seed"].get<uint64_t>();
  return job;
}

// Checks one sample against its engine and its case.
void recheck_sample(const CaseReport& c, const EngineReport& e, const Sample& s,
                    const std::string& path, Differences& d) {
  const Sample& first = e.samples.empty() ? e.dropped_samples.front() : e.samples.front();
  d.holds(s.engine == first.engine && (is_file_engine(e.name) || s.engine == e.resolved_name),
          path + ".engine", s.engine, "the engine that holds the sample");
  d.holds(s.process >= 0 && s.process < std::ssize(e.timed_processes), path + ".process", s.process,
          fmt::format("one of {} processes", e.timed_processes.size()));
  d.holds(s.valid == s.invalid_reason.empty(), path + ".valid", s.valid,
          s.valid ? "false: invalid_reason says why" : "true: there is no invalid_reason");
  d.holds(!s.valid || s.receipts_wrong == 0, path + ".receipts_wrong", s.receipts_wrong,
          "0: the sample is valid");
  if (!s.valid) return;
  const bool prefill = c.n_prompt > 0;
  const int tokens = prefill ? c.n_prompt : c.n_gen;
  const size_t ids = static_cast<size_t>(prefill ? kPrefillCheckTokens : c.n_gen);
  d.same(path + ".tokens", s.tokens, tokens);
  d.holds(s.ids.size() == ids, path + ".ids", s.ids.size(), fmt::format("{} ids", ids));
  const int checked = static_cast<int>(ids);
  d.holds(s.receipts_checked == checked || (prefill && s.receipts_checked == checked + c.n_prompt),
          path + ".receipts_checked", s.receipts_checked,
          fmt::format("{}: one for each id", checked));
  d.holds(prefill ? s.prefill_ms > 0 && s.prefill_ms <= s.times.host_ms : s.prefill_ms == 0,
          path + ".prefill_ms", s.prefill_ms,
          prefill ? "a time over 0 and within host_ms" : "0: not a prefill test");
}

// Checks `dropped_for`: empty in a sample that counts, else the card's state or kOtherEngine.
void recheck_dropped(const Sample& s, bool dropped, const std::string& path, Differences& d) {
  const std::string at = path + ".dropped_for";
  if (!dropped) {
    d.holds(s.dropped_for.empty(), at, s.dropped_for, "nothing: the sample stands");
    return;
  }
  d.holds(!has_failed(s), path + ".valid", s.valid, "true: a sample that fails is not dropped");
  const bool throttled = s.card && !s.card->throttled.empty();
  const bool known =
      s.dropped_for == kOtherEngine || (throttled ? s.dropped_for == s.card->throttled
                                                  : s.card && s.dropped_for == kSlowClockReason);
  d.holds(known, at, s.dropped_for,
          throttled ? s.card->throttled : std::string("a reason that the sample's card shows"));
}

// Checks a sample of the ceiling: whole passes over the case's steps, never judged.
void recheck_ceiling_sample(const CaseReport& c, const Sample& s, const std::string& path,
                            Differences& d) {
  d.holds(s.engine == c.ceiling.resolved_name, path + ".engine", s.engine,
          c.ceiling.resolved_name + ", the engine that holds the sample");
  d.holds(s.valid && s.invalid_reason.empty(), path + ".valid", s.valid, "true: never judged");
  d.holds(c.n_gen > 0 && s.tokens > 0 && s.tokens % c.n_gen == 0, path + ".tokens", s.tokens,
          fmt::format("a multiple of the {} steps of the case", c.n_gen));
  d.holds(s.receipts_checked == 0 && s.receipts_wrong == 0, path + ".receipts_checked",
          s.receipts_checked, "0: the ceiling has no ids");
  d.holds(s.prefill_ms == 0, path + ".prefill_ms", s.prefill_ms, "0: not a prefill test");
}

// Checks that an engine has each clock in all of its samples or in none, and that in valid samples
// no clock inside the call shows more than host_ms. If the overhead was measured only once,
// clock_disagreement() must find nothing either.
void recheck_clocks(const EngineReport& e, const std::string& path, Differences& d) {
  const ClockOverhead overhead = e.clock_overhead.value_or(ClockOverhead{});
  const bool measured_once = overhead.runs == kOverheadRuns && e.timed_processes.size() <= 1;
  for (size_t i = 0; i < e.samples.size(); ++i) {
    const DecodeTimes& t = e.samples[i].times;
    const DecodeTimes& first = e.samples.front().times;
    const std::string at = item(path, "samples", i) + ".times";
    const std::tuple<const char*, double, double, double> kClocks[] = {
        {"event_ms", t.event_ms, first.event_ms, overhead.event_sd_ms},
        {"device_ms", t.device_ms, first.device_ms, overhead.device_sd_ms}};
    for (const auto& [name, ms, first_ms, sd_ms] : kClocks) {
      const std::string clock = fmt::format("{}.{}", at, name);
      d.holds((ms > 0) == (first_ms > 0), clock, ms, "this clock in all samples or in none");
      d.holds(!e.samples[i].valid || (1 - kClockShare) * ms <= t.host_ms + kClockSds * sd_ms, clock,
              ms, fmt::format("at most host_ms, {}, plus both clocks' deviations", t.host_ms));
    }
    const std::string clocks = measured_once ? clock_disagreement(t, overhead) : std::string();
    d.holds(!e.samples[i].valid || clocks.empty(), at, json_fields::write(t), clocks);
    d.holds((t.sm_ghz > 0) == (first.sm_ghz > 0), at + ".sm_ghz", t.sm_ghz,
            "this clock in all samples or in none");
    d.holds(t.per_token_ms.size() == first.per_token_ms.size() ||
                t.per_token_ms.size() == static_cast<size_t>(e.samples[i].tokens),
            at + ".per_token_ms", t.per_token_ms.size(), "one time for each token");
  }
}

struct PlacedSample {
  const Sample* sample;
  std::string path;
  const EngineReport* engine;  // null: the ceiling
  bool dropped;

  int block() const { return sample->block; }
  double end_ms() const { return sample->start_ms + sample->times.host_ms; }
};

// All samples of a case, sorted by start time, then by block and place in the block.
std::vector<PlacedSample> samples_of(const CaseReport& c, const std::string& path) {
  std::vector<PlacedSample> all;
  const auto add = [&](const std::vector<Sample>& samples, const std::string& of, const char* list,
                       const EngineReport* engine, bool dropped) {
    for (size_t i = 0; i < samples.size(); ++i)
      all.push_back({&samples[i], item(of, list, i), engine, dropped});
  };
  for (size_t k = 0; k < c.engines.size(); ++k) {
    const EngineReport& e = c.engines[k];
    add(e.samples, item(path, "engines", k), "samples", &e, false);
    add(e.dropped_samples, item(path, "engines", k), "dropped_samples", &e, true);
  }
  add(c.ceiling.samples, path + ".ceiling", "samples", nullptr, false);
  std::sort(all.begin(), all.end(), [](const PlacedSample& a, const PlacedSample& b) {
    return std::tuple(a.sample->start_ms, a.block(), a.sample->order) <
           std::tuple(b.sample->start_ms, b.block(), b.sample->order);
  });
  return all;
}

// How often each dropped block may have been run: once more than it was dropped.
std::map<int, int> runs_of_blocks(const CaseReport& c) {
  std::map<int, int> runs;
  for (const EngineReport& e : c.engines) {
    std::map<int, int> drops;
    for (const Sample& s : e.dropped_samples) ++drops[s.block];
    for (const auto& [block, count] : drops) runs[block] = std::max(runs[block], 1 + count);
  }
  return runs;
}

// Checks that samples do not overlap; that processes, blocks and places within a block ascend
// (dropped blocks are run again later); and that all samples of one run of a block have the same
// late id (repeated samples excepted).
void recheck_sequence(const CaseReport& c, const std::vector<PlacedSample>& samples,
                      Differences& d) {
  const std::map<int, int> most_runs = runs_of_blocks(c);
  std::map<int, int> runs;
  std::map<int, int32_t> late_ids;  // in the current run of each block
  for (size_t i = 0; i < samples.size(); ++i) {
    const PlacedSample& one = samples[i];
    const PlacedSample* before = i > 0 ? &samples[i - 1] : nullptr;
    const Sample& s = *one.sample;
    const std::string start = one.path + ".start_ms";
    if (before != nullptr) {
      d.holds(s.start_ms >= before->end_ms() * (1 - 1e-9), start, s.start_ms,
              fmt::format("at least {}, where {} ends", before->end_ms(), before->path));
      d.holds(s.process >= before->sample->process, one.path + ".process", s.process,
              fmt::format("at least {}, the process of {}", before->sample->process, before->path));
    }
    const bool goes_on =
        before != nullptr && before->block() == s.block && before->sample->order < s.order;
    if (!goes_on) {
      const int run = ++runs[s.block];
      const auto dropped = most_runs.find(s.block);
      const int most = dropped == most_runs.end() ? 1 : dropped->second;
      const bool in_turn = run > 1 ? run <= most : s.block + 1 == std::ssize(runs);
      d.holds(in_turn, start, s.start_ms,
              before == nullptr ? fmt::format("the start of block 0, not of block {}", s.block)
                                : fmt::format("an order of blocks in which {} follows {}", one.path,
                                              before->path));
      late_ids.erase(s.block);
    }
    d.holds(!one.dropped || runs[s.block] < most_runs.at(s.block), start, s.start_ms,
            "the start of a run that was repeated");
    if (!s.late_id || s.repeats > 0) continue;
    const auto [known, is_new] = late_ids.try_emplace(s.block, *s.late_id);
    if (!is_new) d.same(one.path + ".late_id", *s.late_id, known->second);
  }
}

// Samples of one engine, to be compared with the block orders.
struct Placed {
  size_t number;  // the engine's index in the case; the ceiling comes last
  std::string path;
  const std::vector<Sample>* samples;
  const std::vector<Sample>* dropped;  // null: the ceiling keeps none
  std::set<int> dropped_alone;         // dropped blocks without a later complete run
};

std::vector<Placed> placed_engines(const CaseReport& c, const std::string& path,
                                   bool with_samples) {
  std::vector<Placed> placed;
  bool cuda = false;
  for (size_t k = 0; k < c.engines.size(); ++k) {
    const EngineReport& e = c.engines[k];
    cuda = cuda || e.device.starts_with("cuda");
    const bool sampled = !e.samples.empty() || !e.dropped_samples.empty();
    if (sampled != with_samples || !e.timed) continue;
    placed.push_back({k, item(path, "engines", k), &e.samples, &e.dropped_samples, {}});
    std::set<int>& alone = placed.back().dropped_alone;
    for (const Sample& s : e.dropped_samples) alone.insert(s.block);
    for (const Sample& s : e.samples) alone.erase(s.block);
  }
  if (cuda && !c.ceiling.samples.empty() == with_samples)
    placed.push_back({c.engines.size(), path + ".ceiling", &c.ceiling.samples, nullptr, {}});
  return placed;
}

int64_t place_in(const std::vector<int>& order, int engine) {
  return std::find(order.begin(), order.end(), engine) - order.begin();
}

// Adds to `wrong` an engine's samples with a wrong place or block; `place` is the engine's number
// in the orders.
void add_wrong_places(const Placed& engine, int place, const std::vector<std::vector<int>>& orders,
                      std::vector<Difference>& wrong) {
  std::vector<size_t> by_block(engine.samples->size());
  std::iota(by_block.begin(), by_block.end(), size_t{0});
  std::stable_sort(by_block.begin(), by_block.end(), [&](size_t a, size_t b) {
    return (*engine.samples)[a].block < (*engine.samples)[b].block;
  });
  int block = 0;
  for (const size_t i : by_block) {
    const Sample& s = (*engine.samples)[i];
    while (engine.dropped_alone.contains(block)) ++block;
    const std::vector<int>& order = orders[std::min(static_cast<size_t>(block), orders.size() - 1)];
    const auto wanted = place_in(order, place);
    if (s.order != wanted || s.block != block) {
      wrong.push_back(
          {item(engine.path, "samples", i) + ".order",
           fmt::format("place {} of block {}", s.order, s.block),
           fmt::format("place {} of block {}, from --order and --seed", wanted, block)});
    }
    ++block;
  }
  if (engine.dropped == nullptr) return;
  for (size_t i = 0; i < engine.dropped->size(); ++i) {
    const Sample& s = (*engine.dropped)[i];
    const auto known = static_cast<size_t>(std::clamp<int64_t>(s.block, 0, std::ssize(orders) - 1));
    if (s.order == place_in(orders[known], place)) continue;
    wrong.push_back({item(engine.path, "dropped_samples", i) + ".order",
                     fmt::format("place {} of block {}", s.order, s.block),
                     "another place, from --order and --seed"});
  }
}

// Checks the place of each engine in each block. An engine that failed before its first sample may
// or may not have had a place, so every subset of such engines is tried.
void recheck_order(const CaseReport& c, const std::string& path, const CaseSettings& settings,
                   Differences& d) {
  const std::vector<Placed> sampled = placed_engines(c, path, true),
                            silent = placed_engines(c, path, false);
  int blocks = 1;
  for (const Placed& engine : sampled) {
    for (const Sample& s : *engine.samples) blocks = std::max(blocks, s.block + 1);
  }
  constexpr size_t kMostSilent = 6;
  constexpr int kMostBlocks = 1 << 20;
  if (sampled.empty() || silent.size() > kMostSilent || blocks > kMostBlocks) return;
  const auto wrong_places = [&](size_t set) {
    std::vector<Placed> engines = sampled;
    for (size_t i = 0; i < silent.size(); ++i) {
      if ((set >> i & 1) != 0) engines.push_back(silent[i]);
    }
    std::sort(engines.begin(), engines.end(),
              [](const Placed& a, const Placed& b) { return a.number < b.number; });
    const std::vector<std::vector<int>> orders = block_orders(
        static_cast<int>(engines.size()), blocks, settings.random_order, settings.seed);
    std::vector<Difference> wrong;
    for (size_t place = 0; place < engines.size(); ++place)
      add_wrong_places(engines[place], static_cast<int>(place), orders, wrong);
    return wrong;
  };
  const std::vector<Difference> first = wrong_places(0);
  bool explained = first.empty();
  for (size_t set = 1; !explained && set < (size_t{1} << silent.size()); ++set)
    explained = wrong_places(set).empty();
  for (const Placed& engine : sampled) d.count(std::ssize(*engine.samples));
  if (explained) return;
  for (const Difference& one : first) d.holds(false, one.path, one.found, one.recomputed);
}

// Checks the first sample's text by token_texts or, without any, by the rule for built-in models.
void recheck_text(const CaseReport& c, const std::string& path, const ModelRow* row,
                  const std::vector<PlacedSample>& samples, Differences& d) {
  const auto first = std::find_if(samples.begin(), samples.end(),
                                  [](const PlacedSample& one) { return one.engine != nullptr; });
  if (first == samples.end() || first->sample->repeats != 0 || !first->sample->valid) return;
  const std::vector<int32_t>& ids = first->sample->ids;
  const std::string at = path + ".generated_text";
  if (!c.token_texts.empty()) {
    const auto text = sequence_text(c.token_texts, ids);
    d.holds(text && *text == c.generated_text, at, c.generated_text,
            text ? *text : "nothing: token_texts lacks an id, or a text does not encode bytes");
  } else if (row != nullptr) {
    d.same(at, c.generated_text, sequence_text(row->shape, ids));
  }
}

// Checks how many prompts of a live reference have a closed form; the seed gives the prompts.
void recheck_live(const CaseReport& c, const std::string& path, const ModelRow& row, CaseJob job,
                  const CaseSettings& settings, Differences& d) {
  if (c.live_check.empty()) return;
  job.seed = settings.seed;
  GreedyReference live;
  for (std::vector<int32_t>& ids : live_parity_prompts(job, row.shape, {}))
    live.prompts.emplace_back().ids = std::move(ids);
  d.same(path + ".reference.live_check", c.live_check,
         is_analytic(&row) ? live_check_text(live, parity_lagset(row), row.shape.vocab) : "");
}

// Checks the timed prompt against its seed and, on analytic weights, the ids that follow it.
void recheck_prompt(const CaseReport& c, const std::string& path, const CaseJob& job,
                    const ModelShape& shape, const std::vector<PlacedSample>& samples,
                    Differences& d) {
  ModelWeights weights;
  weights.lagset = c.lagset;
  weights.salt = c.salt;
  weights.config.shape = shape;
  const TruthOf truth_of = truth_by_process(job, weights);
  const TimedTruth& truth = truth_of(0);
  d.same(path + ".ids_sha256", c.ids_sha256,
         sha256_hex(truth.prompt.data(), truth.prompt.size() * sizeof(int32_t)));
  d.same(path + ".reference.timed_check", c.timed_check, truth.check());
  for (const PlacedSample& one : samples) {
    const Sample& s = *one.sample;
    if (!s.late_id || !s.valid) continue;
    const TimedTruth& own = truth_of(s.process);
    const bool known =
        std::find(own.late_ids.begin(), own.late_ids.end(), *s.late_id) != own.late_ids.end();
    d.holds(known, one.path + ".late_id", *s.late_id,
            "one of the ids from which late ids are drawn");
    if (!known) continue;
    const auto expected = own.expected(*s.late_id, static_cast<int>(s.ids.size()));
    if (expected) d.same(one.path + ".ids", s.ids, *expected);
  }
}

}  // namespace

void recheck_samples(const CaseReport& c, const std::string& path, const CaseSettings& settings,
                     const json& meta, Differences& differences) {
  const std::vector<PlacedSample> samples = samples_of(c, path);
  const CaseJob job = job_of(c, settings, meta);
  if (c.n_gen > 0 || c.n_prompt > 0) differences.same(path + ".name", c.name, case_name(job));
  for (size_t k = 0; k < c.engines.size(); ++k) {
    const EngineReport& e = c.engines[k];
    const std::string engine = item(path, "engines", k);
    differences.holds(e.role == "baseline" || e.role == "candidate", engine + ".role", e.role,
                      "baseline or candidate");
    recheck_clocks(e, engine, differences);
  }
  for (const PlacedSample& one : samples) {
    if (one.engine == nullptr) {
      recheck_ceiling_sample(c, *one.sample, one.path, differences);
    } else {
      recheck_sample(c, *one.engine, *one.sample, one.path, differences);
      recheck_dropped(*one.sample, one.dropped, one.path, differences);
    }
  }
  if (samples.empty()) return;
  recheck_sequence(c, samples, differences);
  recheck_order(c, path, settings, differences);
  const ModelRow* row = job.model.row;
  recheck_text(c, path, row, samples, differences);
  if (row != nullptr) recheck_live(c, path, *row, job, settings, differences);
  if (row != nullptr && meta.is_object() && meta.contains("prompt_seed"))
    recheck_prompt(c, path, job, row->shape, samples, differences);
}

}  // namespace mkbench
