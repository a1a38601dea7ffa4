// The gate of a case: which references there are for these weights, whether the baseline passes
// them, and then each candidate.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/host/contestant.h"
#include "harness/host/services.h"
#include "harness/host/watch.h"
#include "harness/judge/parity.h"
#include "harness/wire/channel.h"
#include "harness/wire/job.h"

namespace mkbench {

// The references that judge a case.
struct CaseReferences {
  std::vector<GreedyReference>
      all;            // with logits, token-only ones merged into one, or none yet (live)
  bool live = false;  // a truth has to be (or was) computed in this run
};

// Committed references that fit `weights`, or the decision to judge live.
// Throws Error(kInvalidReference): none for a model of ours or under --require-reference (naming
// the command that makes one), one made from other weights, or one that contradicts the closed
// form.
CaseReferences find_case_references(const CaseJob& job, const FlowServices& services,
                                    const ModelWeights& weights);

// Most positions that judging by `references` takes.
int parity_positions(const CaseReferences& references, const CaseJob& job, const ModelShape& shape);

// Steps after each prompt of a live reference.
inline constexpr int kLiveSteps = 32;

class Trials;

class Gate {
 public:
  Gate(const CaseJob& job, const FlowServices& services, const ModelWeights& weights,
       CaseReferences& references, int max_context, ProgressWatch& watch, MessageSink& sink)
      : job_(job),
        services_(services),
        weights_(weights),
        references_(references),
        max_context_(max_context),
        watch_(watch),
        sink_(sink) {}

  // Judges the baseline (and first makes the live reference, where that is needed). True when it
  // passed; else the messages that say INVALID_REFERENCE are sent.
  bool pass_baseline(Contestant& baseline);
  // Judges a candidate; sends its verdict and parity report.
  void judge_candidate(Contestant& candidate);

 private:
  ParityReport judge(Engine& engine, const std::string& name, bool is_baseline, bool logits_bf16);
  void set_ratchet(const Engine& engine, const GreedyReference& reference,
                   ParityOptions& options) const;
  void add_live_reference(Engine& baseline);
  void run_trials(Trials& trials, Contestant& candidate, ParityReport& report);
  void send_parity(const std::string& engine, const ParityReport& report);
  std::unique_ptr<Engine> make(const std::string& name);

  const CaseJob& job_;
  const FlowServices& services_;
  const ModelWeights& weights_;
  CaseReferences& references_;
  const int max_context_;
  ProgressWatch& watch_;
  MessageSink& sink_;
  Engine* baseline_ = nullptr;  // once it has passed
};

// The same before any weights are there; a reference that cannot be read counts nothing here and is
// refused by find_case_references().
int planned_parity_positions(const CaseJob& job, const FlowServices& services,
                             const ModelShape& shape);

// True for every form of --model that means the analytic checkpoint.
inline bool is_synthetic(const std::string& model) {
  return model == "synthetic" || model.starts_with("synthetic:");
}

// The lag set of the analytic checkpoint that `model` is judged on. Short, early and late have
// references; every other form is judged on short's.
inline std::string parity_lagset(const std::string& model) {
  for (const char* lagset : {"early", "late"}) {
    if (model == std::string("synthetic:") + lagset) return lagset;
  }
  return "short";
}

// The model whose weights and references judge `model`.
inline std::string parity_model(const std::string& model) {
  return is_synthetic(model) ? "synthetic:" + parity_lagset(model) : model;
}

// True for the models whose references are committed: without one nothing may be judged.
inline bool is_ours(const std::string& model) {
  return is_synthetic(model) || model == "tiny" || model == "tiny-untied";
}

}  // namespace mkbench
