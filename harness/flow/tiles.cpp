#include "harness/flow/tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "references/base/error.h"
#include "references/synthetic.h"
#include "references/weight_edit.h"

namespace mkbench {
namespace {

constexpr int kRowsLookedAt = 1024;

bool is_embedding(const NamedTensor& t) { return t.global == &ModelWeights::embed_tokens; }
bool is_lm_head(const NamedTensor& t) { return t.global == &ModelWeights::lm_head; }

double length_of(std::span<const Bf16> row) {
  double squares = 0;
  for (const Bf16 x : row) squares += double{to_float(x)} * to_float(x);
  return std::sqrt(squares);
}

// The largest 2-norm of the tile's own row and of rows at equal distances.
double longest_row(const Matrix& m, int own_row) {
  double longest = length_of(m.row(own_row));
  const int step = std::max(1, m.rows / kRowsLookedAt);
  for (int r = 0; r < m.rows; r += step) longest = std::max(longest, length_of(m.row(r)));
  return longest;
}

}  // namespace

std::string Tile::name() const {
  return fmt::format("{}, row {}, columns {}-{}", tensor.name, row, first_column, last_column);
}

int64_t TilePart::bytes() const {
  int64_t sum = 0;
  for (const TileRows& t : tensors) sum += 2 * int64_t{t.row_count()} * t.tensor.cols;
  return sum;
}

std::vector<TilePart> tile_parts(const ModelConfig& config, const std::vector<int32_t>& inputs) {
  std::vector<int> looked_up(inputs.begin(), inputs.end());
  std::sort(looked_up.begin(), looked_up.end());
  looked_up.erase(std::unique(looked_up.begin(), looked_up.end()), looked_up.end());
  TilePart layers{"layers", {}}, head{"head", {}};
  for (const NamedTensor& t : tensor_table(config)) {
    if (is_lm_head(t)) {
      if (!config.tie_word_embeddings) head.tensors.push_back({t});
    } else if (!is_embedding(t)) {
      layers.tensors.push_back({t});
    } else if (config.tie_word_embeddings) {
      head.tensors.push_back({t});
    } else if (!looked_up.empty()) {
      layers.tensors.push_back({t, looked_up});
    }
  }
  return {layers, head};
}

std::vector<TilePart> parts_with(std::vector<TilePart> parts,
                                 const std::vector<std::string>& names) {
  if (names.empty()) return parts;
  const auto is_named = [&](const TileRows& t) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return t.tensor.name.find(name) != std::string::npos;
    });
  };
  for (TilePart& part : parts)
    std::erase_if(part.tensors, [&](const TileRows& t) { return !is_named(t); });
  std::erase_if(parts, [](const TilePart& part) { return part.tensors.empty(); });
  if (parts.empty()) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("--tensors: no tensor that a decode reads has {} in its "
                            "name; wanted a part of a name, such as 'down_proj' or 'layers.3.'",
                            fmt::join(names, ", ")));
  }
  return parts;
}

std::vector<TilePart> parts_by_kind(const std::vector<TilePart>& parts) {
  static const std::regex place("^model\\.(layers\\.[0-9]+\\.)?");
  std::vector<TilePart> kinds;
  for (const TilePart& part : parts) {
    for (const TileRows& t : part.tensors) {
      const std::string name = std::regex_replace(t.tensor.name, place, "");
      auto kind = std::ranges::find(kinds, name, &TilePart::name);
      if (kind == kinds.end()) kind = kinds.insert(kind, {name, {}});
      kind->tensors.push_back(t);
    }
  }
  return kinds;
}

Tile draw_tile(const TilePart& part, const std::function<uint64_t(uint64_t bound)>& random) {
  auto at = static_cast<int64_t>(random(static_cast<uint64_t>(part.bytes() / 2)));
  const TileRows* from = &part.tensors.back();
  for (const TileRows& t : part.tensors) {
    const int64_t weights = int64_t{t.row_count()} * t.tensor.cols;
    if (at < weights) {
      from = &t;
      break;
    }
    at -= weights;
  }
  Tile tile{.tensor = from->tensor};
  const auto index = static_cast<int>(at / tile.tensor.cols);
  const auto column = static_cast<int>(at % tile.tensor.cols);
  tile.row = from->rows.empty() ? index : from->rows[static_cast<size_t>(index)];
  tile.first_column = column - column % kTileWeights;
  tile.last_column = std::min(tile.first_column + kTileWeights, tile.tensor.cols) - 1;
  return tile;
}

bool is_head_tile(const Tile& tile, const ModelConfig& config) {
  return is_lm_head(tile.tensor) || (config.tie_word_embeddings && is_embedding(tile.tensor));
}

std::vector<TileChange> tile_changes(bool head, uint64_t seed) {
  // Inside the layers a small change usually shows, and leaves the values in the range for which
  // engines are made. In the head it must outweigh the whole row that wins.
  const std::vector<double> scales =
      head ? std::vector<double>{64, 1024} : std::vector<double>{4, 64, 1024};
  std::vector<TileChange> changes;
  for (const double scale : scales) {
    seed = splitmix64(seed);
    changes.push_back({scale, false, seed});
    changes.push_back({scale, true, seed});
  }
  return changes;
}

ModelWeights with_changed_tile(const ModelWeights& weights, const Tile& tile,
                               const TileChange& change) {
  WeightEdit edit(weights);
  ModelWeights& w = edit.weights();
  Matrix& m = tensor_of(w, tile.tensor);
  const double longest = longest_row(m, tile.row);
  const double size = change.scale * (longest > 0 ? longest : 1) / std::sqrt(kTileWeights);
  Bf16* const row = edit.own(m).data() + int64_t{tile.row} * m.cols;
  for (int c = tile.first_column; c <= tile.last_column; ++c) {
    const bool down = (splitmix64(change.seed + static_cast<uint64_t>(c)) >> 40 & 1) != 0;
    row[c] = to_bf16(static_cast<float>(down != change.negative ? -size : size));
  }
  if (w.config.tie_word_embeddings) w.lm_head = w.embed_tokens;
  return w;
}

}  // namespace mkbench
