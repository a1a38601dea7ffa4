// Comparison of engines with the fp32 oracle, for the truth tests of all kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "references/engine.h"
#include "references/oracle.h"
#include "references/snapshot.h"
#include "references/synthetic.h"
#include "tests/support/catch2.h"
#include "tests/support/thrown.h"

namespace mkbench::testing {

struct Limits {
  double worst;   // largest relative error of a step
  double rms;     // of the relative errors of all steps
  double margin;  // tokens must be equal where the oracle's margin is larger
};
inline constexpr Limits kRandomLimits{0.01, 0.002, 0.05};
inline constexpr Limits kTrainedLimits{0.02, 0.004, 0.1};
inline constexpr Limits kFirstLayerLimits{0.004, 0.002, 0.05};
inline constexpr double kHiddenLimit = 0.01;

// 2-norm of a - b over that of b, each less its mean, because a shift of all logits means nothing.
inline double relative_error(std::span<const float> a, std::span<const float> b) {
  const double count = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / count;
  const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / count;
  double error = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = a[i] - mean_a, y = b[i] - mean_b;
    error += (x - y) * (x - y);
    size += y * y;
  }
  return std::sqrt(error / size);
}

// The largest logit less the second.
inline float margin_of(std::vector<float> logits) {
  std::partial_sort(logits.begin(), logits.begin() + 2, logits.end(), std::greater<>());
  return logits[0] - logits[1];
}

// Steps of one engine against the oracle's.
class Comparison {
 public:
  void add(std::span<const float> logits, int32_t token, const std::vector<float>& truth,
           float margin_limit) {
    const double error = relative_error(logits, truth);
    // Kept apart, because a maximum would drop a NaN.
    finite_ = finite_ && std::isfinite(error);
    worst_ = std::max(worst_, error);
    squares_ += error * error;
    ++steps_;
    if (margin_of(truth) <= margin_limit) return;
    ++clear_;
    wrong_ += token != argmax_lowest(truth);
  }
  bool finite() const { return finite_; }
  double worst() const { return worst_; }
  double rms() const { return std::sqrt(squares_ / steps_); }
  int wrong() const { return wrong_; }
  double clear_share() const { return static_cast<double>(clear_) / steps_; }

 private:
  bool finite_ = true;
  double worst_ = 0, squares_ = 0;
  int steps_ = 0, clear_ = 0, wrong_ = 0;
};

inline void require_close(const Comparison& c, const Limits& limits, double least_clear) {
  INFO("worst " << c.worst() << ", rms " << c.rms() << ", clear margins " << c.clear_share());
  REQUIRE(c.finite());
  REQUIRE(c.worst() <= limits.worst);
  REQUIRE(c.rms() <= limits.rms);
  REQUIRE(c.wrong() == 0);
  REQUIRE(c.clear_share() >= least_clear);
}

inline std::vector<int32_t> random_ids(int n, int vocab) {
  std::vector<int32_t> ids;
  for (uint64_t i = 0; i < static_cast<uint64_t>(n); ++i) {
    ids.push_back(static_cast<int32_t>(splitmix64(i) % static_cast<uint64_t>(vocab)));
  }
  return ids;
}

// The first n ids of the tiny checkpoints' training text, on which margins are as large as in use.
// The text is repeated where it ends.
inline std::vector<int32_t> corpus_ids(int n) {
  std::ifstream in(data_dir() / "tiny_corpus.txt", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  REQUIRE_FALSE(text.empty());
  std::vector<int32_t> ids;
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    ids.push_back(static_cast<unsigned char>(text[i % text.size()]));
  }
  return ids;
}

// The oracle's logits at every cache length; one computation is enough for several engines.
inline std::vector<std::vector<float>> truth_of(Oracle& oracle, const std::vector<int32_t>& ids) {
  std::vector<std::vector<float>> logits;
  for (const int32_t id : ids) logits.push_back(oracle.step(id));
  return logits;
}

// Decodes all ids in one teacher-forced launch: step t has cache length t + 1.
// Steps before `first` are decoded and not compared.
inline Comparison compare_all(Engine& e, const std::vector<int32_t>& ids,
                              const std::vector<std::vector<float>>& truth, float margin,
                              size_t first = 0) {
  const size_t vocab = truth[0].size();
  std::vector<float> logits(ids.size() * vocab);
  e.set_pending(ids[0]);
  const auto tokens = e.decode(static_cast<int>(ids.size()), ids.data(), logits.data());
  Comparison c;
  for (size_t t = first; t < ids.size(); ++t) {
    c.add(std::span(logits).subspan(t * vocab, vocab), tokens[t], truth[t], margin);
  }
  return c;
}

// The engine, made for analytic weights of the lag set "short", continues prompts of three lengths as
// integers compute.
inline void require_closed_form(Engine& e, int vocab) {
  for (const int depth : {11, 64, 300}) {
    const auto prompt = synthetic_prompt(depth, 3, vocab);
    INFO("depth " << depth);
    e.reset();
    e.poison();
    e.prefill(prompt);
    REQUIRE(e.decode(128) == synthetic_continuation(prompt, "short", 128, vocab));
  }
}

// Logits of an analytic prompt, step by step, are close to those of a fresh oracle of the same weights.
// Where a lag of "short" reaches before the prompt, planted heads mix what rows there are. Without
// QK-norm the lengths of the keys set their weights, and bf16 K and V change the logits by 13 %.
inline void require_follows(Engine& e, Oracle& oracle, const ModelShape& shape) {
  const size_t first = shape.qk_norm ? 0 : 11;
  const auto ids = synthetic_prompt(19, 7, shape.vocab);
  const auto truth = truth_of(oracle, ids);
  e.reset();
  e.poison();
  require_close(compare_all(e, ids, truth, kTrainedLimits.margin, first), kTrainedLimits, 0);
}

inline void require_hidden_close(Engine& e, const Oracle& oracle) {
  for (size_t layer = 0; layer < oracle.hidden_states().size(); ++layer) {
    const auto hidden = e.hidden(static_cast<int>(layer)).value();
    INFO("layer " << layer);
    REQUIRE(relative_error(hidden, oracle.hidden_states()[layer]) <= kHiddenLimit);
  }
}

// One vector for each id: its row of the embedding, plus `share` of the next row.
inline std::vector<Bf16> vectors_of(const ModelWeights& w, const std::vector<int32_t>& ids,
                                    float share) {
  std::vector<Bf16> vectors;
  for (const int32_t id : ids) {
    const auto row = w.embed_tokens.row(id),
               next = w.embed_tokens.row((id + 1) % w.embed_tokens.rows);
    for (size_t i = 0; i < row.size(); ++i)
      vectors.push_back(to_bf16(to_float(row[i]) + share * to_float(next[i])));
  }
  return vectors;
}

// Steps by vectors that are no rows of the embedding, in two calls, then a step by id: logits and
// hidden vectors are the oracle's.
inline void require_vectors_agree(Engine& e, const ModelWeights& w, const Limits& limits) {
  const auto width = static_cast<size_t>(w.config.shape.hidden);
  const auto vocab = static_cast<size_t>(w.config.shape.vocab);
  const std::vector<Bf16> vectors = vectors_of(w, random_ids(40, w.config.shape.vocab), 0.5f);
  std::vector<float> logits(41 * vocab), hidden(41 * width);
  e.reset();
  e.poison();
  for (const int begin : {0, 15}) {
    const auto at = static_cast<size_t>(begin);
    e.decode_vectors(begin == 0 ? 15 : 25, {.in = &vectors[at * width],
                                            .hidden_out = &hidden[at * width],
                                            .logits_out = &logits[at * vocab]});
  }
  REQUIRE(e.position() == 40);
  e.set_pending(7);
  e.decode_vectors(1, {.hidden_out = &hidden[40 * width], .logits_out = &logits[40 * vocab]});
  Oracle oracle(w);
  for (size_t t = 0; t <= 40; ++t) {
    const std::vector<float> truth =
        t < 40 ? oracle.step(std::span(vectors).subspan(t * width, width)) : oracle.step(7);
    INFO("step " << t);
    REQUIRE(relative_error(std::span(logits).subspan(t * vocab, vocab), truth) <= limits.worst);
    REQUIRE(relative_error(std::span(hidden).subspan(t * width, width), oracle.final_hidden()) <=
            limits.worst);
  }
}

// Rows of the embedding as vectors give the bits of their ids.
inline void require_rows_equal_ids(Engine& e, const ModelWeights& w) {
  const std::vector<int32_t> ids = random_ids(20, w.config.shape.vocab);
  const std::vector<Bf16> rows = vectors_of(w, ids, 0);
  std::vector<float> by_id(20 * static_cast<size_t>(w.config.shape.vocab)), by_vector(by_id.size());
  e.reset();
  e.set_pending(ids[0]);
  const std::vector<int32_t> wanted = e.decode(20, ids.data(), by_id.data());
  const uint64_t checksum = e.save().kv_checksum;
  e.reset();
  REQUIRE(e.decode_vectors(20, {.in = rows.data(), .logits_out = by_vector.data()}) == wanted);
  REQUIRE(by_vector == by_id);
  REQUIRE(e.save().kv_checksum == checksum);
}

// What is no input of a trunk is refused, and the sequence stays as it is.
inline void require_vectors_refused(Engine& e, const ModelWeights& w) {
  std::vector<Bf16> vectors = vectors_of(w, {1, 2, 3}, 0);
  std::vector<int32_t> positions = {0, 1, 2, 0, 1, 2, 0, 1, 2};
  const auto refused = [&](const VectorSteps& steps, const std::string& words) {
    REQUIRE_THAT(error_line([&] { e.decode_vectors(3, steps); }), ContainsText(words));
    REQUIRE(e.position() == 0);
  };
  e.reset();
  refused({}, "no pending id");
  positions[5] = 4;
  refused({.in = vectors.data(), .positions = positions.data()},
          "mRoPE positions of step 2: found 2, 4, 2, wanted three equal rows");
  vectors.back() = {0xff80};
  refused({.in = vectors.data()},
          "vector 2, value " + std::to_string(w.config.shape.hidden - 1) + " is not finite");
}

// Makes the engine under test, with room for all positions of the model.
using EngineMaker = std::function<std::unique_ptr<Engine>(const ModelWeights&, PlantedFault)>;

// Compares every cache length from 1 to 1,025 on a trained tiny checkpoint, and the planted faults.
inline void require_agreement_to_1025(const std::string& name, const EngineMaker& make) {
  const ModelWeights w = load_folder(data_dir() / name, name);
  const auto ids = corpus_ids(1025);
  Oracle oracle(w);
  const auto truth = truth_of(oracle, ids);
  INFO(name);
  const auto e = make(w, PlantedFault::kNone);
  require_close(compare_all(*e, ids, truth, kTrainedLimits.margin), kTrainedLimits, 0.9);
  require_hidden_close(*e, oracle);

  // Each planted fault causes errors far larger than rounding does, and changes decided tokens.
  for (const PlantedFault fault :
       {PlantedFault::kRopeTheta, PlantedFault::kSwapGateUp, PlantedFault::kCacheLength}) {
    const auto faulty = make(w, fault);
    const std::vector<int32_t> start(ids.begin(), ids.begin() + 200);
    const Comparison c = compare_all(*faulty, start, truth, kTrainedLimits.margin);
    INFO("fault " << static_cast<int>(fault) << ", rms " << c.rms());
    REQUIRE(c.finite());
    REQUIRE(c.rms() > 50 * kTrainedLimits.rms);
    REQUIRE(c.wrong() > 0);
  }
}

// Compares cache lengths around the powers of two up to the last position on the first layer alone,
// which covers the whole context, its splits and the rotary table in a quarter of the oracle's
// time.
inline void require_agreement_to_the_end(const std::string& name, const EngineMaker& make) {
  ModelWeights w = load_folder(data_dir() / name, name);
  w.config.shape.layers = 1;
  w.layers.resize(1);
  REQUIRE(w.config.max_positions == 4096);
  const auto ids = corpus_ids(4096);
  Oracle oracle(w);
  const auto e = make(w, PlantedFault::kNone);
  Comparison c;
  std::vector<float> logits(static_cast<size_t>(w.config.shape.vocab));
  for (const int length :
       {255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4096}) {
    std::vector<float> truth;
    const int begin = e->position();
    for (int t = begin; t < length; ++t) truth = oracle.step(ids[t], t + 1 == length);
    // The pending id is the engine's own token; the text's id takes its place.
    e->set_pending(ids[begin]);
    if (length - begin > 1) e->prefill(std::span(ids).subspan(begin + 1, length - begin - 1));
    const int32_t token = e->decode(1, nullptr, logits.data())[0];
    INFO(name << ", length " << length);
    REQUIRE(e->position() == length);
    REQUIRE(relative_error(logits, truth) <= kFirstLayerLimits.worst);
    require_hidden_close(*e, oracle);
    c.add(logits, token, truth, kFirstLayerLimits.margin);
  }
  require_close(c, kFirstLayerLimits, 0.5);
}

}  // namespace mkbench::testing
