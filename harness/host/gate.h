// The gate of a case: which references there are for these weights, whether the judge (the engine that
// parity compares with) passes them, and then each other engine.
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
  // With logits, token-only ones merged into one, or none yet (live).
  std::vector<GreedyReference> all;
  bool live = false;  // a truth has to be (or was) computed in this run
};

// Committed references that fit `weights`, or the decision to judge live.
// Throws Error(kInvalidReference): none for a model whose references are committed or under
// --require-reference (naming the command that makes one), one made from other weights, or one that
// contradicts the closed form.
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

  // Holds the judge to the references (and first makes the live one, where that is needed). True
  // when it passed; else the messages that say INVALID_REFERENCE are sent.
  bool pass_judge(Contestant& contestant);
  // Judges a candidate, or a yardstick that is not the judge; sends its verdict and parity report.
  void judge_engine(Contestant& contestant);

 private:
  ParityReport judge(Engine& engine, const std::string& name, bool is_judge, bool logits_bf16);
  void set_ratchet(const Engine& engine, const GreedyReference& reference,
                   ParityOptions& options) const;
  void add_live_reference(Engine& judge);
  void run_trials(Trials& trials, Contestant& contestant, ParityReport& report);
  void send_parity(const std::string& engine, const ParityReport& report);
  std::unique_ptr<Engine> make(const std::string& name);

  const CaseJob& job_;
  const FlowServices& services_;
  const ModelWeights& weights_;
  CaseReferences& references_;
  const int max_context_;
  ProgressWatch& watch_;
  MessageSink& sink_;
  Engine* judge_ = nullptr;  // once it has passed
};

// The same before any weights are there; a reference that cannot be read counts nothing here and is
// refused by find_case_references().
int planned_parity_positions(const CaseJob& job, const FlowServices& services,
                             const ModelShape& shape);

// The model whose weights and references judge `model`: the analytic checkpoint is judged on the lag
// set of its parity set, every other model on itself.
std::string parity_model(const std::string& model);

}  // namespace mkbench
