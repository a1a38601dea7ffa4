// The audit finds bytes that a decode leaves out, and nothing where none are: tiles and how they are
// changed, the bound that they give, what ncu's log says, and the audit of engines that skip.
#include <algorithm>
#include <cmath>
#include <map>

#include "harness/measure/statistics.h"
#include "tests/support/audit_bench.h"
#include "tests/support/catch2.h"
#include "tests/support/ncu_log.h"

using namespace mkbench;
using namespace mkbench::testing;

TEST_CASE("the bound on the unread share is the exact one-sided limit of a binomial share") {
  // No unread tile: 1 - 0.01^(1/n).
  CHECK(rate_limit(0, 90, 0.99) == Approx(0.0498815).margin(1e-6));
  CHECK(rate_limit(0, 1, 0.99) == Approx(0.99));
  CHECK(rate_limit(0, 458, 0.99) == Approx(0.0100046).margin(1e-6));
  // Clopper-Pearson, one-sided: beta.ppf(0.99, k + 1, n - k).
  CHECK(rate_limit(1, 10, 0.95) == Approx(0.394163).margin(1e-6));
  CHECK(rate_limit(4, 90, 0.99) == Approx(0.1235895).margin(1e-6));
  CHECK(rate_limit(90, 90, 0.99) == 1);
  CHECK(rate_limit(0, 0, 0.99) == 1);
}

TEST_CASE("the parts hold every byte that a decode reads, once") {
  for (const char* name : {"tied", "untied"}) {
    INFO(name);
    const ModelConfig& config = model(name).config;
    const std::vector<TilePart> parts = tile_parts(config, {});
    REQUIRE(parts.size() == 2);
    CHECK(parts[0].bytes() + parts[1].bytes() == config.shape.bytes_per_step(0));
    CHECK(parts[1].bytes() == 2 * config.shape.embedding_parameters());
    // An untied embedding is read a row an input id; the rows of a tied one are the head's.
    const int64_t with = tile_parts(config, {5, 7, 5})[0].bytes();
    CHECK(with - parts[0].bytes() == (config.tie_word_embeddings ? 0 : 2 * 2 * 128));
  }
  const std::vector<TilePart> parts = tile_parts(model("tied").config, {});
  CHECK(parts_with(parts, {}).size() == 2);
  const std::vector<TilePart> named = parts_with(parts, {"layers.1.mlp", "q_norm"});
  REQUIRE(named.size() == 1);
  CHECK(named[0].tensors.size() == 3 + 2);
  CHECK_THROWS_WITH(parts_with(parts, {"gates"}), ContainsText("--tensors: no tensor that"));
}

TEST_CASE("tiles are drawn by their bytes") {
  const ModelConfig& config = model("untied").config;
  const TilePart part = tile_parts(config, {9})[0];
  std::map<std::string, int> found;
  const auto random = sequence(3);
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    const Tile tile = draw_tile(part, random);
    CHECK(tile.first_column % kTileWeights == 0);
    CHECK(tile.last_column == std::min(tile.first_column + kTileWeights, tile.tensor.cols) - 1);
    CHECK(tile.last_column < tile.tensor.cols);
    CHECK((tile.row >= 0 && tile.row < tile.tensor.rows));
    if (tile.tensor.name == "model.embed_tokens.weight") CHECK(tile.row == 9);
    ++found[tile.tensor.name];
  }
  for (const TileRows& t : part.tensors) {
    INFO(t.tensor.name);
    const double share = 2.0 * t.row_count() * t.tensor.cols / static_cast<double>(part.bytes());
    CHECK(found[t.tensor.name] == Approx(kDraws * share).margin(5 * std::sqrt(kDraws * share) + 1));
  }
  // The end of the range is the last weight of the last tensor.
  const Tile last = draw_tile(part, [](uint64_t bound) { return bound - 1; });
  CHECK(last.name() == "model.norm.weight, row 0, columns 64-127");
  CHECK(last.bytes() == 128);
}

TEST_CASE("a change touches one tile, in a tied head too, and its opposite turns every sign") {
  for (const char* name : {"tied", "untied"}) {
    INFO(name);
    const ModelWeights& sound = model(name);
    const TilePart head = tile_parts(sound.config, {})[1];
    const Tile tile = draw_tile(head, [](uint64_t) { return 1000; });
    const std::vector<TileChange> changes = tile_changes(true, 5);
    const ModelWeights up = with_changed_tile(sound, tile, changes[0]);
    const ModelWeights down = with_changed_tile(sound, tile, changes[1]);
    CHECK((up.lm_head.data == up.embed_tokens.data) == sound.config.tie_word_embeddings);
    double squares = 0, longest = 0;
    for (int r = 0; r < sound.lm_head.rows; ++r) {
      double own = 0;
      for (int c = 0; c < sound.lm_head.cols; ++c) {
        const auto value = [&](const ModelWeights& w) {
          return to_float(w.lm_head.row(r)[static_cast<size_t>(c)]);
        };
        own += double{value(sound)} * value(sound);
        const bool inside = r == tile.row && c >= tile.first_column && c <= tile.last_column;
        if (inside) squares += double{value(up)} * value(up);
        CHECK(value(up) == (inside ? -value(down) : value(sound)));
      }
      longest = std::max(longest, std::sqrt(own));
    }
    CHECK(std::sqrt(squares) == Approx(changes[0].scale * longest).epsilon(0.01));
  }
}

TEST_CASE("an engine that reads everything passes, told by rows or by ids alone") {
  for (const Shows shows : {Shows::kIds, Shows::kRows, Shows::kChecksum}) {
    for (const char* name : {"tied", "untied"}) {
      Bench bench;
      bench.name = name;
      bench.shows = shows;
      bench.plan.tiles = shows == Shows::kRows ? 8 : 24;
      if (shows == Shows::kRows) bench.plan.job.depth = 60;
      const EngineAudit audit = bench.run();
      INFO(name << " " << static_cast<int>(shows) << " " << reason_of(audit));
      CHECK(audit.verdict == Verdict::kPass);
      CHECK(audit.method == "tiles");
      CHECK(audit.reasons.empty());
      REQUIRE(audit.parts.size() == 2);
      for (const PartAudit& part : audit.parts) {
        CHECK(part.tried == bench.plan.tiles);
        CHECK(part.unread.empty());
        CHECK(part.unread_at_most == Approx(rate_limit(0, bench.plan.tiles, 0.99)));
      }
      CHECK(holds(audit.shown, "KV rows") == (shows != Shows::kIds));
      CHECK(bench.most_context == (shows == Shows::kRows ? 128 : 64));
    }
  }
}

TEST_CASE("an engine that skips columns of a layer's tensor is found, and the tiles are named") {
  for (const Shows shows : {Shows::kIds, Shows::kRows, Shows::kChecksum}) {
    Bench bench;
    bench.shows = shows;
    bench.plan.tensors = {"layers.0.mlp."};
    bench.skip = [](const NamedTensor& t, int, int column) {
      return t.name == "model.layers.0.mlp.down_proj.weight" && column >= 128;
    };
    const EngineAudit audit = bench.run();
    INFO(static_cast<int>(shows) << " " << reason_of(audit));
    CHECK(audit.verdict == Verdict::kIntegrity);
    CHECK(holds(reason_of(audit), "tiles are not read, the first is model.layers.0.mlp.down_proj"));
    REQUIRE(audit.parts.size() == 1);
    CHECK(audit.parts[0].tried == 40);
    // One of nine bytes of these tensors is skipped.
    CHECK((audit.parts[0].unread.size() >= 1 && audit.parts[0].unread.size() <= 10));
    for (const Tile& tile : audit.parts[0].unread) {
      CHECK(tile.tensor.name == "model.layers.0.mlp.down_proj.weight");
      CHECK(tile.first_column == 128);
    }
    CHECK(bench.truths > 0);
  }
}

TEST_CASE("kinds of tensors are parts that hold the same bytes") {
  for (const char* name : {"tied", "untied"}) {
    const std::vector<TilePart> parts = tile_parts(model(name).config, {5});
    std::map<std::string, size_t> found;
    int64_t bytes = 0;
    for (const TilePart& kind : parts_by_kind(parts)) {
      found[kind.name] += kind.tensors.size();
      bytes += kind.bytes();
    }
    CHECK(bytes == parts[0].bytes() + parts[1].bytes());
    CHECK((found["self_attn.k_norm.weight"] == 2 && found["mlp.down_proj.weight"] == 2));
    CHECK((found["norm.weight"] == 1 && found["embed_tokens.weight"] == 1));
    CHECK(found.size() == (name == std::string("tied") ? 13 : 14));  // lm_head.weight
  }
}

TEST_CASE("the kind of tensor that an engine does not read is named, and no other") {
  Bench bench;
  bench.name = "attentive";
  bench.plan.by_tensor = true;
  bench.plan.tiles = 3;
  bench.skip = [](const NamedTensor& t, int, int) { return holds(t.name, "down_proj"); };
  const EngineAudit audit = bench.run();
  CHECK(audit.verdict == Verdict::kIntegrity);
  REQUIRE(audit.reasons.size() == 1);
  CHECK(holds(audit.reasons[0], "mlp.down_proj.weight: 3 of 3 tiles are not read, the first is"));
  REQUIRE(audit.parts.size() == 14 + 2);
  for (const PartAudit& part : audit.parts) {
    INFO(part.part);
    CHECK(part.unread.size() == (part.part == "mlp.down_proj.weight" ? 3 : 0));
    CHECK(part.tried == (part.bytes > 0 ? 3 : 1));
    CHECK(part.ignored.empty());
  }
  CHECK((audit.parts[14].part == "rope_theta" && audit.parts[15].part == "history"));
  bench.plan.tensors = {"down_proj"};
  CHECK(bench.run().parts.size() == 1);
}

TEST_CASE("an engine that ignores the RoPE frequencies or the history is told so") {
  for (const bool rope : {true, false}) {
    for (const Shows shows : {Shows::kIds, Shows::kChecksum}) {
      Bench bench;
      bench.name = "attentive";
      bench.plan.by_tensor = true;
      bench.plan.tiles = 1;
      bench.shows = shows;
      bench.keeps_rope = rope;
      bench.forgets = !rope;
      const EngineAudit audit = bench.run();
      INFO(rope << " " << static_cast<int>(shows) << " " << reason_of(audit));
      CHECK(audit.verdict == Verdict::kIntegrity);
      REQUIRE(audit.reasons.size() == 1);
      CHECK(holds(audit.reasons[0], rope
                                        ? "rope_theta: not read: the answers are the same with 37"
                                        : "history: not read: the answers are the same after two"));
      if (rope) {  // a theta of its own that is one of those which are tried
        const double sound = model("attentive").config.rope.theta;
        for (const double own : {37 * sound, sound / 37}) {
          bench.own_theta = own;
          CHECK(holds(reason_of(bench.run()), "rope_theta: not read"));
        }
        bench.own_theta = 0;
      }
      // What the truth does not need either is no evidence.
      bench.truth_skips = true;
      const EngineAudit needless = bench.run();
      CHECK(needless.verdict == Verdict::kPass);
      const PartAudit& part = needless.parts[needless.parts.size() - (rope ? 2 : 1)];
      CHECK((part.tried == 0 && part.silent == 1 && part.ignored.empty()));
    }
  }
}

TEST_CASE("an engine that refuses another theta has looked at it") {
  Bench bench;
  bench.name = "attentive";
  bench.plan.by_tensor = true;
  bench.plan.tiles = 1;
  bench.one_theta = true;
  const EngineAudit audit = bench.run();
  INFO(reason_of(audit));
  CHECK(audit.verdict == Verdict::kPass);
  CHECK((audit.parts[14].part == "rope_theta" && audit.parts[14].tried == 1));
}

TEST_CASE("the history's prompt is as long as the positions allow") {
  const int positions = model("attentive").config.max_positions;
  for (const int depth :
       {positions - 16, positions - 16 - 3}) {  // no row, and two, before the input
    Bench bench;
    bench.name = "attentive";
    bench.plan.by_tensor = true;
    bench.plan.tiles = 1;
    bench.plan.tensors = {};
    bench.plan.tile_steps = depth + 15;
    const EngineAudit audit = bench.run();
    INFO(depth << " " << reason_of(audit));
    CHECK(audit.verdict == Verdict::kPass);
    CHECK(bench.most_context <= positions);
  }
}

TEST_CASE("skipped rows of the head are found although an embedding's rows are looked up") {
  for (const char* name : {"tied", "untied"}) {
    Bench bench;
    bench.name = name;
    bench.plan.tensors = {name == std::string("tied") ? "embed_tokens" : "lm_head"};
    bench.skip = [](const NamedTensor& t, int row, int column) {
      return t.name == "lm_head.weight" && row >= 30 && row < 50 && column < 64;
    };
    const EngineAudit audit = bench.run();
    INFO(name << " " << reason_of(audit));
    CHECK(audit.verdict == Verdict::kIntegrity);
    REQUIRE(audit.parts.size() == 1);
    CHECK(!audit.parts[0].unread.empty());
    for (const Tile& tile : audit.parts[0].unread) {
      CHECK((tile.row >= 30 && tile.row < 50));
      CHECK(tile.first_column == 0);
    }
  }
}

TEST_CASE("a tied row that is looked up as an input does not count as read by the head") {
  Bench bench;
  bench.name = "wandering";
  bench.plan.tensors = {"embed_tokens"};
  bench.skip = [](const NamedTensor& t, int, int) { return t.name == "lm_head.weight"; };
  const EngineAudit audit = bench.run();
  REQUIRE(audit.parts.size() == 1);
  CHECK(audit.parts[0].tried == 40);
  CHECK(audit.parts[0].unread.size() == 40);
}

TEST_CASE("tiles that the truth does not need either are no evidence") {
  Bench bench;
  bench.plan.tiles = 1;
  bench.skip = [](const NamedTensor&, int, int) { return true; };
  bench.truth_skips = true;
  const EngineAudit audit = bench.run();
  CHECK(audit.verdict == Verdict::kInconclusive);
  REQUIRE(audit.parts.size() == 2);
  CHECK(audit.parts[0].tried == 0);
  CHECK(audit.parts[0].silent == 3);
  CHECK(audit.parts[0].unread_at_most == 1);
  CHECK(holds(reason_of(audit), "layers: 0 of 1 tiles were conclusive, 3 were silent"));
}

TEST_CASE("what an engine throws is its verdict") {
  Bench bench;
  bench.fails = true;
  const EngineAudit audit = bench.run();
  CHECK(audit.verdict == Verdict::kRuntimeError);
  CHECK(reason_of(audit) == "it gives up");
  CHECK(audit.method.empty());
}

TEST_CASE("engines that answer differently on equal weights cannot be audited by tiles") {
  Bench bench;
  bench.deterministic = false;
  CHECK(bench.run().verdict == Verdict::kInconclusive);
  Bench reopened;
  reopened.opens_differ = true;
  const EngineAudit audit = reopened.run();
  CHECK(audit.verdict == Verdict::kInconclusive);
  CHECK(holds(reason_of(audit), "opened twice on equal weights"));
  CHECK(reopened.opened == 2);
}

TEST_CASE("counters decide where they can, and tiles where they say nothing") {
  const double wanted = static_cast<double>(model("tied").config.shape.bytes_per_step(7.5)) * 16;
  const auto counted = [&](double share, double hits) {
    return [=](const std::string&, int) {
      return ByteCounts{.dram_bytes = share * wanted, .l2_hit_bytes = hits, .kernels = 1};
    };
  };
  Bench bench;
  bench.plan.tiles = 1;
  bench.plan.counts = true;
  bench.count_bytes = counted(0.99, 0);
  EngineAudit audit = bench.run();
  CHECK(audit.verdict == Verdict::kPass);
  CHECK(audit.method == "counters");
  CHECK(audit.counted_share->low == Approx(0.99));
  CHECK(bench.opened == 0);

  bench.count_bytes = counted(0.93, 0);
  audit = bench.run();
  CHECK(audit.verdict == Verdict::kIntegrity);
  CHECK(holds(reason_of(audit), "wanted at least 0.97"));
  CHECK(bench.opened == 0);

  // Hits count as weights only up to what L2 can hold.
  bench.count_bytes = counted(0.93, 0.5 * wanted);
  CHECK(bench.run().verdict == Verdict::kIntegrity);
  bench.plan.job.l2_bytes = static_cast<int64_t>(wanted / 16 * 0.05);
  audit = bench.run();
  CHECK(audit.method == "tiles");
  CHECK(audit.verdict == Verdict::kPass);
  CHECK(holds(audit.counters, "all of it may have been read"));
  CHECK(bench.opened > 0);

  bench.count_bytes = counted(1.2, 0);
  CHECK(bench.run().method == "tiles");
  bench.count_bytes = [](const std::string&, int) {
    return ByteCounts{.dram_bytes = 0, .l2_hit_bytes = 0, .kernels = 0, .problem = "not permitted"};
  };
  audit = bench.run();
  CHECK(audit.method == "tiles");
  CHECK(audit.counters == "not permitted");
  CHECK(!audit.counted_share);
}

TEST_CASE("tiles of analytic weights are tried where their closed form holds from the start") {
  for (const auto& [given, wanted] :
       std::map<std::string, std::string>{{"synthetic", "synthetic:none"},
                                          {"synthetic:far", "synthetic:none"},
                                          {"synthetic:cut:short", "synthetic:cut:none"}}) {
    const Model found = model_for_tiles(resolve_model(given), 5);
    CHECK((found.name == wanted && found.salt == 5));
  }
  const Model tiny = model_for_tiles({.row = find_model("tiny"), .name = "tiny"}, 5);
  CHECK((tiny.name == "tiny" && tiny.salt == 0));
}

TEST_CASE("ncu's log: kernels are summed, and what is no table of them is a problem") {
  const ByteCounts counts = parse_ncu_log(ncu_log({{"1073741824", "100"}, {"1,000", "1"}}));
  CHECK(counts.problem == "");
  CHECK(counts.kernels == 2);
  CHECK(counts.dram_bytes == 1073742824);
  CHECK(counts.l2_hit_bytes == 101 * 32);
  const auto problem = [](const std::string& log) { return parse_ncu_log(log).problem; };
  CHECK(holds(problem(""), "no table of kernels"));
  CHECK(holds(problem("\"ID\",\"x\"\n"), "no column dram__bytes_read.sum"));
  CHECK(holds(problem(ncu_log({})), "no table of kernels"));
  CHECK(holds(problem(ncu_log({{"12", "1"}}, "Gbyte")), "is in 'Gbyte', wanted 'byte'"));
  CHECK(holds(problem(ncu_log({{"n/a", "1"}})), "dram__bytes_read.sum is 'n/a', wanted a number"));
  CHECK(holds(problem(ncu_log({{"5", "-1"}})), "lookup_hit.sum is '-1', wanted a number"));
  CHECK(holds(problem(ncu_log({{"5", "1"}}) + "\"0\",\"7\"\n"), "has 2 cells, wanted 5"));
  CHECK(holds(problem("==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - The user does not have "
                      "permission\n==WARNING== No kernels were profiled.\n"),
              "ncu: ERR_NVGPUCTRPERM - The user does not have permission"));
  CHECK(
      holds(problem("==WARNING== No kernels were profiled.\n"), "ncu: No kernels were profiled."));
}
