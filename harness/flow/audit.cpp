#include "harness/flow/audit.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/flow/timed_truth.h"
#include "harness/measure/statistics.h"
#include "references/base/sha256.h"
#include "references/model_row.h"
#include "references/snapshot.h"
#include "references/synthetic.h"
#include "references/weight_edit.h"

namespace mkbench {
namespace {

constexpr int kInputs = 4;   // number of late ids; one decode begins with each
constexpr int kHistory = 8;  // ids before them where the history is tried
// D for judging an engine's ids by the truth on changed weights: an id is rejected if its logit is
// more than D plus one bf16 step below the largest. Twice the largest D that a reference may have.
constexpr double kRefusedBy = 1.0;
// In a run: tiles in each part, the steps in which they are tried, and the time for all of them; tokens
// of the decode that is counted. ncu takes the launches of a decode one by one.
constexpr int kTilesOfRun = 6, kTileStepsOfRun = 16, kTokensOfRun = 32, kTokensOfLaunches = 2;
constexpr double kTilesOfRunS = 60;
// A tile is replaced by another one if its change alters no answer: at most this many are drawn for
// each tile that is wanted.
constexpr int kDrawsATile = 3;

// Result of one decode.
struct Answer {
  std::vector<int32_t> ids;
  std::string rows{};  // hash of the KV rows; empty if the engine exposes none

  bool operator==(const Answer&) const = default;
};

class TileAudit {
 public:
  TileAudit(const AuditPlan& plan, const CaseEngine& engine, const CaseServices& services,
            const ModelWeights& weights, const AuditProgress& progress, EngineAudit& audit)
      : plan_(plan),
        job_(plan.job),
        engine_(engine),
        services_(services),
        weights_(weights),
        config_(weights.config),
        progress_(progress),
        audit_(audit) {
    draw_inputs();
  }

  void run() {
    std::vector<TilePart> parts = parts_with(tile_parts(config_, inputs_), plan_.tensors);
    if (plan_.by_tensor) parts = parts_by_kind(parts);
    {
      const std::unique_ptr<Engine> engine = open(engine_.name, weights_);
      const EngineCapabilities can = engine->capabilities();
      audit_.resolved = can.name;
      if (!can.deterministic)
        return conclude(Verdict::kInconclusive,
                        "the engine says that equal input may give other "
                        "bits: a changed tile cannot be detected");
      for (const int32_t input : inputs_) sound_.push_back(decode(*engine, input));
      audit_.shown = !sound_.front().rows.empty() ? "ids and KV rows" : "ids";
    }
    if (!repeats()) return;
    for (const TilePart& part : parts) audit_.parts.push_back(try_part(part));
    if (plan_.by_tensor && plan_.tensors.empty()) {
      audit_.parts.push_back(try_rope());
      audit_.parts.push_back(try_history());
    }
    audit_.method = "tiles";
    conclude_parts();
  }

 private:
  uint64_t random(uint64_t bound) { return services_.random(bound); }

  // Distinct ids from the pool of late ids of a timed decode.
  void draw_inputs() {
    std::vector<int32_t> pool = find_timed_truth(job_, weights_).late_ids;
    while (inputs_.size() < kInputs && !pool.empty()) {
      const auto at = static_cast<std::ptrdiff_t>(random(pool.size()));
      inputs_.push_back(pool[static_cast<size_t>(at)]);
      pool.erase(pool.begin() + at);
    }
  }

  int steps() const { return plan_.tile_steps > 0 ? plan_.tile_steps : job_.depth + job_.n_gen; }

  std::unique_ptr<Engine> open(const std::string& name, const ModelWeights& weights) const {
    if (services_.stop()) throw Interrupted{};
    const int prompt = plan_.by_tensor ? kHistory + 1 : 1;
    const int context = context_for(prompt + steps(), config_.max_positions);
    return services_.make_engine({.name = name, .max_context = context}, weights);
  }

  // Begins without KV rows: a prefill would read the weights too, and its rows would show a changed
  // tile that the decode itself does not read. --n-depth therefore lengthens the decode.
  Answer decode(Engine& engine, int32_t input, std::vector<int32_t> prompt = {}) const {
    const bool late = engine.capabilities().late_id;
    prompt.push_back(late ? inputs_.front() : input);
    start_afresh(engine, prompt);
    Answer answer;
    answer.ids = late ? engine.decode_late(input, steps()) : engine.decode(steps());
    answer.rows = rows_of(engine);
    return answer;
  }

  std::string rows_of(Engine& engine) const {
    if (engine.capabilities().snapshots) return std::to_string(engine.save().kv_checksum);
    Sha256 hash;
    for (int layer = 0; layer < config_.shape.layers; ++layer) {
      for (int row = 0; row < engine.position(); ++row) {
        const auto values = engine.kv_row(layer, row);
        if (!values) return "";
        hash.update(values->data(), values->size() * sizeof(float));
      }
    }
    return hash.hex();
  }

  // A second engine on equal weights must give the same answers.
  bool repeats() {
    const std::unique_ptr<Engine> again = open(engine_.name, weights_);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (decode(*again, inputs_[i]) == sound_[i]) continue;
      conclude(Verdict::kInconclusive,
               fmt::format("opened twice on equal weights, it answers differently after id {}: a "
                           "changed tile cannot be detected",
                           inputs_[i]));
      return false;
    }
    return true;
  }

  // How many of the first ids depend on a tile of the head only through the head. With tied
  // embeddings the tile is also part of an input embedding, which is read as soon as its id is an
  // input: only the ids emitted before that count.
  size_t ids_of_head(const Tile& tile, size_t input) const {
    const std::vector<int32_t>& ids = sound_[input].ids;
    if (!config_.tie_word_embeddings) return ids.size();
    if (inputs_[input] == tile.row) return 0;
    const auto found = std::find(ids.begin(), ids.end(), tile.row);
    return static_cast<size_t>(found == ids.end() ? found - ids.begin() : found - ids.begin() + 1);
  }

  bool changed(const Answer& answer, const Tile& tile, size_t input) const {
    if (!is_head_tile(tile, config_)) return answer != sound_[input];
    const size_t count = std::min(ids_of_head(tile, input), answer.ids.size());
    return !std::equal(answer.ids.begin(), answer.ids.begin() + static_cast<std::ptrdiff_t>(count),
                       sound_[input].ids.begin());
  }

  // True if any of the changes alters any of the decodes.
  bool shows(const Tile& tile, const std::vector<TileChange>& changes) const {
    for (const TileChange& change : changes) {
      const std::unique_ptr<Engine> engine =
          open(engine_.name, with_changed_tile(weights_, tile, change));
      for (size_t i = 0; i < inputs_.size(); ++i) {
        if (is_head_tile(tile, config_) && ids_of_head(tile, i) == 0) continue;
        if (changed(decode(*engine, inputs_[i]), tile, i)) return true;
      }
    }
    return false;
  }

  // True if the truth on `weights`, after `prompt` and an input, rejects the ids that the engine gave
  // for it. `paths`: these ids for each input.
  bool truth_refuses(const ModelWeights& weights, const std::vector<int32_t>& prompt,
                     const std::vector<std::vector<int32_t>>& paths) const {
    const std::unique_ptr<Engine> truth = open(truth_run(kJudgeName), weights);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (paths[i].empty()) continue;
      std::vector<int32_t> ids = prompt;
      ids.push_back(inputs_[i]);
      start_afresh(*truth, ids);
      if (!confirm_path(*truth, paths[i], config_.shape.vocab, kRefusedBy, true).text.empty())
        return true;
    }
    return false;
  }

  // True if the truth, run on one of the changed weights, rejects the engine's ids: an engine that
  // reads the tile must have answered something else.
  bool truth_needs(const Tile& tile, const std::vector<TileChange>& changes) const {
    std::vector<std::vector<int32_t>> paths = sound_ids();
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (is_head_tile(tile, config_)) paths[i].resize(ids_of_head(tile, i));
    return std::ranges::any_of(changes, [&](const TileChange& change) {
      return truth_refuses(with_changed_tile(weights_, tile, change), {}, paths);
    });
  }

  std::vector<std::vector<int32_t>> sound_ids() const {
    std::vector<std::vector<int32_t>> ids;
    for (const Answer& answer : sound_) ids.push_back(answer.ids);
    return ids;
  }

  PartAudit try_part(const TilePart& part) {
    PartAudit found{.part = part.name, .bytes = part.bytes()};
    for (int drawn = 0; found.tried < plan_.tiles && drawn < kDrawsATile * plan_.tiles; ++drawn) {
      progress_(engine_.asked, found.tried, plan_.tiles);
      const Tile tile = draw_tile(part, [this](uint64_t bound) { return random(bound); });
      const std::vector<TileChange> changes =
          tile_changes(is_head_tile(tile, config_), random(uint64_t{1} << 53));
      if (shows(tile, changes)) {
        ++found.tried;
      } else if (truth_needs(tile, changes)) {
        ++found.tried;
        found.unread.push_back(tile);
      } else {
        ++found.silent;
      }
    }
    found.unread_at_most =
        rate_limit(static_cast<int64_t>(found.unread.size()), found.tried, kAuditConfidence);
    return found;
  }

  // A part without tiles: the engine has given other answers, or the truth says that it had to.
  static PartAudit whole_part(const std::string& name, bool differs, bool refused,
                              const std::string& ignored) {
    PartAudit found{.part = name, .tried = differs || refused, .silent = !differs && !refused};
    if (!differs && refused) found.ignored = ignored;
    return found;
  }

  // On models that say another theta. An engine may have a theta of its own, which one of them could be.
  PartAudit try_rope() const {
    bool differs = false, refused = false;
    for (const double factor : {37.0, 1 / 37.0}) {
      WeightEdit edit(weights_);
      edit.weights().config.rope.theta *= factor;
      try {
        const std::unique_ptr<Engine> engine = open(engine_.name, edit.weights());
        for (size_t i = 0; i < inputs_.size() && !differs; ++i)
          differs = decode(*engine, inputs_[i]) != sound_[i];
      } catch (const Error&) {
        differs = true;  // an engine for one theta alone has looked at it
      }
      if (differs) break;
      refused = refused || truth_refuses(edit.weights(), {}, sound_ids());
    }
    return whole_part("rope_theta", differs, refused,
                      "the answers are the same with 37 times and a 37th of it");
  }

  // Decodes after two prompts that end in the same id. Only the ids that are decoded are compared: the
  // prompts themselves leave different KV rows, whether or not an engine reads them.
  PartAudit try_history() {
    std::vector<int32_t> prompts[2];
    const int length = std::min(kHistory, config_.max_positions - steps() - 1);
    for (int i = 0; i < length; ++i) {
      for (std::vector<int32_t>& prompt : prompts)
        prompt.push_back(static_cast<int32_t>(random(static_cast<uint64_t>(config_.shape.vocab))));
    }
    bool differs = false;
    std::vector<std::vector<int32_t>> paths;
    {
      const std::unique_ptr<Engine> engine = open(engine_.name, weights_);
      for (const int32_t input : inputs_) {
        paths.push_back(decode(*engine, input, prompts[0]).ids);
        differs = differs || decode(*engine, input, prompts[1]).ids != paths.back();
      }
    }
    return whole_part("history", differs, !differs && truth_refuses(weights_, prompts[1], paths),
                      fmt::format("the answers are the same after two prompts of {} ids", length));
  }

  void conclude(Verdict verdict, const std::string& reason) {
    audit_.verdict = verdict;
    if (!reason.empty()) audit_.reasons.push_back(reason);
  }

  void conclude_parts() {
    conclude(Verdict::kPass, "");
    for (const PartAudit& part : audit_.parts) {
      if (!part.ignored.empty()) {
        conclude(Verdict::kIntegrity, fmt::format("{}: not read: {}", part.part, part.ignored));
      } else if (!part.unread.empty()) {
        conclude(Verdict::kIntegrity,
                 fmt::format("{}: {} of {} tiles are not read, the first is {}", part.part,
                             part.unread.size(), part.tried, part.unread.front().name()));
      } else if (part.bytes > 0 && part.tried < plan_.tiles && audit_.verdict == Verdict::kPass) {
        conclude(Verdict::kInconclusive,
                 fmt::format("{}: {} of {} tiles were conclusive, {} "
                             "were silent (changed no answer)",
                             part.part, part.tried, plan_.tiles, part.silent));
      }
    }
  }

  const AuditPlan& plan_;
  const CaseJob& job_;
  const CaseEngine& engine_;
  const CaseServices& services_;
  const ModelWeights& weights_;
  const ModelConfig& config_;
  const AuditProgress& progress_;
  EngineAudit& audit_;
  std::vector<int32_t> inputs_;
  std::vector<Answer> sound_;  // the answer to each input on the unchanged weights
};

// True if the counters gave a verdict.
bool judge_by_counters(const AuditPlan& plan, const CaseEngine& engine,
                       const CaseServices& services, EngineAudit& audit) {
  if (!plan.counts) return false;
  const ByteCounts counts = services.count_bytes(engine.name, plan.job.n_gen);
  if (!counts.problem.empty()) {
    audit.counters = counts.problem;
    return false;
  }
  const int n = plan.job.n_gen;
  const ModelShape shape = services.config(plan.job.model).shape;
  const double wanted =
      static_cast<double>(shape.bytes_per_step(plan.job.depth + (n - 1) / 2.0)) * n;
  const CountsJudged judged = judge_counts(counts, wanted, n, plan.job.l2_bytes);
  audit.counters = judged.text;
  audit.counted_share = judged.share;
  if (judged.say == CountsSay::kNothing) return false;
  audit.method = "counters";
  audit.verdict = judged.say == CountsSay::kAllRead ? Verdict::kPass : Verdict::kIntegrity;
  if (audit.verdict != Verdict::kPass) audit.reasons.push_back(judged.text);
  return true;
}

// The line of a report.
std::string line_of(const EngineAudit& audit) {
  const std::string reason = audit.reasons.empty() ? "" : audit.reasons.front();
  if (audit.method == "counters")
    return fmt::format("reads {:.1f} % of what a token must read", 100 * audit.counted_share->low);
  const std::string counters = audit.counters.empty() ? "" : "; no counters: " + audit.counters;
  if (audit.method != "tiles" || audit.verdict == Verdict::kInconclusive)
    return "not audited: " + reason + counters;
  int tried = 0, read = 0;
  for (const PartAudit& part : audit.parts) {
    tried += part.tried;
    read += part.tried - static_cast<int>(part.unread.size());
  }
  return fmt::format("reads {} of {} tiles of the weights{}", read, tried, counters);
}

}  // namespace

Model model_for_tiles(const Model& model, uint64_t salt) {
  if (!is_analytic(model.row)) return model;
  return salted(resolve_model(synthetic_name(*model.row->published, "none")), salt);
}

EngineAudit audit_engine(const AuditPlan& plan, const CaseEngine& engine,
                         const CaseServices& services, const AuditProgress& progress) {
  EngineAudit audit{.engine = engine.asked};
  Contestant contestant(engine);
  EventSink sink([&](const CaseEvent& event) {
    if (const auto* given = std::get_if<VerdictGiven>(&event)) {
      audit.verdict = given->verdict;
      audit.reasons.push_back(given->reason);
    }
  });
  if (judge_by_counters(plan, engine, services, audit)) return audit;
  const ModelWeights weights =
      services.load(model_for_tiles(plan.job.model, plan.job.salt), plan.job.depth);
  guard_engine(sink, contestant,
               [&] { TileAudit(plan, engine, services, weights, progress, audit).run(); });
  return audit;
}

void audit_candidates(const CaseJob& job, const CaseServices& services,
                      const std::vector<Contestant*>& candidates, ProgressWatch& watch,
                      EventSink& sink) {
  for (Contestant* c : candidates) {
    if (services.stop()) throw Interrupted{};
    if (c->own_weights || c->can.precision == PrecisionClass::kLossy) {
      sink.send(EngineAudited{c->name, "not audited: it reads weights of its own, quantised"});
      continue;
    }
    const WatchEnd end(watch);
    watch.begin("audit", c->name, nullptr);
    AuditPlan plan{.job = job, .tiles = kTilesOfRun, .tile_steps = kTileStepsOfRun, .counts = true};
    plan.job.n_gen = std::min(job.n_gen, c->can.one_launch ? kTokensOfRun : kTokensOfLaunches);
    EngineAudit audit{.engine = c->name};
    double begin = -1;  // of the tiles
    try {
      audit = audit_engine(plan, *c, services, [&](const std::string&, int done, int total) {
        watch.count(done, total);
        if (begin < 0) begin = services.now();
        if (services.now() - begin < kTilesOfRunS) return;
        throw Error(ErrorKind::kTimeout,
                    fmt::format("the tiles take longer than {:g} s", kTilesOfRunS));
      });
    } catch (const Error& error) {  // the weights for the tiles cannot be made
      audit.reasons.emplace_back(error.what());
    }
    sink.send(EngineAudited{c->name, line_of(audit)});
    if (audit.verdict == Verdict::kIntegrity && !audit.method.empty())
      fail_engine(sink, *c, audit.verdict, "audit: " + audit.reasons.front());
  }
}

void decode_for_counters(const CaseJob& job, const CaseEngine& engine, const CaseServices& services,
                         const ModelWeights& weights) {
  const TimedTruth truth = find_timed_truth(job, weights);
  const std::unique_ptr<Engine> made = services.make_engine(
      {.name = engine.name,
       .max_context = context_for(first_depth(job) + job.n_gen + 1, weights.config.max_positions)},
      weights);
  start_afresh(*made, truth.prompt);
  if (made->capabilities().late_id) {
    made->decode_late(truth.late_ids.front(), job.n_gen);
  } else {
    made->decode(job.n_gen);
  }
}

}  // namespace mkbench
