// `mkbench audit`: does a decode read all bytes of the weights? Counted by a profiler where it may
// count, else tried: tiles of the weights are changed one by one, and each must change what the
// engine answers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/flow/job.h"
#include "harness/flow/services.h"
#include "harness/flow/tiles.h"
#include "harness/measure/byte_counts.h"
#include "harness/report/verdict.h"

namespace mkbench {

inline constexpr double kAuditConfidence = 0.99;

struct AuditPlan {
  CaseJob job;     // model, device, depth, n_gen and seed of the audited decode
  int tiles = 90;  // of each part
  // Names, or parts of names, of the tensors that tiles are drawn from; empty: all.
  std::vector<std::string> tensors{};
  // The counts of one decode of an engine, by its name; empty: tiles are tried at once.
  std::function<ByteCounts(const std::string& engine)> count{};
  int64_t l2_bytes = 0;
};

// The tiles of one part and what they showed.
struct PartAudit {
  std::string part;
  int64_t bytes = 0;           // of the part
  int tried = 0;               // tiles that say something
  int silent = 0;              // drawn, and left out: the truth's answer does not need them either
  std::vector<Tile> unread{};  // the truth with such a tile refuses the engine's answer
  double unread_at_most = 1;   // share of the bytes, at kAuditConfidence
};

struct EngineAudit {
  std::string engine;      // as it was asked for
  std::string resolved{};  // as it calls itself; empty where it was not made
  Verdict verdict = Verdict::kSkipped;
  std::vector<std::string> reasons{};
  std::string method{};  // "counters", "tiles"; empty where neither came to an end
  std::string shown{};   // what tiles are told by: "ids", "ids and KV rows"
  // What counters said, or why they said nothing; empty where they were not asked.
  std::string counters{};
  std::optional<Interval> counted_share{};
  std::vector<PartAudit> parts{};
};

// Tells what is being done: engine, tiles done and in all.
using AuditProgress = std::function<void(const std::string& engine, int done, int total)>;

// Audits one candidate of the job on its weights. A failure of the engine becomes its verdict;
// Interrupted passes through. PASS: everything that says something is read. INTEGRITY: a tile is not
// read, or bytes are missing. INCONCLUSIVE: equal weights give different answers, or no tile says
// anything.
EngineAudit audit_engine(const AuditPlan& plan, const CaseEngine& engine,
                         const CaseServices& services, const ModelWeights& weights,
                         const AuditProgress& progress);

// Decodes once as the counted decode does: a prefill of depth + 1 ids, then n_gen tokens.
void decode_for_counters(const CaseJob& job, const CaseEngine& engine, const CaseServices& services,
                         const ModelWeights& weights);

}  // namespace mkbench
