// The check of graph and compiled that eager does not have.
#include <cmath>

#include "tests/eager_lanes.h"
#include "tests/support/catch2.h"

namespace mkbench::testing {

void check_buckets(const ModelWeights& weights, Lane lane) {
  const auto vocab = static_cast<size_t>(weights.config.shape.vocab);
  const Ids prompt = walk(241, weights.config.shape.vocab),
            inputs = walk(40, weights.config.shape.vocab, 3);
  const auto run = [&](Engine& engine) {
    std::vector<float> logits(inputs.size() * vocab);
    engine.reset();
    engine.prefill(prompt);
    engine.decode(static_cast<int>(inputs.size()), inputs.data(), logits.data());
    return logits;
  };
  const auto engine = make_eager(weights, options_for(lane));
  const auto eager = make_eager(weights, options_for({.cuda = lane.cuda}));
  EagerOptions truth_options = options_for({.cuda = lane.cuda});
  truth_options.fp32 = true;
  const auto truth = make_eager(weights, truth_options);
  const std::vector<float> fresh = run(*engine), wanted = run(*truth), rounded = run(*eager);
  // Position 255 is the last of the first bucket: step 15 of these.
  double ours = 0, theirs = 0;
  for (size_t s = 0; s < inputs.size(); ++s) {
    const auto of = [&](const std::vector<float>& z) { return row(z, s, static_cast<int>(vocab)); };
    ours += centred_distance_squared(of(fresh), of(wanted));
    theirs += centred_distance_squared(of(rounded), of(wanted));
  }
  const double r_rms = std::sqrt(ours / theirs);
  CAPTURE(r_rms);
  CHECK(r_rms <= 1.25);
  engine->reset();
  engine->prefill(walk(700, weights.config.shape.vocab, 5));
  engine->decode(20);
  CHECK(run(*engine) == fresh);
}

}  // namespace mkbench::testing
