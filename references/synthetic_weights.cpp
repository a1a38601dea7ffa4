#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <thread>

#include "references/base/error.h"
#include "references/base/free_memory.h"
#include "references/base/parallel.h"
#include "references/base/sha256.h"
#include "references/model/family.h"
#include "references/synthetic.h"
#include "references/synthetic_rows.h"

namespace mkbench {
namespace {

uint64_t bytes_of(const ShapeRow& row) {
  return 2 * static_cast<uint64_t>(row.shape.parameters(row.tied));
}

// Names the largest analytic model that fits into `bytes`, for a message.
std::string largest_within(uint64_t bytes) {
  const ShapeRow* best = nullptr;
  for (const ShapeRow& row : analytic_models()) {
    if (bytes_of(row) <= bytes && (best == nullptr || bytes_of(row) > bytes_of(*best))) best = &row;
  }
  if (best == nullptr) return "no model fits";
  return "the largest that fits is " + synthetic_name(*best) + " (" +
         std::to_string(bytes_of(*best) / 1'000'000) + " MB)";
}

// new Bf16[n] does not write to the memory, so the threads that fill it are the first to touch its
// pages.
std::shared_ptr<Bf16[]> heap_memory(const ModelConfig& config) {
  return std::shared_ptr<Bf16[]>(
      new Bf16[static_cast<size_t>(config.shape.parameters(config.tie_word_embeddings))]);
}

// Hashes tensors one after the other, on a thread of its own, while later ones are made.
class TrailingHash {
 public:
  explicit TrailingHash(std::vector<Matrix> tensors)
      : tensors_(std::move(tensors)), thread_([this] { run(); }) {}

  ~TrailingHash() {
    made_.store(tensors_.size());  // ends the thread if an error came before all tensors were made
    made_.notify_one();
  }

  void made_one() {
    made_.fetch_add(1);
    made_.notify_one();
  }

  // To be called after made_one() for every tensor.
  std::string hex() {
    thread_.join();
    return hash_.hex();
  }

 private:
  void run() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      for (size_t made = made_.load(); made <= i; made = made_.load()) made_.wait(made);
      hash_.update(tensors_[i].data, tensors_[i].bytes());
    }
  }

  std::vector<Matrix> tensors_;
  Sha256 hash_;
  std::atomic<size_t> made_{0};
  std::jthread thread_;
};

// The tensors as views of `data`, one after the other; a tied head is the embedding.
std::vector<Matrix> lay_out(ModelWeights& w, Bf16* data) {
  std::vector<Matrix> tensors;
  for (const NamedTensor& t : tensor_table(w.config)) {
    Matrix& matrix = tensor_of(w, t);
    if (t.global == &ModelWeights::lm_head && w.config.tie_word_embeddings) {
      matrix = w.embed_tokens;
      continue;
    }
    matrix = {data, t.rows, t.cols};
    data += matrix.size();
    tensors.push_back(matrix);
  }
  return tensors;
}

// `lags` has layer numbers of the whole model; `row` may hold its first layers only.
ModelWeights make(const ShapeRow& row, std::string_view lagset, const Lags& lags, int threads,
                  const WeightMemory& memory, uint64_t salt) {
  const SyntheticRows rows(row, lags, salt);
  ModelWeights w;
  w.name = synthetic_name(row, lagset);
  w.lagset = lagset;
  w.salt = salt;
  w.config = synthetic_config(row);
  w.model_type = family_with(row.shape).model_type;
  w.head = row.tied ? "the embedding (built in)" : "lm_head.weight (built in)";
  w.layers.resize(static_cast<size_t>(row.shape.layers));
  check_synthetic_memory(row);
  const std::shared_ptr<Bf16[]> held = memory ? memory(w.config) : heap_memory(w.config);
  const std::vector<Matrix> tensors = lay_out(w, held.get());
  TrailingHash hash(tensors);
  Bf16* out = held.get();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Matrix& t = tensors[i];
    const int64_t chunk = std::max(1, (1 << 16) / t.cols);
    parallel_chunks(t.rows, chunk, thread_count(threads), [&](int64_t begin, int64_t end) {
      rows.write(static_cast<int>(i) + 1, t.cols, begin, end, out);
    });
    out += t.size();
    hash.made_one();
  }
  w.owner = held;
  w.sha256 = hash.hex();
  return w;
}

}  // namespace

void check_synthetic_memory(const ShapeRow& row, const std::filesystem::path& root) {
  try {
    check_free_memory(bytes_of(row), synthetic_name(row), root);
  } catch (const Error& error) {
    throw Error(error.kind(),
                std::string(error.what()) + "; " + largest_within(free_memory(root).bytes));
  }
}

ModelConfig synthetic_config(const ShapeRow& row) {
  ModelConfig config;
  config.shape = row.shape;
  config.rope.theta = row.rope_theta;
  config.rope.theta_key = "built in";
  if (row.llama3_factor != 1) {
    config.rope.scaling = RopeScaling::kLlama3;
    config.rope.factor = row.llama3_factor;
    config.rope.low_freq_factor = kLlama3LowFreqFactor;
    config.rope.high_freq_factor = kLlama3HighFreqFactor;
    config.rope.original_positions = kLlama3OriginalPositions;
  }
  config.rms_norm_eps = row.rms_norm_eps;
  config.tie_word_embeddings = row.tied;
  config.max_positions = row.max_positions;
  return config;
}

std::span<const ShapeRow> analytic_models() {
  static const std::vector<ShapeRow> models = [] {
    std::vector<ShapeRow> found;
    std::copy_if(kPublishedModels.begin(), kPublishedModels.end(), std::back_inserter(found),
                 [](const ShapeRow& row) { return synthetic_obstacle(row).empty(); });
    return found;
  }();
  return models;
}

ModelWeights make_synthetic(const ShapeRow& row, std::string_view lagset, int threads,
                            const WeightMemory& memory, uint64_t salt) {
  return make(row, lagset, synthetic_lags(lagset, row.shape.layers), threads, memory, salt);
}

ModelWeights make_synthetic(std::string_view lagset, int threads, int layers,
                            const WeightMemory& memory) {
  ShapeRow row = kShapeTable[0];
  if (layers < 1 || layers > row.shape.layers) {
    throw Error(ErrorKind::kBadInput, "synthetic: layers is " + std::to_string(layers) +
                                          ", wanted 1 to " + std::to_string(row.shape.layers));
  }
  row.shape.layers = layers;
  return make(row, lagset, synthetic_lags(lagset), threads, memory, 0);
}

}  // namespace mkbench
