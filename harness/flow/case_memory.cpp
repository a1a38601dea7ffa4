#include "harness/flow/case_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <vector>

#include "harness/flow/gate.h"
#include "harness/flow/state_receipt.h"
#include "harness/flow/timed_truth.h"
#include "references/base/error.h"
#include "references/model_row.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

std::string megabytes(int64_t bytes) {
  return fmt::format("{:.0f} MB", static_cast<double>(bytes) / 1e6);
}

// The largest depth at which a reduced case fits, and the memory that it takes there.
struct Fitting {
  int depth = 0;
  CaseMemory memory;
};

CaseJob at_depth(CaseJob job, int depth) {
  if (!job.ids.empty()) {
    job.ids.resize(static_cast<size_t>(depth) + 1);
  } else if (job.n_prompt > 0) {
    job.n_prompt = depth;
  } else {
    job.depth = depth;
  }
  return job;
}

// case_memory() without `free`.
CaseMemory needed_memory(const CaseJob& job, const CaseServices& services,
                         const ModelConfig& config) {
  int positions = timed_positions(job);
  if (!job.judged)
    positions = std::max(positions, planned_parity_positions(job, services, config.shape));
  const int context = context_for(positions, config.max_positions);
  // The processes of the case start side by side; each is queried below.
  std::vector<std::string> names;
  for (const CaseEngine& engine : job.engines) names.push_back(engine.name);
  const JudgeRuns judges = judge_runs(job);
  if (!job.judged) names.push_back(judges.head_fp32);
  if (job.no_ceiling.empty()) names.emplace_back(kCeilingName);
  services.expect(names);
  // An engine that has no code for the model takes nothing: the case refuses it.
  const auto bytes = [&](const std::string& name) -> int64_t {
    try {
      return services.bytes(
          {.name = name, .max_context = context, .settings = hf_settings(job, name)}, config);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kBadInput) throw;
      return 0;
    }
  };
  const auto together = [&](int64_t& needed, int64_t one) {
    needed = job.one_at_a_time ? std::max(needed, one) : needed + one;
  };
  CaseMemory memory;
  if (!job.judged) {
    const CaseShapes shapes = planned_shapes(job, services, config.shape, false);
    // The judge's run with an fp32 head (and the truth, if no reference is committed) needs memory
    // only beside the judge; its process stays while the other engines open.
    const int64_t runs = services.process_bytes(judges.head_fp32, shapes);
    int64_t beside_the_judge = runs + bytes(judges.head_fp32), all = 0;
    const bool captured = job.model.truth == Truth::kTransformers && !job.whole_parity &&
                          !plans_live_truth(job, services, config.shape);
    if (!has_committed_truth(job.model) && !captured) beside_the_judge += bytes(judges.truth);
    for (const CaseEngine& engine : job.engines) {
      const int64_t one = services.process_bytes(engine.name, shapes) + bytes(engine.name);
      together(all, one);
      if (engine.judges) memory.needed = one + beside_the_judge;
    }
    memory.needed = std::max(memory.needed, all + (job.one_at_a_time ? 0 : runs));
  }
  const CaseShapes shapes = planned_shapes(job, services, config.shape);
  int64_t timed = 0, processes = 0;
  for (const CaseEngine& engine : job.engines) {
    if (job.judged && !engine.timed()) continue;
    const int64_t process = services.process_bytes(engine.name, shapes);
    together(processes, process);
    if (engine.timed()) together(timed, process + bytes(engine.name));
  }
  memory.needed = std::max(memory.needed, timed);
  // The ceiling is open while the others are timed; its process stays.
  int64_t ceiling = 0;
  if (job.no_ceiling.empty()) {
    ceiling = services.process_bytes(kCeilingName, shapes);
    together(timed, ceiling + bytes(kCeilingName));
    if (job.one_at_a_time) ceiling = 0;
    memory.with_ceiling = timed;
  }
  // Without a closed form, the truth opens after the engines have closed (their processes stay); at
  // a near tie the run with an fp32 head replaces the truth for a while.
  if (!has_closed_form(job, config.shape)) {
    const int64_t scoring = services.process_bytes(judges.head_fp32, shapes) +
                            std::max(bytes(judges.truth), bytes(judges.head_fp32));
    const int64_t then = scoring + (job.one_at_a_time ? 0 : processes);
    memory.needed = std::max(memory.needed, then);
    memory.with_ceiling = std::max(memory.with_ceiling, then + ceiling);
  }
  memory.with_ceiling = std::max(memory.with_ceiling, memory.needed);
  const int64_t shared = services.shared_bytes(config);
  memory.needed += shared;
  memory.with_ceiling += shared;
  return memory;
}

// Whether transformers' truth in fp32 fits into the host's memory, beside the values of --truth dequantised.
bool may_stay_on_host(const CaseJob& job, const CaseServices& services, const ModelConfig& config) {
  const int64_t values = config.is_outline() ? config.outline_values
                                             : config.shape.parameters(config.tie_word_embeddings);
  return job.cuda() && job.model.truth == Truth::kTransformers &&
         (job.model.dequantised ? 8 : 4) * values <= services.host_free_bytes();
}

std::optional<Fitting> largest_fitting(const CaseJob& job, const CaseServices& services,
                                       const ModelConfig& config, int64_t free) {
  const int least = job.n_prompt > 0 ? 1 : 0;
  const auto at = [&](int depth) {
    CaseMemory memory = needed_memory(at_depth(job, depth), services, config);
    memory.free = free;
    return Fitting{depth, memory};
  };
  Fitting low = at(least);
  if (!low.memory.fits()) return std::nullopt;
  const Fitting asked = at(first_depth(job));
  if (asked.memory.fits()) return asked;
  for (int high = asked.depth; high - low.depth > 1;) {
    Fitting middle = at(low.depth + (high - low.depth) / 2);
    if (middle.memory.fits()) {
      low = middle;
    } else {
      high = middle.depth;
    }
  }
  return low;
}

// "--resident one, without graph and plain, --n-depth 300"
std::string changes(const CaseJob& asked, const CaseJob& job, int depth) {
  std::vector<std::string> parts, without;
  if (job.one_at_a_time && !asked.one_at_a_time) parts.emplace_back("--resident one");
  for (const CaseEngine& engine : asked.engines) {
    if (!has_engine(job, engine.name)) without.push_back(engine.name);
  }
  if (!without.empty()) parts.push_back(fmt::format("without {}", fmt::join(without, " and ")));
  if (depth != first_depth(asked)) {
    parts.push_back(!asked.ids.empty()   ? fmt::format("{} of the --ids", depth + 1)
                    : asked.n_prompt > 0 ? fmt::format("--n-prompt {}", depth)
                                         : fmt::format("--n-depth {}", depth));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// The job without the engines in `left_out` (bit i: engine i); nullopt if that removes the judge,
// or every engine that is to be timed.
std::optional<CaseJob> without(const CaseJob& job, uint32_t left_out) {
  CaseJob rest = job;
  rest.engines.clear();
  bool timed = false;
  for (size_t i = 0; i < job.engines.size(); ++i) {
    const bool out = (left_out >> i & 1) != 0;
    if (out && job.engines[i].judges) return std::nullopt;
    if (out) continue;
    rest.engines.push_back(job.engines[i]);
    timed = timed || job.engines[i].timed();
  }
  if (!timed && !job.whole_parity) return std::nullopt;
  return rest;
}

// Sets of engines to leave out, the smallest first; with more than kMost engines only sets of one.
std::vector<uint32_t> sets_of_engines(const CaseJob& job) {
  constexpr size_t kMost = 6;
  std::vector<uint32_t> sets = {0};
  const size_t count = std::min<size_t>(job.engines.size(), 30);
  for (uint32_t set = 1; set<uint32_t{1} << count; count> kMost ? set *= 2 : ++set)
    sets.push_back(set);
  std::stable_sort(sets.begin(), sets.end(),
                   [](uint32_t a, uint32_t b) { return std::popcount(a) < std::popcount(b); });
  return sets;
}

// Names the largest row of the shape table whose analytic model fits, or says that none does.
std::string largest_row(const CaseJob& job, const CaseServices& services, int64_t free) {
  const ShapeRow* best = nullptr;
  Fitting found;
  for (const ShapeRow& row : kShapeTable) {
    if (best != nullptr && row.shape.parameters(row.tied) < best->shape.parameters(best->tied))
      continue;
    CaseJob other = at_depth(job, job.n_prompt > 0 ? 1 : 0);
    other.ids.clear();
    other.model = resolve_model(synthetic_name(row));
    const auto fits = largest_fitting(other, services, services.config(other.model), free);
    if (!fits) continue;
    best = &row;
    found = *fits;
  }
  if (best == nullptr) return "no model of the shape table, not even without KV rows";
  return fmt::format("--model {} with these engines ({})", synthetic_name(*best),
                     megabytes(found.memory.needed));
}

}  // namespace

int timed_tokens(const CaseJob& job) { return job.n_prompt > 0 ? kPrefillCheckTokens : job.n_gen; }

int timed_positions(const CaseJob& job) {
  return first_depth(job) + timed_tokens(job) + kStateSteps + 1;
}

CaseMemory case_memory(const CaseJob& job, const CaseServices& services,
                       const ModelConfig& config) {
  CaseMemory memory = needed_memory(job, services, config);
  memory.free = services.free_bytes();
  return memory;
}

std::string choose_residency(CaseJob& job, const CaseServices& services,
                             const ModelConfig& config) {
  const bool may_open_one = job.may_open_one && !job.one_at_a_time;
  const bool may_stay = may_stay_on_host(job, services, config);
  if (!may_open_one && !may_stay) return {};
  const CaseMemory all = case_memory(job, services, config);
  // Ablations need all engines open, and take precedence over the ceiling.
  if (all.ceiling_fits() || (all.fits() && job.ablations)) return {};
  const bool for_the_ceiling = all.fits();
  struct Way {
    bool one, on_host;
  };
  for (const auto [one, on_host] : {Way{true, false}, Way{false, true}, Way{true, true}}) {
    if ((one && !may_open_one) || (on_host && !may_stay)) continue;
    CaseJob other = job;
    other.one_at_a_time = other.one_at_a_time || one;
    other.truth_on_host = on_host;
    const CaseMemory memory = case_memory(other, services, config);
    if ((for_the_ceiling ? memory.with_ceiling : memory.needed) > all.free) continue;
    job = other;
    return fmt::format(
        "{} are needed for all engines{} and {} are free: {}{}{}",
        megabytes(for_the_ceiling ? all.with_ceiling : all.needed),
        for_the_ceiling ? " with the ceiling's copy" : "", megabytes(all.free),
        one ? "one engine is open at a time (--resident one)" : "", one && on_host ? ", and " : "",
        on_host ? "the truth's layers stay in the host's memory, and each comes to the card "
                  "in every pass: judging takes longer"
                : "");
  }
  return {};
}

std::string what_would_fit(const CaseJob& job, const CaseServices& services,
                           const ModelConfig& config, int64_t free) {
  for (const uint32_t set : sets_of_engines(job)) {
    for (const bool one : {false, true}) {
      std::optional<CaseJob> rest = without(job, set);
      if (!rest || (job.one_at_a_time && !one)) continue;
      rest->one_at_a_time = one;
      rest->truth_on_host = may_stay_on_host(job, services, config);
      if (const auto fits = largest_fitting(*rest, services, config, free)) {
        return fmt::format("what would fit: {} ({})", changes(job, *rest, fits->depth),
                           megabytes(fits->memory.needed));
      }
    }
  }
  return "what would fit: " + largest_row(job, services, free);
}

std::string ceiling_refusal(const CaseJob& job, const CaseMemory& memory) {
  return fmt::format("memory of {}: {} needed with the ceiling's copy, {} free", job.device,
                     megabytes(memory.with_ceiling), megabytes(memory.free));
}

std::string memory_refusal(const CaseJob& job, const CaseServices& services,
                           const ModelConfig& config, const CaseMemory& memory) {
  return fmt::format("memory of {}: {} needed, {} free; {}", job.device, megabytes(memory.needed),
                     megabytes(memory.free), what_would_fit(job, services, config, memory.free));
}

}  // namespace mkbench
