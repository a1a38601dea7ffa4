#include "harness/flow/repeated_decode.h"

namespace mkbench {
namespace {

std::unique_ptr<Engine> make_for(const CaseJob& job, const CaseEngine& engine,
                                 const CaseServices& services, const ModelWeights& weights) {
  const int context = context_for(first_depth(job) + job.n_gen + 1, weights.config.max_positions);
  return services.make_engine({.name = engine.name, .max_context = context}, weights);
}

}  // namespace

RepeatedDecode::RepeatedDecode(const CaseJob& job, const CaseEngine& engine,
                               const CaseServices& services)
    : job_(job),
      services_(services),
      weights_(services.load(job.model, first_depth(job))),
      truth_(find_timed_truth(job, weights_)),
      engine_(make_for(job, engine, services, weights_)),
      can_(engine_->capabilities()),
      late_ids_(truth_.late_ids, draws_of(services)) {}

void RepeatedDecode::begin() {
  if (!prefilled_) {
    start_afresh(*engine_, truth_.prompt);
    if (can_.snapshots) start_ = engine_->save();
    prefilled_ = true;
  }
  if (services_.stop()) throw Interrupted{};
  late_ = late_ids_.draw();
  if (can_.late_id) {
    start_again(*engine_, start_, truth_.prompt);
  } else {
    start_afresh(*engine_, truth_.ending_with(late_));
  }
}

void RepeatedDecode::decode() {
  can_.late_id ? engine_->decode_late(late_, job_.n_gen) : engine_->decode(job_.n_gen);
}

}  // namespace mkbench
