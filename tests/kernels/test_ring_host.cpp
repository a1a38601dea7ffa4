// The ring megakernel's host side without a GPU: what it refuses, its memory, its tuning table.
#include <array>
#include <climits>
#include <string>

#include "kernels/ring/megakernel.h"
#include "kernels/ring/scratch.h"
#include "kernels/ring/tuning.h"
#include "references/snapshot.h"
#include "tests/support/card_engine.h"
#include "tests/support/ring_layouts.h"

namespace mkbench {
namespace {

using namespace testing;

ModelConfig config_of(const ModelShape& shape) {
  return {.shape = shape,
          .rope = {.theta = 1e6, .theta_key = "rope_theta"},
          .rms_norm_eps = 1e-6,
          .tie_word_embeddings = true,
          .max_positions = 40960};
}

ModelShape with_layers(int layers) {
  ModelShape shape = kQwen3_0_6B;
  shape.layers = layers;
  return shape;
}

TEST_CASE("layers without a layout are refused with every reason, before any GPU is asked",
          "[ring]") {
  const Thrown thrown = thrown_by([] { make_ring(load_folder(data_dir() / "tiny", "tiny")); });
  INFO(thrown.message);
  REQUIRE(thrown.kind == ErrorKind::kBadInput);
  for (const char* words :
       {"num_key_value_heads found 2 wanted 8", "num_attention_heads found 4 wanted 16 or 32",
        "hidden_size found 128 wanted a multiple of 512",
        "intermediate_size found 384 wanted a multiple of 3072",
        "made for the layers of qwen3-0.6b, qwen3-1.7b, qwen3-4b, qwen3-8b, "
        "qwen3-tts-talker"})
    REQUIRE_THAT(thrown.message, ContainsText(words));
  REQUIRE_FALSE(thrown.says("head_dim"));  // this one agrees
}

TEST_CASE("ring refuses layers unlike Qwen3's by what they have", "[ring]") {
  const auto refused_with = [](const std::string& part, const auto& change) {
    ModelShape shape = kQwen3_0_6B;
    change(shape);
    REQUIRE_THAT(ring::layout_obstacle(shape),
                 ContainsText("no layout for layers unlike Qwen3's (" + part + ");"));
  };
  refused_with("no QK-norm", [](ModelShape& s) { s.qk_norm = false; });
  refused_with("biases of q, k and v", [](ModelShape& s) { s.qkv_bias = true; });
  refused_with("norm weights + 1", [](ModelShape& s) { s.norm_offset = 1; });
  refused_with("gelu_pytorch_tanh", [](ModelShape& s) { s.activation = Activation::kGeluTanh; });
  refused_with("embedding times 32", [](ModelShape& s) { s.embedding_multiplier = 32; });
}

TEST_CASE("the table's rows that have no layout, and why", "[ring]") {
  for (const ShapeRow& row : kShapeTable) {
    const std::string text = ring::layout_obstacle(row.shape);
    INFO(row.name << ": " << text);
    if (std::string(row.name) == "qwen3-14b") {
      REQUIRE_THAT(text, ContainsText("num_attention_heads found 40 wanted 16 or 32;"));
    } else {
      REQUIRE(text.empty());
    }
  }
  ModelShape other = kQwen3_0_6B;  // could have a layout, but none is compiled in
  other.intermediate = 6144;
  REQUIRE_THAT(ring::layout_obstacle(other), ContainsText("no kernel is compiled for layers with"));
}

// Layers of a model with 8 kv heads of 128.
ModelShape layers_of(int hidden, int intermediate, int heads) {
  return {hidden, intermediate, 4, heads, 8, 128, 1000};
}

TEST_CASE("made-up layers that ring cannot hold are refused by dimension, found and wanted",
          "[ring]") {
  struct Refused {
    ModelShape shape;
    const char* wanted;
  };
  const char* const kRounds = "together they do not divide into rounds of whole tiles and slots";
  const Refused alone[] = {
      {layers_of(2304, 6144, 16), "hidden_size found 2304 wanted a multiple of 512;"},
      {layers_of(0, 6144, 16), "hidden_size found 0 wanted a multiple of 512;"},
      {layers_of(2048, 7168, 16), "intermediate_size found 7168 wanted a multiple of 3072, or"},
      {layers_of(2048, 512, 16), "intermediate_size found 512 wanted a multiple of 3072, or"},
      {layers_of(2048, 6144, 24), "num_attention_heads found 24 wanted 16 or 32;"}};
  for (const auto& [shape, wanted] : alone) {
    REQUIRE_THAT(ring::layout_obstacle(shape), ContainsText(wanted));
    REQUIRE_FALSE(ring::has_layout(shape));
  }
  const Refused together[] = {
      // 6 tiles of 16 rows a block: no rounds of 4 or 5
      {layers_of(1536, 6144, 16), "hidden_size found 1536 wanted 1024 or 2048 ("},
      // rounds of 5 tiles of O with one pair of heads: half a slot is left
      {layers_of(2560, 9728, 16),
       "hidden_size found 2560 wanted 2048, or num_attention_heads found 16 wanted 32 ("},
      // the last 8 columns of down would end each of two rounds
      {layers_of(4096, 6656, 16),
       "hidden_size found 4096 wanted 2048, or intermediate_size found 6656 wanted 6144 or 9216 ("},
      // rounds of 5 tiles of down with 3 steps of columns
      {layers_of(2560, 6144, 32),
       "hidden_size found 2560 wanted 2048 or 3072, or intermediate_size found 6144 wanted 3584 or "
       "9728 ("}};
  for (const auto& [shape, wanted] : together) {
    const std::string text = ring::layout_obstacle(shape);
    REQUIRE_THAT(text, ContainsText(wanted));
    REQUIRE_THAT(text, ContainsText(kRounds));
    REQUIRE_FALSE(ring::has_layout(shape));
  }
  REQUIRE_THAT(ring::layout_obstacle(layers_of(5120, 12288, 32)),
               ContainsText("hidden_size found 5120 wanted 4096, or num_attention_heads found 32 "
                            "wanted 16 (a block needs 235 KiB of shared memory and has 227 KiB at "
                            "most); made for"));
}

TEST_CASE("layers that fit: a warp's rounds hold every weight once, in whole chunks", "[ring]") {
  int fit = 0;
  for (const int heads : {16, 32}) {
    for (int hidden = 512; hidden <= 6144; hidden += 512) {
      for (int intermediate = 3072; intermediate <= 30720; intermediate += 512) {
        const ModelShape shape = layers_of(hidden, intermediate, heads);
        if (!ring::has_layout(shape) || shape.same_layer_shape(kQwen3_0_6B)) continue;
        ++fit;
        INFO(hidden << " / " << intermediate << " / " << heads);
        const ring::LayerPlan p = ring::plan_of(shape);
        // Rows of all blocks times columns of a warp in the rounds, 4 units more in the half tile.
        const auto rows = [](const ring::Rounds& r) { return r.rounds * r.rows() * r.parts; };
        REQUIRE(rows(p.qkv) * ring::kBlocks == shape.qkv_width());
        REQUIRE(rows(p.out) * ring::kMembers == hidden);
        REQUIRE(rows(p.down) * ring::kMembers == hidden);
        REQUIRE((rows(p.gate_up) / 2 + (p.half_tile ? 4 : 0)) * ring::kBlocks == intermediate);
        REQUIRE(16 * p.out.steps * ring::kConsumerWarps == p.heads * ring::kHeadDim);
        const int columns = 16 * p.down.steps + (p.down.eight_more ? 8 : 0);
        REQUIRE(columns * ring::kConsumerWarps / p.down_parts * ring::kGroups == intermediate);
        for (const ring::Rounds& r : {p.qkv, p.out, p.gate_up, p.down, p.head}) {
          REQUIRE(r.fragments() % r.chunk() == 0);
          REQUIRE(r.chunk() % ring::kWarpFragments == 0);
          REQUIRE(r.chunk() / ring::kWarpFragments < p.least_ring_slots());
          REQUIRE(r.rows() <= p.partial_rows());
        }
        REQUIRE((p.down.rounds == 1 || !p.down.eight_more));
        REQUIRE(p.least_shared_bytes() <= 227 * 1024);
      }
    }
  }
  REQUIRE(fit > 50);
}

TEST_CASE("the cards that have room for each row, and why others have not", "[ring]") {
  for (const ShapeRow& row : kShapeTable) {
    if (!ring::layout_obstacle(row.shape).empty()) continue;
    INFO(row.name);
    REQUIRE(ring::room_obstacle(row.shape, 9).empty());
    REQUIRE(ring::room_obstacle(row.shape, 10).empty());
    REQUIRE_THAT(ring::room_obstacle(row.shape, 8),
                 ContainsText("compute capability 8.x, wanted 9.0 or later"));
    const std::string small = ring::room_obstacle(row.shape, 12);
    if (row.shape.hidden == 1024) {
      REQUIRE(small.empty());
    } else {
      REQUIRE_THAT(small, ContainsText("a block has 99 KiB of shared memory, and layers with "
                                       "hidden_size " +
                                       std::to_string(row.shape.hidden)));
    }
  }
}

TEST_CASE("odd and too many layers are refused", "[ring]") {
  for (const int layers : {0, 1, 3, 27, 66}) {
    const std::string text = ring_obstacle(config_of(with_layers(layers)), 0);
    INFO(text);
    REQUIRE_THAT(text, ContainsText("num_hidden_layers found " + std::to_string(layers)));
  }
  for (const int layers : {2, 28, 64}) {
    REQUIRE(ring_obstacle(config_of(with_layers(layers)), 0).find("num_hidden_layers") ==
            std::string::npos);
  }
}

TEST_CASE("weights that do not fit the config are refused by name", "[ring]") {
  ModelWeights w;
  w.config = config_of(with_layers(2));
  w.layers.resize(2);
  const Thrown thrown = thrown_by([&] { make_ring(w); });
  REQUIRE(thrown.kind == ErrorKind::kBadInput);
  REQUIRE_THAT(thrown.message, ContainsText("model.embed_tokens.weight is [0, 0]"));
}

TEST_CASE("without a GPU ring says so", "[ring]") {
  if (!no_gpu()) SKIP_TEST("there is a GPU");
  REQUIRE_THAT(ring_obstacle(config_of(kQwen3_0_6B), 0), ContainsText("no GPU 0"));
}

TEST_CASE("memory is told before it is taken", "[ring]") {
  const ModelConfig config = config_of(kQwen3_0_6B);
  const auto bytes = [&](int context) {
    return ring_device_bytes(config, {.max_context = context});
  };
  // The weights are held twice, row-major and as a stream; the LM head is in both.
  REQUIRE(bytes(1) > 4 * kQwen3_0_6B.parameters(true));
  REQUIRE(bytes(1) < 4 * kQwen3_0_6B.parameters(true) + (256 << 20));
  // KV rows are allocated in rounds of 1,024 positions; the rest is one RoPE row a position.
  REQUIRE(bytes(1024) - bytes(1) == 1023 * 64 * 8);
  REQUIRE(bytes(1025) - bytes(1024) == 1024 * kQwen3_0_6B.kv_bytes_per_position() + 64 * 8);
  REQUIRE(ring::kv_head_bytes(1024) == 1024u * 2 * 2 * 128);
  ModelConfig other = config;  // refused without asking a GPU
  other.shape.qk_norm = false;
  const Thrown thrown = thrown_by([&] { ring_device_bytes(other, {.max_context = 1}); });
  REQUIRE(thrown.kind == ErrorKind::kBadInput);
  REQUIRE_THAT(thrown.message,
               ContainsText("ring megakernel: no layout for layers unlike Qwen3's"));
}

// Bytes of each array, from the shapes in LaunchParams.
template <typename L>
std::array<size_t, 9> exchange_sizes() {
  const size_t hidden = L::kHidden, pairs = L::kHeads / 2;
  return {size_t{128} * L::kQkvRows * 4,
          size_t{128} * L::kSwigluStride * 4,
          8 * 16 * 16 * pairs * 4 * 16,
          8 * 16 * pairs * 16,
          128 * 16,
          8 * 16 * 4,
          4 * hidden * 8,
          4 * hidden * 8,
          8};
}

TEST_CASE("exchange words lie side by side in one allocation, 256 bytes apart at least", "[ring]") {
  for_each_layout([]<typename L>(L) {
    const ring::ExchangeLayout at = ring::exchange_layout(L::kShape);
    const size_t starts[] = {at.qkv,   at.swiglu,       at.partials,      at.score_maxima,
                             at.best,  at.rows_written, at.attention_out, at.mlp_out,
                             at.fault, at.bytes};
    const auto sizes = exchange_sizes<L>();
    INFO("hidden_size " << L::kHidden);
    for (size_t i = 0; i < sizes.size(); ++i) {
      REQUIRE(starts[i] % 256 == 0);
      REQUIRE(starts[i + 1] >= starts[i] + sizes[i]);
    }
    REQUIRE(L::kSwigluStride >= L::kUnits);
  });
}

TEST_CASE("every card has a row of the tuning table that its ring can hold", "[ring][tuning]") {
  const ModelShape shape = GENERATE(from_range(ring_shapes()));
  INFO("hidden_size " << shape.hidden);
  struct Card {
    const char* name;
    int major;
  };
  const auto& unknown = ring::tuning_for("NVIDIA Something", 10, shape);
  for (const Card& card :
       {Card{"NVIDIA H200", 9}, Card{"NVIDIA H100 80GB HBM3", 9}, Card{"NVIDIA GH200 480GB", 9},
        Card{"NVIDIA B200", 10}, Card{"NVIDIA GeForce RTX 5090", 12}, Card{"a later card", 13}}) {
    if (!ring::room_obstacle(shape, card.major).empty()) continue;
    INFO(card.name);
    const ring::Tuning& row = ring::tuning_for(card.name, card.major, shape);
    ring::LaunchParams p{};
    ring::apply_tuning(row, card.major, shape, p);
    REQUIRE(p.split_from >= 0);
    REQUIRE(p.split_from <= ring::kMostRedundant);
    int before = 0;
    for (const ring::PaceRange& range : p.paces) {
      REQUIRE(range.until >= before);
      before = range.until;
      REQUIRE(range.pace.copies_in_flight >= 1);
      REQUIRE(range.pace.copies_in_flight <= ring::most_copies_in_flight(shape, card.major));
      REQUIRE(range.pace.gap_cycles >= 0);
    }
    REQUIRE(before == INT_MAX);
    REQUIRE(p.head_pace.copies_in_flight >= 1);
    REQUIRE(p.head_pace.copies_in_flight <= ring::most_head_copies_in_flight(shape, card.major));
    REQUIRE_FALSE(row.chosen_by.empty());
  }
  REQUIRE(&ring::tuning_for("NVIDIA GH200 480GB", 9, shape) == &unknown);  // not an H200
  REQUIRE(&ring::tuning_for("NVIDIA H200", 9, shape) != &unknown);
}

TEST_CASE("a row prints as the table writes it", "[ring][tuning]") {
  const ring::Tuning row{.card = "NVIDIA X",
                         .compute_major = 9,
                         .paces = {{128, {3, 700}}, {INT_MAX, {4, 0}}},
                         .head_pace = {4, 0},
                         .split_from = 96,
                         .chosen_by = "a sweep"};
  REQUIRE(ring::tuning_row(row) ==
          "{.card = \"NVIDIA X\", .compute_major = 9, .paces = {{128, {3, 700}}, {kEver, {4, 0}}}, "
          ".head_pace = {4, 0}, .split_from = 96, .chosen_by = \"a sweep\"},");
}

TEST_CASE("every row of the table reads as it prints", "[ring][tuning]") {
  const ModelShape shape = GENERATE(from_range(ring_shapes()));
  for (const char* name : {"NVIDIA H200", "NVIDIA H100 80GB HBM3", "another"}) {
    for (const int major : {9, 10, 12}) {
      const ring::Tuning& row = ring::tuning_for(name, major, shape);
      const std::string text = ring::tuning_row(row);
      const ring::Tuning read = ring::read_tuning_row(text);
      CHECK(ring::tuning_row(read) == text);
      CHECK((read.card == row.card && read.chosen_by == row.chosen_by && read.held == row.held));
      ring::LaunchParams wanted{}, found{};
      ring::apply_tuning(row, major, shape, wanted);
      ring::apply_tuning(read, major, shape, found);
      for (int i = 0; i < ring::kPaceRanges; ++i) {
        CHECK(found.paces[i].until == wanted.paces[i].until);
        CHECK(found.paces[i].pace.copies_in_flight == wanted.paces[i].pace.copies_in_flight);
        CHECK(found.paces[i].pace.gap_cycles == wanted.paces[i].pace.gap_cycles);
      }
      CHECK(found.head_pace.copies_in_flight == wanted.head_pace.copies_in_flight);
      CHECK(found.split_from == wanted.split_from);
    }
  }
}

// A row with these paces, split and end.
std::string row_text(const std::string& paces, const std::string& split = "96",
                     const std::string& end = "\"},") {
  return "{.card = \"X\", .compute_major = 9, .paces = {" + paces +
         "}, .head_pace = {4, 0}, .split_from = " + split + ", .chosen_by = \"a sweep" + end;
}

// n ranges, the last without an upper bound.
std::string ranges(int n) {
  std::string text;
  for (int i = 1; i < n; ++i) text += "{" + std::to_string(i) + ", {3, 0}}, ";
  return text + "{kEver, {3, 0}}";
}

TEST_CASE("what is no row of the table is refused", "[ring][tuning]") {
  const std::string most = std::to_string(ring::kMostRedundant);
  const std::string over = std::to_string(ring::kMostRedundant + 1);
  for (const std::string& good :
       {row_text(ranges(1)), row_text(ranges(2)), row_text(ranges(ring::kPaceRanges)),
        row_text(ranges(1), "0"), row_text(ranges(1), most), row_text("{kEver, {1, 1048576}}")})
    CHECK(ring::tuning_row(ring::read_tuning_row(good)) == good);
  const std::string good = row_text(ranges(2));
  std::vector<std::string> bad = {"",
                                  "ring",
                                  " " + good,
                                  good + " ",
                                  good + good,
                                  row_text(""),
                                  row_text("{1, {3, 0}}"),
                                  row_text(ranges(ring::kPaceRanges + 1)),
                                  row_text("{2, {3, 0}}, {2, {3, 0}}, {kEver, {3, 0}}"),
                                  row_text("{3, {3, 0}}, {2, {3, 0}}, {kEver, {3, 0}}"),
                                  row_text("{kEver, {3, 0}}, {kEver, {3, 0}}"),
                                  row_text("{0, {3, 0}}, {kEver, {3, 0}}"),
                                  row_text("{-1, {3, 0}}, {kEver, {3, 0}}"),
                                  row_text("{2147483647, {3, 0}}"),
                                  row_text("{2147483648, {3, 0}}, {kEver, {3, 0}}"),
                                  row_text("{kEver, {0, 0}}"),
                                  row_text("{kEver, {3, -1}}"),
                                  row_text("{kEver, {3, 1048577}}"),
                                  row_text("{kEver, {03, 0}}"),
                                  row_text("{kEver, {3}}"),
                                  row_text(ranges(1), "-1"),
                                  row_text(ranges(1), over),
                                  row_text(ranges(1), "96", "\"}"),
                                  row_text(ranges(1), "96", "")};
  for (size_t i = 0; i < good.size(); ++i) {
    bad.push_back(good.substr(0, i));
    if (good[i] == '{' || good[i] == '}' || good[i] == ',' || good[i] == '.')
      bad.push_back(good.substr(0, i) + good.substr(i + 1));
  }
  for (const std::string& text : bad) {
    INFO(text);
    CHECK_THROWS_WITH(ring::read_tuning_row(text),
                      ContainsText("not a row of tuning.cpp: " + text));
  }
}

}  // namespace
}  // namespace mkbench
