// The index functions of batched prefill: where elements lie in its tiles.
#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "kernels/layer_shapes.h"
#include "kernels/prefill/prefill.h"
#include "kernels/prefill/tiles.h"
#include "kernels/ring/layout.h"
#include "tests/support/catch2.h"

namespace mkbench::prefill {
namespace {

// Requires that every piece of a tile has a place of its own, and that eight neighbouring rows,
// which one phase of ldmatrix reads, lie in eight bank groups of 16 bytes.
template <int kChunks>
void require_permutation(int rows) {
  std::set<int> places;
  for (int row = 0; row < rows; ++row) {
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int at = chunk_offset<kChunks>(row, chunk);
      REQUIRE(at % 16 == 0);
      REQUIRE(at / (kChunks * 16) == row);  // pieces are permuted only inside a row
      places.insert(at);
    }
  }
  REQUIRE(places.size() == static_cast<size_t>(rows * kChunks));
  for (int first = 0; first < rows; first += 8) {
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      std::set<int> groups;
      for (int row = first; row < first + 8; ++row) {
        groups.insert(chunk_offset<kChunks>(row, chunk) / 16 % 8);
      }
      INFO("rows from " << first << ", piece " << chunk << " of " << kChunks);
      REQUIRE(groups.size() == 8);
    }
  }
}

TEST_CASE("tiles are permutations that ldmatrix reads without bank conflicts", "[prefill]") {
  require_permutation<4>(128);
  require_permutation<8>(64);
  require_permutation<16>(64);
}

// Lanes 8 t .. 8 t + 7 address the eight rows of 8 x 8 tile t, which register t receives.
TEST_CASE("lanes address the tiles in the order of an operand's registers", "[prefill]") {
  for (int lane = 0; lane < 32; ++lane) {
    const int tile = lane / 8, row = lane % 8;
    // A operand: rows 0-7 and 8-15 of k 0-7, then of k 8-15.
    REQUIRE(a_row(lane) == tile % 2 * 8 + row);
    REQUIRE(a_chunk(lane) == tile / 2);
    // B operands of two neighbouring groups of 8 columns: k 0-7 and 8-15 of one, then of the other.
    REQUIRE(b_row(lane) == tile / 2 * 8 + row);
    REQUIRE(b_chunk(lane) == tile % 2);
  }
}

TEST_CASE("gate and up rows alternate by eight, and each is there once", "[prefill]") {
  for (int i = 0; i < kLayerShapes.count; ++i) {
    const int units = kLayerShapes.shapes[i].intermediate;
    std::vector<int> seen(static_cast<size_t>(2 * units));
    for (int n = 0; n < 2 * units; ++n) {
      const int row = interleaved_row(n, units);
      REQUIRE(row >= 0);
      REQUIRE(row < 2 * units);
      ++seen[static_cast<size_t>(row)];
      // In a pair of accumulator tiles, columns n and n + 8 are gate and up of one unit.
      if (n % 16 < 8) REQUIRE(interleaved_row(n + 8, units) == row + units);
      // 8 of each 16 columns are gate rows, of the units in order.
      if (n % 16 < 8) REQUIRE(row == n / 16 * 8 + n % 8);
    }
    REQUIRE(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
  }
}

// The offset of a word of a piece from the piece's first element.
struct RingWord {
  int row, d;
};

// The pieces of 16 bytes in which prefill attention reads the ring's cache.
TEST_CASE("a piece of the ring's K holds two keys, one of V eight positions", "[prefill]") {
  constexpr int kPieces = ring::kHalfTileBytes / 16;
  for (int piece = 0; piece < kPieces; ++piece) {
    const ring::HalfIndex k = ring::half_index(0, 8 * piece);
    INFO("piece " << piece << ": row " << k.row << ", d " << k.d);
    REQUIRE(k.d % 4 == 0);
    REQUIRE(k.row % 16 < 8);
    const std::array<RingWord, 4> words{{{0, 0}, {8, 0}, {0, 2}, {8, 2}}};
    for (int w = 0; w < 4; ++w) {
      const RingWord word = words[static_cast<size_t>(w)];
      const int at = 16 * piece + 4 * w;
      REQUIRE(ring::k_offset(k.row + word.row, k.d + word.d) == at);
      REQUIRE(ring::k_offset(k.row + word.row, k.d + word.d + 1) == at + 2);
    }
    const ring::HalfIndex v = ring::half_index(1, 8 * piece);
    for (int w = 0; w < 4; ++w) {
      const int at = 16 * piece + 4 * w;
      REQUIRE(ring::v_offset(v.row + 8 * w, v.d) == at);
      REQUIRE(ring::v_offset(v.row + 8 * w + 1, v.d) == at + 2);
    }
    // A thread that takes a piece of V also takes the piece four further: the next dimension.
    if (v.d % 2 == 0) {
      const ring::HalfIndex next = ring::half_index(1, 8 * (piece + 4));
      REQUIRE(next.row == v.row);
      REQUIRE(next.d == v.d + 1);
      REQUIRE(ring::v_offset(v.row, v.d + 1) - ring::v_offset(v.row, v.d) ==
              ring::v_offset(0, 1) - ring::v_offset(0, 0));
    }
  }
  // 32 neighbouring positions are one run of pieces, at any place in the cache.
  for (int first = 0; first < 4 * ring::kRoundPositions; first += ring::kHalfTileRows) {
    for (const int kind : {0, 1}) {
      const size_t base = ring::kv_offset(first, 0, kind);
      REQUIRE(base % ring::kHalfTileBytes == 0);
      for (const int row : {1, 7, 8, 16, 31}) {
        const size_t inside =
            static_cast<size_t>(kind == 0 ? ring::k_offset(row, 77) : ring::v_offset(row, 77));
        REQUIRE(ring::kv_offset(first + row, 77, kind) == base + inside);
      }
    }
  }
}

TEST_CASE("prefill knows the shapes that its tiles divide, and its memory", "[prefill]") {
  for (int i = 0; i < kLayerShapes.count; ++i) REQUIRE(supports(kLayerShapes.shapes[i]));
  ModelShape odd = kTiny;
  odd.intermediate = 400;
  REQUIRE_FALSE(supports(odd));
  odd = kTiny;
  odd.hidden = 96;
  REQUIRE_FALSE(supports(odd));
  odd = kTiny;
  odd.head_dim = 96;
  REQUIRE_FALSE(supports(odd));
  odd = kTiny;
  odd.norm_offset = 1;
  REQUIRE_FALSE(supports(odd));
  for (int i = 0; i < kLayerShapes.count; ++i) {
    const ModelShape& s = kLayerShapes.shapes[i];
    // Bytes of a row: fp32 residual and qkv; normed, query, attention and SwiGLU as two bf16
    // planes; the id.
    const int64_t row =
        4LL * (s.hidden + s.qkv_width() + s.hidden + 2 * s.q_width() + s.intermediate) + 4;
    REQUIRE(PrefillScratch::bytes(s) >= kChunkRows * row);
    REQUIRE(PrefillScratch::bytes(s) <= kChunkRows * row + 11 * 256);
  }
}

}  // namespace
}  // namespace mkbench::prefill
