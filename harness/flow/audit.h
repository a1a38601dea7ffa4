// `mkbench audit`: does a decode read all bytes of the weights? Where a profiler's counters can be
// read, they decide. Elsewhere tiles of the weights are changed one by one, and each change must
// show in the engine's answer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/flow/contestant.h"
#include "harness/flow/job.h"
#include "harness/flow/services.h"
#include "harness/flow/tiles.h"
#include "harness/flow/watch.h"
#include "harness/measure/byte_counts.h"
#include "harness/report/verdict.h"

namespace mkbench {

inline constexpr double kAuditConfidence = 0.99;

struct AuditPlan {
  CaseJob job;         // model, device, depth, n_gen, seed and salt of the audited decode
  int tiles = 90;      // tiles to try in each part
  int tile_steps = 0;  // of the decodes that try them; 0: depth + n_gen
  // Names, or parts of names, of the tensors that tiles are drawn from; empty: all.
  std::vector<std::string> tensors{};
  bool counts = false;  // count bytes first (CaseServices::count_bytes()); else only try tiles
  // Each kind of tensor is a part; without `tensors`, the RoPE frequencies and the history are two more.
  bool by_tensor = false;
};

// The weights on which tiles are tried: analytic ones get the lag set whose closed form holds from an
// empty cache on, where the audited decode begins, and a salt. So an engine that knows the answers of
// the references' weights, or computes honestly only where no closed form holds, does not pass.
Model model_for_tiles(const Model& model, uint64_t salt);

// The tiles of one part and what they showed. RoPE and history are parts without tiles: tried at most
// once, and unread as a whole.
struct PartAudit {
  std::string part;
  int64_t bytes = 0;           // size of the part
  int tried = 0;               // tiles whose change shows in the engine's answer or the truth's
  int silent = 0;              // drawn but not counted: the change shows in neither answer
  std::vector<Tile> unread{};  // the change shows in the truth's answer, not in the engine's
  std::string ignored{};       // like `unread`, of a part without tiles: what made no difference
  double unread_at_most = 1;   // upper bound of the unread share of the bytes, at kAuditConfidence
};

struct EngineAudit {
  std::string engine;      // name as the user gave it
  std::string resolved{};  // name that the engine reports; empty if it was not made
  Verdict verdict = Verdict::kSkipped;
  std::vector<std::string> reasons{};
  std::string method{};  // "counters", "tiles"; empty if neither finished
  std::string shown{};   // what is compared: "ids", "ids and KV rows"
  // What the counters showed, or why they could not be read; empty if they were not used.
  std::string counters{};
  std::optional<Interval> counted_share{};
  std::vector<PartAudit> parts{};
};

// Called before each tile: the engine, and the tiles of the current part that are done and wanted.
using AuditProgress = std::function<void(const std::string& engine, int done, int total)>;

// Audits one candidate of the job. A failure of the engine becomes its verdict; Interrupted and
// failures of CaseServices::load() pass through. PASS: all tried tiles are read. INTEGRITY: a tile
// is not read, or bytes are missing. INCONCLUSIVE: equal weights give different answers, or too few
// tiles show a change.
EngineAudit audit_engine(const AuditPlan& plan, const CaseEngine& engine,
                         const CaseServices& services, const AuditProgress& progress);

// Audits the candidates of a run after their times were taken, with few tiles where the counters
// say nothing. Sends one line for each, and INTEGRITY for one that does not read what it must.
void audit_candidates(const CaseJob& job, const CaseServices& services,
                      const std::vector<Contestant*>& candidates, ProgressWatch& watch,
                      EventSink& sink);

// The decode that a profiler counts: a prefill of depth + 1 ids, then n_gen tokens.
void decode_for_counters(const CaseJob& job, const CaseEngine& engine, const CaseServices& services,
                         const ModelWeights& weights);

}  // namespace mkbench
