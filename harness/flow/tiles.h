// Tiles of weights for `mkbench audit`: which there are, how one is drawn, and how it is changed so
// that an engine that reads it must answer differently.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "references/model/weights.h"

namespace mkbench {

// Length of a tile: consecutive weights of one row of a tensor, 128 bytes, a line of L2.
inline constexpr int kTileWeights = 64;

struct Tile {
  NamedTensor tensor;
  int row = 0, first_column = 0, last_column = 0;

  int64_t bytes() const { return 2 * (int64_t{last_column} - first_column + 1); }
  std::string name() const;  // "model.norm.weight, row 0, columns 64-127"
};

// A tensor, and those of its rows from which tiles may be drawn.
struct TileRows {
  NamedTensor tensor;
  std::vector<int> rows{};  // empty: all

  int row_count() const { return rows.empty() ? tensor.rows : static_cast<int>(rows.size()); }
};

// Tensors from which an audit draws tiles. The head is a separate part, because its rows that never
// win show least in the tokens.
struct TilePart {
  std::string name;  // "layers", "head"
  std::vector<TileRows> tensors;

  int64_t bytes() const;
};

// The bytes that a decode must read, in two parts. A decode reads one row of an untied embedding
// for each input id, so only the rows of `inputs` belong to the part "layers"; a tied embedding is
// the head.
std::vector<TilePart> tile_parts(const ModelConfig& config, const std::vector<int32_t>& inputs);

// Keeps the tensors whose name contains one of `names` (empty: all) and the parts that still have a
// tensor. Throws Error(kBadInput) if no tensor is left.
std::vector<TilePart> parts_with(std::vector<TilePart> parts,
                                 const std::vector<std::string>& names);

// The tensors of `parts`, grouped by kind: the tensors "mlp.up_proj.weight" of all layers become one part
// of that name.
std::vector<TilePart> parts_by_kind(const std::vector<TilePart>& parts);

// Draws a tile of the part: the chance of a tile is proportional to its bytes. `random` gives a
// number below its argument.
Tile draw_tile(const TilePart& part, const std::function<uint64_t(uint64_t bound)>& random);

// Whether a tile belongs to the matrix that gives the logits.
bool is_head_tile(const Tile& tile, const ModelConfig& config);

// How a tile is changed: its weights become +-b with random signs. The 2-norm of 64 values b is
// `scale` times the largest 2-norm of the tile's row and of up to 2,047 rows at equal distances.
struct TileChange {
  double scale = 0;
  bool negative = false;  // true: all signs of the seed are flipped
  uint64_t seed = 0;
};

// The changes to try, in this order, until one shows. One of two opposite changes makes a row of
// the head win, or lose, a step by a large margin.
std::vector<TileChange> tile_changes(bool head, uint64_t seed);

// A copy of the weights in which one tile is changed.
ModelWeights with_changed_tile(const ModelWeights& weights, const Tile& tile,
                               const TileChange& change);

}  // namespace mkbench
