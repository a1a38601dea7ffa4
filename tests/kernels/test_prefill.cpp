// Batched prefill on a GPU: its KV rows and the next token, compared with the oracle, with single
// steps, and with other batches.
#include <cuda_runtime_api.h>

#include "kernels/plain/megakernel.h"
#include "references/base/error.h"
#include "tests/support/card_engine.h"
#include "tests/support/oracle_comparison.h"
#include "tests/support/prefill_caches.h"

namespace mkbench {
namespace {

using namespace testing;
using prefill::kChunkRows;
using prefill::kLeastRows;

// Limits against the oracle, whose KV rows are fp32. The difference is one rounding to bf16 (0.0017
// rms over random mantissas) and the effect of older rows' rounding on newer ones: 0.0021 on tiny, with a worst
// row of 0.0042, and 0.0027 and 0.0077 on tiny-qwen2, whose keys have no norm (the host twin's are the
// same). Activations rounded to bf16 would double it.
constexpr double kOracleRelative = 0.0032, kOracleWorstRow = 0.009;
// Limits against single steps, which sum the products in another order: few elements are rounded to
// the other neighbour, and each of those shifts later results a little.
constexpr double kStepwiseFirstLayer = 2e-4, kStepwiseRelative = 1.5e-3;
constexpr double kDifferingFirstLayer = 0.01, kDiffering = 0.2;

// A model on the device with what batched prefill needs.
class Batched {
 public:
  Batched(const ModelWeights& weights, int max_context, PlantedFault fault = PlantedFault::kNone)
      : shape_(weights.config.shape),
        device_(upload_model(weights, max_context, fault)),
        model_(prefill::prefill_model(device_, weights.config,
                                      fault == PlantedFault::kCacheLength ? -1 : 0)),
        scratch_(shape_),
        plain_(shape_, max_context) {}

  template <class Cache>
  void append(Cache& cache, std::span<const int32_t> ids, int position) {
    scratch_.poison();
    prefill::prefill_rows(model_, cache.view(), scratch_, ids, position);
  }
  // The rows of `ids`, computed in pieces of the given sizes and a last piece with the rest.
  KvRows rows(const std::vector<int32_t>& ids, const std::vector<int>& pieces = {}) {
    plain_.poison();
    append_pieces(plain_, ids, pieces);
    return plain_.rows(static_cast<int>(ids.size()));
  }
  template <class Cache>
  void append_pieces(Cache& cache, const std::vector<int32_t>& ids,
                     const std::vector<int>& pieces) {
    std::span<const int32_t> left(ids);
    for (const int piece : pieces) {
      append(cache, left.first(static_cast<size_t>(piece)),
             static_cast<int>(ids.size() - left.size()));
      left = left.subspan(static_cast<size_t>(piece));
    }
    append(cache, left, static_cast<int>(ids.size() - left.size()));
  }
  const PlainCache& plain() const { return plain_; }
  const ModelShape& shape() const { return shape_; }
  const prefill::PrefillModel& model() const { return model_; }
  const prefill::PrefillScratch& scratch() const { return scratch_; }

 private:
  ModelShape shape_;
  DeviceModel device_;
  prefill::PrefillModel model_;
  prefill::PrefillScratch scratch_;
  PlainCache plain_;
};

// Requires equal bits in every row, and names the first difference.
void require_equal_rows(const KvRows& a, const KvRows& b, int layers, int positions) {
  for (int layer = 0; layer < layers; ++layer) {
    for (int position = 0; position < positions; ++position) {
      const auto x = a.row(layer, position), y = b.row(layer, position);
      if (std::memcmp(x.data(), y.data(), x.size_bytes()) == 0) continue;
      size_t i = 0;
      while (x[i].bits == y[i].bits) ++i;
      INFO("layer " << layer << ", position " << position << ", element " << i << ": "
                    << to_float(x[i]) << " and " << to_float(y[i]));
      REQUIRE(x[i].bits == y[i].bits);
    }
  }
}

void require_near_oracle(const KvRows& rows, const Oracle& oracle, int layers, int positions) {
  for (int layer = 0; layer < layers; ++layer) {
    const LayerDifference d = difference(
        rows, layer, positions, [&](int position) { return oracle.kv_row(layer, position); });
    INFO("layer " << layer << ", " << positions << " rows: relative " << d.relative
                  << ", worst row " << d.worst_row << " at position " << d.worst_position);
    REQUIRE(d.finite);
    REQUIRE(d.relative <= kOracleRelative);
    REQUIRE(d.worst_row <= kOracleWorstRow);
  }
}

TEST_CASE("batched rows agree with the oracle, whatever the chunks", "[prefill]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const std::string name =
      GENERATE(as<std::string>(), "tiny", "tiny-untied", "tiny-llama", "tiny-qwen2");
  INFO(name);
  constexpr int kMost = 2 * kChunkRows + 1;
  const ModelWeights w = load_folder(data_dir() / name, name);
  const int layers = w.config.shape.layers;
  const auto ids = corpus_ids(kMost);
  Oracle oracle(w);
  for (const int32_t id : ids) oracle.step(id, false);
  Batched batched(w, 1100);
  const KvRows all = batched.rows(ids);
  require_near_oracle(all, oracle, layers, kMost);

  // A row's bits depend on the ids before it, not on how many rows are computed together.
  for (const int count : {1,   2,   15,  16,  17,  31,  32,  33,  63,  64,   65,   127,
                          128, 129, 255, 256, 257, 300, 511, 512, 513, 1024, kMost}) {
    INFO(count << " rows at once");
    const KvRows some = batched.rows({ids.begin(), ids.begin() + count});
    require_equal_rows(some, all, layers, count);
    REQUIRE(batched.plain().touched_from(count) == 0);
  }
  const std::vector<std::vector<int>> splits{{1}, {1, 1, 62}, {300}, {64, 65, 63, 512}, {511, 2}};
  for (size_t i = 0; i < splits.size(); ++i) {
    INFO("split " << i);
    require_equal_rows(batched.rows(ids, splits[i]), all, layers, kMost);
  }
}

TEST_CASE("batched prefill repeats itself to the bit", "[prefill]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const ModelWeights w = load_folder(data_dir() / "tiny", "tiny");
  Batched batched(w, 700);
  const auto ids = random_ids(700, 256), other = corpus_ids(333);
  const KvRows first = batched.rows(ids), others = batched.rows(other);
  for (int i = 0; i < 20; ++i) {
    INFO("repetition " << i);
    require_equal_rows(batched.rows(ids), first, w.config.shape.layers, 700);
    require_equal_rows(batched.rows(other), others, w.config.shape.layers, 333);
  }
}

// An engine with the rows of `ids`, computed by single steps.
std::unique_ptr<Engine> stepped(const ModelWeights& w, const std::vector<int32_t>& ids,
                                PlantedFault fault) {
  auto e = make_plain(w, {.max_context = static_cast<int>(ids.size()) + 1, .fault = fault});
  e->set_pending(ids[0]);
  e->decode(static_cast<int>(ids.size()), ids.data());
  return e;
}

TEST_CASE("batched rows are those of single steps, with every planted fault", "[prefill]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const std::string name =
      GENERATE(as<std::string>(), "tiny", "tiny-untied", "tiny-llama", "tiny-qwen2");
  const PlantedFault fault = GENERATE(PlantedFault::kNone, PlantedFault::kRopeTheta,
                                      PlantedFault::kSwapGateUp, PlantedFault::kCacheLength);
  const ModelWeights w = load_folder(data_dir() / name, name);
  constexpr int kRows = 300;
  const auto ids = corpus_ids(kRows);
  const auto steps = stepped(w, ids, fault);
  Batched batched(w, kRows, fault);
  const KvRows rows = batched.rows(ids);
  for (int layer = 0; layer < w.config.shape.layers; ++layer) {
    const LayerDifference d = difference(
        rows, layer, kRows, [&](int position) { return steps->kv_row(layer, position).value(); });
    INFO(name << ", fault " << static_cast<int>(fault) << ", layer " << layer << ": relative "
              << d.relative << ", worst row " << d.worst_row << " at position " << d.worst_position
              << ", differing " << d.differing);
    REQUIRE(d.finite);
    REQUIRE(d.relative <= (layer == 0 ? kStepwiseFirstLayer : kStepwiseRelative));
    REQUIRE(d.differing <= (layer == 0 ? kDifferingFirstLayer : kDiffering));
  }
  if (fault == PlantedFault::kNone) return;
  // The fault has an effect: the last layer's rows are far from those without it.
  Batched sound(w, kRows);
  const KvRows truth = sound.rows(ids);
  const int last = w.config.shape.layers - 1;
  const LayerDifference d = difference(rows, last, kRows, [&](int position) {
    std::vector<float> row;
    for (const Bf16 x : truth.row(last, position)) row.push_back(to_float(x));
    return row;
  });
  INFO(name << ", fault " << static_cast<int>(fault) << ": relative " << d.relative);
  REQUIRE(d.finite);
  REQUIRE(d.relative > 50 * kStepwiseRelative);
}

// Launches of a batch of `rows` rows. A chunk has 1 for the embedding, 3 in every layer up to its
// KV rows, and 5 more in all layers but the last.
int64_t launches_of(const ModelShape& shape, int rows) {
  return (rows + kChunkRows - 1) / kChunkRows * (1 + 3 * shape.layers + 5 * (shape.layers - 1));
}

TEST_CASE("the token after a batched prefill is the oracle's", "[prefill]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const std::string name =
      GENERATE(as<std::string>(), "tiny", "tiny-untied", "tiny-llama", "tiny-qwen2");
  const ModelWeights w = load_folder(data_dir() / name, name);
  const auto ids = corpus_ids(1026);
  Oracle oracle(w);
  const auto e = make_plain(w, {.max_context = 1100});
  std::vector<float> logits(static_cast<size_t>(w.config.shape.vocab));
  Comparison c;
  for (const int depth : {kLeastRows, 17, 63, 64, 65, 300, 511, 512, 513, 1025}) {
    std::vector<float> truth;
    for (int t = oracle.position(); t <= depth; ++t) truth = oracle.step(ids[t], t == depth);
    e->reset();
    e->poison();
    const int64_t launches = e->launch_count();
    e->prefill(std::span(ids).first(static_cast<size_t>(depth) + 1));
    INFO(name << ", depth " << depth);
    REQUIRE(e->position() == depth);
    REQUIRE(e->progress().position == depth - 1);
    REQUIRE(e->launch_count() == launches + launches_of(w.config.shape, depth));
    REQUIRE(e->last_times().per_token_ms.empty());
    const int32_t token = e->decode(1, nullptr, logits.data())[0];
    REQUIRE(relative_error(logits, truth) <= kTrainedLimits.worst);
    c.add(logits, token, truth, kTrainedLimits.margin);
  }
  require_close(c, kTrainedLimits, 0.5);
}

TEST_CASE("few rows are prefilled by single steps in one launch", "[prefill]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const ModelWeights w = load_folder(data_dir() / "tiny", "tiny");
  const auto e = make_plain(w, {.max_context = 64});
  e->prefill(corpus_ids(kLeastRows));  // one row fewer: the last id is pending
  REQUIRE(e->position() == kLeastRows - 1);
  REQUIRE(e->launch_count() == 1);
  e->prefill(corpus_ids(kLeastRows));  // with the pending id, enough rows for a batch
  REQUIRE(e->position() == 2 * kLeastRows - 1);
  REQUIRE(e->launch_count() == 1 + launches_of(w.config.shape, kLeastRows));
}

TEST_CASE("four layers of the full shape: the oracle's rows, the same in both layouts",
          "[prefill]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const ModelWeights w = make_synthetic("short", 0, 4);
  constexpr int kNear = 130, kRows = 1100;  // beyond one round of the ring's tiles
  const auto ids = synthetic_prompt(kRows - 1, 7);
  Oracle oracle(w);
  for (int t = 0; t < kNear; ++t) oracle.step(ids[static_cast<size_t>(t)], false);
  Batched batched(w, kRows + 50);
  const KvRows plain = batched.rows(ids);
  require_near_oracle(plain, oracle, 4, kNear);

  RingCache ring(w.config.shape, kRows + 50);
  batched.append_pieces(ring, ids, {1, 40, 500});
  require_equal_rows(ring.rows(kRows), plain, 4, kRows);
  REQUIRE(ring.touched() == int64_t{kRows} * 4 * 2 * w.config.shape.kv_width());

  const std::vector<float> maxima = ring.key_maxima();
  for (int slab = 0; slab < 4 * w.config.shape.kv_heads; ++slab) {
    const int layer = slab / w.config.shape.kv_heads, head = slab % w.config.shape.kv_heads;
    double longest = 0;
    for (int position = 0; position < kRows; ++position) {
      double squares = 0;
      for (int d = 0; d < w.config.shape.head_dim; ++d) {
        const double x = to_float(
            plain.row(layer, position)[static_cast<size_t>(head * w.config.shape.head_dim + d)]);
        squares += x * x;
      }
      longest = std::max(longest, std::sqrt(squares));
    }
    INFO("layer " << layer << ", kv head " << head);
    REQUIRE(maxima[static_cast<size_t>(slab)] == Approx(longest).epsilon(1e-5));
  }
}

TEST_CASE("batched prefill fills the longest context, in both layouts", "[prefill]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const ModelWeights w = make_synthetic("none", 0, 2);
  const int most = w.config.max_positions, last = most - 1;
  REQUIRE(most == 40960);
  const auto ids = synthetic_prompt(last, 11);
  REQUIRE(ids.size() == static_cast<size_t>(most));
  const auto e = make_plain(w, {.max_context = most});
  e->prefill(ids);  // all rows but the last, which decode() writes
  REQUIRE(e->position() == last);
  e->decode(1);
  Batched batched(w, most);
  const KvRows plain = batched.rows(ids);
  for (int layer = 0; layer < 2; ++layer) {
    const std::vector<float> stepped_row = e->kv_row(layer, last).value();
    double error = 0, size = 0;
    for (size_t i = 0; i < stepped_row.size(); ++i) {
      const double x = to_float(plain.row(layer, last)[i]), y = stepped_row[i];
      error += (x - y) * (x - y);
      size += y * y;
    }
    INFO("layer " << layer << ": relative " << std::sqrt(error / size));
    REQUIRE(std::sqrt(error / size) <= 2 * kStepwiseRelative);  // twice: a single row
  }
  RingCache ring(w.config.shape, most);
  batched.append(ring, ids, 0);
  require_equal_rows(ring.rows(most), plain, 2, most);
}

// Also run under compute-sanitizer's memcheck, therefore few rows.
TEST_CASE("batched prefill stays inside its buffers", "[prefill][memcheck][racecheck]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const ModelWeights w = load_folder(data_dir() / "tiny", "tiny");
  constexpr int kContext = 131;  // the cache's last row is written
  Batched batched(w, kContext);
  const auto ids = corpus_ids(kContext);
  const KvRows rows = batched.rows(ids, {1, 64, 3});
  for (int layer = 0; layer < w.config.shape.layers; ++layer) {
    for (const Bf16 x : rows.row(layer, kContext - 1)) REQUIRE(std::isfinite(to_float(x)));
  }
  const ModelWeights full = make_synthetic("none", 0, 2);
  Batched wide(full, 70);
  RingCache ring(full.config.shape, 70);
  wide.append_pieces(ring, synthetic_prompt(69, 3), {33});
  REQUIRE(ring.touched() == 70LL * 2 * 2 * full.config.shape.kv_width());
}

TEST_CASE("batched prefill refuses what it cannot do", "[prefill]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const ModelWeights w = load_folder(data_dir() / "tiny", "tiny");
  Batched batched(w, 64);
  PlainCache cache(w.config.shape, 64);
  const auto ids = corpus_ids(40);
  REQUIRE_THROWS_AS(batched.append(cache, ids, 25), Error);
  REQUIRE_THROWS_AS(batched.append(cache, ids, -1), Error);
  const prefill::RingKv ring{nullptr, nullptr, w.config.shape.kv_heads, 64};  // never accessed
  REQUIRE_THROWS_AS(prefill::prefill_rows(batched.model(), ring, batched.scratch(), ids, 0), Error);
  REQUIRE(cache.touched_from(0) == 0);
  batched.append(cache, {}, 0);  // no rows
  REQUIRE(cache.touched_from(0) == 0);
  batched.append(cache, ids, 24);  // the rows below are NaN, and so become these
  REQUIRE(cache.touched_from(64) == 0);
}

}  // namespace
}  // namespace mkbench
