// The ring megakernel on a GPU for every layer shape that it is compiled for: cuts of a few layers
// against the closed form, the oracle and the plain megakernel.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/plain/megakernel.h"
#include "kernels/ring/tuning.h"
#include "references/base/error.h"
#include "tests/support/ring_layouts.h"
#include "tests/support/ring_models.h"

namespace mkbench {
namespace {

using namespace testing;

constexpr int kVocab = 1000;  // not divisible by the blocks' shares

// Whether this card has room for the shape, by the rule that test_ring_host checks. A kernel that has
// room and does not run must fail here.
bool card_runs(const ModelShape& shape) {
  int major = 0;
  REQUIRE(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess);
  return ring::layout_obstacle(shape).empty() && ring::room_obstacle(shape, major).empty();
}

TEST_CASE("ring follows four layers of every shape, by oracle and closed form", "[ring-shapes]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  ShapeRow row = GENERATE(from_range(std::begin(kShapeTable), std::end(kShapeTable)));
  INFO(row.name);
  if (!card_runs(row.shape)) return;
  row.shape.layers = 4;
  const ModelWeights w = make_synthetic(row, "short");
  const auto e = make_ring(w, {.max_context = 512});
  for (const int split_from : {-1, 0, 512}) {
    retune_ring(*e, {.split_from = split_from});
    INFO("split from " << split_from);
    require_closed_form(*e, row.shape.vocab);
  }
  Oracle oracle(w);
  require_follows(*e, oracle, row.shape);
  require_hidden_close(*e, oracle);
}

// Two layers of random weights, made once a process for each shape.
const ModelWeights& two_layers(ModelShape shape) {
  static std::map<int, ModelWeights> made;  // by hidden_size
  shape.layers = 2;
  shape.vocab = kVocab;
  const auto at = made.find(shape.hidden);
  if (at != made.end()) return at->second;
  const ModelWeights w = random_model(shape, {.tied = false, .max_positions = 4096});
  return made.emplace(shape.hidden, with_contrast(w, 2.5f, 1.0f)).first->second;
}

// Returns the logits of `ids`, which are forced step by step in one launch.
std::vector<float> logits_of(Engine& e, const std::vector<int32_t>& ids) {
  std::vector<float> logits(ids.size() * kVocab);
  e.reset();
  e.poison();
  e.set_pending(ids[0]);
  e.decode(static_cast<int>(ids.size()), ids.data(), logits.data());
  return logits;
}

// ring and plain both round K and V to bf16, after sums in different orders.
constexpr double kMost = 0.006;

// The largest relative error of a step; NaN where one is.
double worst_step(std::span<const float> found, std::span<const float> wanted) {
  double worst = 0;
  for (size_t t = 0; t < found.size() / kVocab; ++t) {
    const double error =
        relative_error(found.subspan(t * kVocab, kVocab), wanted.subspan(t * kVocab, kVocab));
    if (!(error <= worst)) worst = error;
    if (std::isnan(worst)) break;
  }
  return worst;
}

TEST_CASE("ring agrees with plain on random layers of every shape, in every mode",
          "[ring-shapes]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const ModelShape shape = GENERATE(from_range(ring_shapes()));
  INFO("hidden_size " << shape.hidden);
  if (!card_runs(shape)) return;
  const ModelWeights& near = two_layers(shape);
  const auto ids = random_ids(330, kVocab);
  for (const ModelWeights& w : {near, bound_decides(near), bound_too_far(near)}) {
    const auto plain = make_plain(w, {.max_context = 512});
    const std::vector<float> wanted = logits_of(*plain, ids);
    const auto ring = make_ring(w, {.max_context = 512});
    for (const int split_from : {-1, 0, 512}) {
      for (const bool slow : {false, true}) {
        INFO("split from " << split_from << ", slow " << slow);
        retune_ring(*ring, {.split_from = split_from, .slow_attention = slow});
        REQUIRE(worst_step(logits_of(*ring, ids), wanted) <= kMost);
      }
    }
  }
}

TEST_CASE("ring of every shape repeats itself to the bit at every pace", "[ring-shapes]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const ModelShape shape = GENERATE(from_range(ring_shapes()));
  INFO("hidden_size " << shape.hidden);
  if (!card_runs(shape)) return;
  int major = 0;
  REQUIRE(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess);
  const auto prompt = random_ids(120, kVocab);
  const auto e = make_ring(two_layers(shape), {.max_context = 256});
  const Run first = run(*e, prompt, 16, kVocab);  // begins redundant, ends split
  REQUIRE(std::count(first.ids.begin(), first.ids.end(), -1) == 0);
  const int most = ring::most_copies_in_flight(shape, major);
  for (int copies = 1; copies <= most; ++copies) {
    for (const int gap : {0, 700}) {
      INFO(copies << " copies, " << gap << " cycles");
      const int head = std::min(copies, ring::most_head_copies_in_flight(shape, major));
      retune_ring(*e, {.pace = {copies, gap}, .head_pace = {head, 0}});
      for (int i = 0; i < 5; ++i) REQUIRE(run(*e, prompt, 16, kVocab) == first);
    }
  }
}

TEST_CASE("each planted fault of ring is far outside of what rounding explains, in every shape",
          "[ring-shapes]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const ModelShape shape = GENERATE(from_range(ring_shapes()));
  INFO("hidden_size " << shape.hidden);
  if (!card_runs(shape)) return;
  const ModelWeights& w = two_layers(shape);
  const auto ids = random_ids(200, kVocab);
  const auto plain = make_plain(w, {.max_context = 256});
  const std::vector<float> wanted = logits_of(*plain, ids);
  for (const PlantedFault fault :
       {PlantedFault::kRopeTheta, PlantedFault::kSwapGateUp, PlantedFault::kCacheLength}) {
    const auto e = make_ring(w, {.max_context = 256, .fault = fault});
    const double worst = worst_step(logits_of(*e, ids), wanted);
    INFO("fault " << static_cast<int>(fault) << ", worst " << worst);
    REQUIRE(worst > 5 * kMost);
  }
}

TEST_CASE("a block of ring that withholds its results is named, in every shape", "[ring-shapes]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const ModelShape shape = GENERATE(from_range(ring_shapes()));
  INFO("hidden_size " << shape.hidden);
  if (!card_runs(shape)) return;
  const ModelWeights& w = two_layers(shape);
  const auto e = make_ring(w, {.max_context = 64, .spin_scale = 0.02, .stall_block = 77});
  e->set_pending(1);
  const std::string message = thrown_by([&] { e->decode(4); }).message;
  // The block's group waits in attention, the other groups for the sum that it adds to.
  REQUIRE_THAT(message, ContainsText("waited in vain before phase "));
  REQUIRE_THAT(message, ContainsText(", layer 0, position 0: expected "));
  const std::optional<Standstill> stood = e->standstill();
  REQUIRE(stood.has_value());
  const auto held_back = std::find_if(stood->blocks.begin(), stood->blocks.end(),
                                      [](const BlockPlace& place) { return place.block == 77; });
  REQUIRE(held_back != stood->blocks.end());
  REQUIRE(held_back->epoch < stood->wanted);
}

}  // namespace
}  // namespace mkbench
