// The ring megakernel's repacked weights and KV rows in device memory, compared element by element.
#include <cmath>
#include <limits>

#include "kernels/device_model.h"
#include "kernels/ring/kv_rows.h"
#include "kernels/ring/repack.h"
#include "tests/support/ring_layouts.h"
#include "tests/support/ring_models.h"

namespace mkbench::ring {
namespace {

using namespace testing;

template <typename T>
std::vector<T> fetch(const T* from, size_t count) {
  std::vector<T> values(count);
  MKBENCH_CUDA(cudaMemcpy(values.data(), from, sizeof(T) * count, cudaMemcpyDeviceToHost));
  return values;
}

const Matrix& matrix_of(const LayerWeights& w, Tensor t) {
  const Matrix* all[] = {&w.q_proj,    &w.k_proj,  &w.v_proj,   &w.o_proj,
                         &w.gate_proj, &w.up_proj, &w.down_proj};
  return *all[static_cast<int>(t)];
}

Bf16 element_of(const Matrix& m, int row, int column) {
  return m.row(row)[static_cast<size_t>(column)];
}

// Compares the repacked stream of a model with what the maps of its layout say.
template <typename L>
void require_repacked(const ModelWeights& w, bool swapped) {
  const PlantedFault fault = swapped ? PlantedFault::kSwapGateUp : PlantedFault::kNone;
  const ModelShape& shape = w.config.shape;
  const DeviceModel model = upload_model(w, 16, fault);
  const StreamedModel streamed = repack(model, shape);
  const int slots = L::stream_slots(shape.layers, shape.vocab);
  const size_t bytes = slot_offset(slots, 0);
  REQUIRE(streamed.stream.size() == bytes);
  const auto stream = fetch(reinterpret_cast<const Bf16*>(streamed.stream.get()), bytes / 2);
  int64_t wrong = 0, padding = 0;
  for (int slot = 0; slot < slots; ++slot) {
    for (int block = 0; block < kBlocks; ++block) {
      const Bf16* at = stream.data() + slot_offset(slot, block) / 2;
      for (int e = 0; e < kSlotBytes / 2; ++e) {
        Bf16 wanted{0};
        if (slot >= shape.layers * L::kLayerSlots) {
          const HeadIndex h =
              L::head_at(shape.vocab, block, slot - shape.layers * L::kLayerSlots, e);
          padding += h.row < 0;
          if (h.row >= 0) wanted = element_of(w.lm_head, h.row, h.column);
        } else {
          const LayerWeights& layer = w.layers[static_cast<size_t>(slot / L::kLayerSlots)];
          WeightIndex index =
              L::weight_at(block / kMembers, block % kMembers, slot % L::kLayerSlots, e);
          padding += index.row < 0;
          if (swapped && index.tensor == Tensor::kGate) {
            index.tensor = Tensor::kUp;
          } else if (swapped && index.tensor == Tensor::kUp) {
            index.tensor = Tensor::kGate;
          }
          if (index.row >= 0)
            wanted = element_of(matrix_of(layer, index.tensor), index.row, index.column);
        }
        wrong += at[e].bits != wanted.bits;
      }
    }
  }
  REQUIRE(wrong == 0);
  const int64_t real = shape.layers * (shape.layer_parameters() - 2 * L::kHidden - 2 * kHeadDim) +
                       shape.embedding_parameters();
  REQUIRE(padding == static_cast<int64_t>(bytes / 2) - real);

  const auto norms = fetch(streamed.norms.get(), streamed.norms.size());
  const auto qk = fetch(streamed.qk_norms.get(), streamed.qk_norms.size());
  const auto same = [](const Bf16* a, const Matrix& m) {
    return std::equal(m.data, m.data + m.size(), a,
                      [](Bf16 x, Bf16 y) { return x.bits == y.bits; });
  };
  for (size_t layer = 0; layer < w.layers.size(); ++layer) {
    REQUIRE(same(&norms[2 * layer * L::kHidden], w.layers[layer].input_layernorm));
    REQUIRE(same(&norms[(2 * layer + 1) * L::kHidden], w.layers[layer].post_attention_layernorm));
    REQUIRE(same(&qk[2 * layer * kHeadDim], w.layers[layer].q_norm));
    REQUIRE(same(&qk[(2 * layer + 1) * kHeadDim], w.layers[layer].k_norm));
  }
  REQUIRE(same(&norms[2 * w.layers.size() * L::kHidden], w.final_norm));
}

TEST_CASE("the stream holds the weights where the map says, the padding is zero", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  for_each_layout([]<typename L>(L) {
    INFO("hidden_size " << L::kHidden);
    if (L::kHeld) {
      for (const bool swapped : {false, true})
        require_repacked<L>(with_layers(four_layers(), 2), swapped);
      return;
    }
    ModelShape shape = L::kShape;
    shape.layers = 1;
    shape.vocab = 1000;
    require_repacked<L>(random_model(shape, {.tied = true}), false);
  });
}

// A poisoned cache, and random rows on host and device that a test can write into it.
struct FilledCache {
  static constexpr int kLayers = 2;
  FilledCache(int context, int rows)
      : source_rows(rows),
        elements(static_cast<size_t>(kLayers) * kGroups * static_cast<size_t>(rows) * kHeadDim),
        memory(KvCache{nullptr, kLayers, context}.bytes()),
        k(elements),
        v(elements) {
    for (size_t i = 0; i < elements; ++i) {
      host_k.push_back(to_bf16(normal_at(1, i)));
      host_v.push_back(to_bf16(normal_at(2, i)));
    }
    MKBENCH_CUDA(cudaMemcpy(k.get(), host_k.data(), k.bytes(), cudaMemcpyHostToDevice));
    MKBENCH_CUDA(cudaMemcpy(v.get(), host_v.data(), v.bytes(), cudaMemcpyHostToDevice));
    cache = {memory.get(), kLayers, context};
    poison_rows(cache, 0);
  }
  size_t at(int layer, int head, int row, int d) const {
    return (static_cast<size_t>((layer * kGroups + head) * source_rows + row)) * kHeadDim +
           static_cast<size_t>(d);
  }

  int source_rows;
  size_t elements;
  DeviceBuffer<char> memory;
  DeviceBuffer<Bf16> k, v;
  std::vector<Bf16> host_k, host_v;
  KvCache cache{};
};

TEST_CASE("rows written are the rows read, and nothing else is touched", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  constexpr int kFirst = 500, kRows = 600;
  FilledCache f(1200, kRows);
  write_rows(f.cache, {f.k.get(), f.v.get(), kRows}, kFirst, kRows);
  for (int layer = 0; layer < FilledCache::kLayers; ++layer) {
    for (const int position : {kFirst, 511, 512, 513, 1023, 1024, 1025, kFirst + kRows - 1}) {
      const auto row = read_row(f.cache, layer, position);
      bool equal = true;
      for (int head = 0; head < kGroups; ++head) {
        for (int d = 0; d < kHeadDim; ++d) {
          const size_t from = f.at(layer, head, position - kFirst, d);
          const size_t to = static_cast<size_t>(head * kHeadDim + d);
          equal = equal && row[to] == to_float(f.host_k[from]) &&
                  row[kGroups * kHeadDim + to] == to_float(f.host_v[from]);
        }
      }
      INFO("layer " << layer << ", position " << position);
      REQUIRE(equal);
    }
    for (const int position : {0, kFirst - 1, kFirst + kRows, 1199}) {
      const auto row = read_row(f.cache, layer, position);
      REQUIRE(std::all_of(row.begin(), row.end(), [](float x) { return std::isnan(x); }));
    }
  }
}

TEST_CASE("poison reaches every element from its position on and none below", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  FilledCache f(1030, 1);
  const size_t count = f.memory.bytes() / 2;
  for (const int position : {0, 1, 31, 32, 40, 511, 512, 543, 1023, 1024, 1029, 1030}) {
    MKBENCH_CUDA(cudaMemset(f.memory.get(), 0, f.memory.bytes()));
    poison_rows(f.cache, position);
    const auto bits = fetch(reinterpret_cast<const uint16_t*>(f.memory.get()), count);
    INFO("position " << position);
    REQUIRE(
        std::all_of(bits.begin(), bits.end(), [](uint16_t b) { return b == 0 || b == 0xffff; }));
    // There are as many zeros as elements in the rows below; so the last round's tail is NaN too.
    REQUIRE(std::count(bits.begin(), bits.end(), 0) ==
            int64_t{2} * FilledCache::kLayers * kGroups * position * kHeadDim);
    if (position > 0) {
      const auto last = read_row(f.cache, 1, position - 1);
      REQUIRE(std::all_of(last.begin(), last.end(), [](float x) { return x == 0; }));
    }
  }
}

TEST_CASE("the checksum sees every element below its position and none above", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  constexpr int kRows = 1060, kPositions = 1043;
  FilledCache f(1100, kRows);
  write_rows(f.cache, {f.k.get(), f.v.get(), kRows}, 0, kRows);
  const uint64_t sum = kv_checksum(f.cache, kPositions);
  REQUIRE(kv_checksum(f.cache, kPositions) == sum);
  REQUIRE(kv_checksum(f.cache, kPositions - 1) != sum);
  REQUIRE(kv_checksum(f.cache, 0) == 0);
  poison_rows(f.cache, kPositions);
  REQUIRE(kv_checksum(f.cache, kPositions) == sum);
  for (const int position :
       {0, 1, 31, 32, 511, 512, 1023, 1024, kPositions - 1, kPositions, 1050}) {
    for (const int kind : {0, 1}) {
      for (const int d : {0, 1, 63, 127}) {
        const size_t head = 13 * kv_head_bytes(1100);  // layer 1, kv head 5
        char* at = f.memory.get() + head + kv_offset(position, d, kind);
        const uint16_t before = fetch(reinterpret_cast<uint16_t*>(at), 1)[0];
        const uint16_t flipped = before ^ 1;
        MKBENCH_CUDA(cudaMemcpy(at, &flipped, 2, cudaMemcpyHostToDevice));
        INFO("position " << position << ", kind " << kind << ", d " << d);
        REQUIRE((kv_checksum(f.cache, kPositions) != sum) == (position < kPositions));
        MKBENCH_CUDA(cudaMemcpy(at, &before, 2, cudaMemcpyHostToDevice));
      }
    }
  }
  REQUIRE(kv_checksum(f.cache, kPositions) == sum);
  // Swapping two rows keeps all bits but moves them.
  const size_t row = static_cast<size_t>(kRows) * kHeadDim;
  std::swap_ranges(f.host_k.begin() + static_cast<int64_t>(row),
                   f.host_k.begin() + static_cast<int64_t>(row) + kHeadDim,
                   f.host_k.begin() + static_cast<int64_t>(row) + kHeadDim);
  MKBENCH_CUDA(cudaMemcpy(f.k.get(), f.host_k.data(), f.k.bytes(), cudaMemcpyHostToDevice));
  write_rows(f.cache, {f.k.get(), f.v.get(), kRows}, 0, kRows);
  REQUIRE(kv_checksum(f.cache, kPositions) != sum);
}

TEST_CASE("the longest key of each head, and NaN when a key is", "[ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  constexpr int kRows = 1040;
  FilledCache f(1100, kRows);
  write_rows(f.cache, {f.k.get(), f.v.get(), kRows}, 0, kRows);
  for (const int positions : {1, 33, 1040}) {
    const auto maxima = key_maxima(f.cache, positions);
    REQUIRE(maxima.size() == size_t{FilledCache::kLayers} * kGroups);
    REQUIRE(key_maxima(f.cache, positions) == maxima);
    for (int layer = 0; layer < FilledCache::kLayers; ++layer) {
      for (int head = 0; head < kGroups; ++head) {
        double longest = 0;
        for (int row = 0; row < positions; ++row) {
          double squares = 0;
          for (int d = 0; d < kHeadDim; ++d) {
            const double x = to_float(f.host_k[f.at(layer, head, row, d)]);
            squares += x * x;
          }
          longest = std::max(longest, std::sqrt(squares));
        }
        const float found = maxima[static_cast<size_t>(layer * kGroups + head)];
        REQUIRE(found == Approx(longest).epsilon(1e-5));
      }
    }
  }
  const auto none = key_maxima(f.cache, 0);
  REQUIRE(std::all_of(none.begin(), none.end(), [](float x) { return x == 0; }));
  poison_rows(f.cache, kRows - 1);
  const auto poisoned = key_maxima(f.cache, kRows);
  REQUIRE(std::all_of(poisoned.begin(), poisoned.end(), [](float x) { return std::isnan(x); }));
}

}  // namespace
}  // namespace mkbench::ring
