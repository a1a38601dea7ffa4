// The analytic checkpoint: its closed form, its ids, and its bytes.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "references/model/rope.h"
#include "references/oracle.h"
#include "references/snapshot.h"
#include "references/synthetic.h"
#include "references/synthetic_rows.h"
#include "tests/support/catch2.h"
#include "tests/support/micro_model.h"
#include "tests/support/small_analytic.h"
#include "tests/support/thrown.h"

using namespace mkbench;

namespace {

constexpr int kStates = 1 << 17;
constexpr int kCode = 480;

nlohmann::json committed() {
  std::ifstream file(data_dir() / "synthetic" / "hashes.json");
  return nlohmann::json::parse(file);
}

// Bit i of a codeword by its definition: bit 0 of L^i s.
int code_bit(uint32_t s, int i) {
  for (; i > 0; --i) s = lfsr_step(s);
  return static_cast<int>(s & 1);
}

// P_l(t) by its recursive definition; `planted` holds the lags in layer order.
uint32_t direct(const std::vector<uint32_t>& states, const std::vector<int>& planted, size_t level,
                size_t t) {
  if (level == 0) return states[t];
  const size_t lag = static_cast<size_t>(planted[level - 1]);
  return direct(states, planted, level - 1, t) ^ direct(states, planted, level - 1, t - lag);
}

std::vector<int32_t> direct_continuation(const std::vector<int32_t>& prompt, std::string_view set,
                                         int n) {
  std::vector<int> planted;
  for (const auto& [layer, lag] : synthetic_lags(set)) planted.push_back(lag);
  std::vector<uint32_t> states;
  for (int32_t id : prompt) states.push_back(static_cast<uint32_t>(synthetic_state(id)));
  std::vector<int32_t> out;
  for (int i = 0; i < n; ++i) {
    const uint32_t next = lfsr_step(direct(states, planted, planted.size(), states.size() - 1));
    states.push_back(next);
    out.push_back(synthetic_token(next));
  }
  return out;
}

template <typename Call>
void check_refused(const Call& call, const std::vector<std::string>& named) {
  const std::string message = testing::error_line(call);
  for (const std::string& part : named) CHECK_THAT(message, ContainsText(part));
}

}  // namespace

TEST_CASE("every state has an id of its own and comes back from it") {
  std::set<int32_t> ids;
  for (int s = 0; s < kStates; ++s) {
    const int32_t id = synthetic_token(static_cast<uint32_t>(s));
    ids.insert(id);
    if (synthetic_state(id) != s) FAIL("state " << s << " came back as " << synthetic_state(id));
  }
  CHECK(ids.size() == kStates);
  CHECK(*ids.begin() >= 0);
  CHECK(*ids.rbegin() < kQwen3_0_6B.vocab);
  int without = 0;
  for (int32_t id = 0; id < kQwen3_0_6B.vocab; ++id) {
    if (synthetic_state(id) < 0) ++without;
    CHECK_FALSE((synthetic_state(id) < 0) == (ids.count(id) == 1));
  }
  CHECK(without == 20864);
  CHECK(synthetic_state(-1) == -1);
  CHECK(synthetic_state(kQwen3_0_6B.vocab) == -1);
}

TEST_CASE("the LFSR step is linear and invertible, so codewords multiply and shift") {
  std::vector<bool> hit(kStates, false);
  for (uint32_t s = 0; s < kStates; ++s) hit[lfsr_step(s)] = true;
  CHECK(std::count(hit.begin(), hit.end(), true) == kStates);
  for (uint64_t i = 0; i < 50; ++i) {
    const uint32_t a = static_cast<uint32_t>(splitmix64(i) % kStates);
    const uint32_t b = static_cast<uint32_t>(splitmix64(i + 1000) % kStates);
    CHECK((lfsr_step(a) ^ lfsr_step(b)) == lfsr_step(a ^ b));
    int agree = 0;
    for (int k = 0; k < kCode; ++k) {
      CHECK((code_bit(a, k) ^ code_bit(b, k)) == code_bit(a ^ b, k));
      agree += code_bit(a, k) == code_bit(b, k);
    }
    // Codewords are nearly orthogonal: about as many signs agree as differ.
    CHECK(std::abs(2 * agree - kCode) < kCode / 3);
  }
}

TEST_CASE("a lag set is taken from exactly its sum of lags on") {
  const std::map<std::string, int> sums = {{"none", 0},    {"short", 11}, {"deep", 1758},
                                           {"far", 30001}, {"early", 10}, {"late", 11}};
  for (const auto& [set, sum] : sums) CHECK(synthetic_min_depth(set) == sum);
  const std::map<int, std::string> at = {
      {0, "none"},       {10, "none"},    {11, "short"},  {504, "short"},    {505, "d512"},
      {1514, "d1024"},   {1757, "d1536"}, {1758, "deep"}, {2019, "deep"},    {2020, "d2048"},
      {30000, "d16384"}, {30001, "far"},  {32249, "far"}, {32250, "d32704"}, {40000, "d32704"}};
  for (const auto& [depth, set] : at) CHECK(synthetic_lagset_for_depth(depth) == set);
}

TEST_CASE("a prompt is the tokens of counted states") {
  const std::vector<int32_t> prompt = synthetic_prompt(40, 7);
  REQUIRE(prompt.size() == 41);
  for (size_t i = 0; i < prompt.size(); ++i) {
    CHECK(synthetic_state(prompt[i]) == static_cast<int32_t>(splitmix64(7 + i) % kStates));
  }
  CHECK(synthetic_prompt(0, 7) == std::vector<int32_t>{prompt[0]});
}

TEST_CASE("the continuation is the recurrence, from the shortest prompt on") {
  for (std::string_view set : {"none", "short", "deep", "early", "late", "d512", "d2048"}) {
    for (int extra : {0, 1, 9}) {
      const auto prompt = synthetic_prompt(synthetic_min_depth(set) + extra, 3);
      CHECK(synthetic_continuation(prompt, set, 40) == direct_continuation(prompt, set, 40));
    }
  }
}

TEST_CASE("continuations are the committed ones, which Python computes too") {
  const nlohmann::json all = committed();  // named, because items() keeps a reference to it
  for (const auto& [set, known] : all.at("continuations").items()) {
    INFO(set);
    const int depth = known.at("depth");
    const auto prompt = synthetic_prompt(depth, known.at("seed").get<uint64_t>());
    const auto ids = known.at("ids").get<std::vector<int32_t>>();
    REQUIRE(depth >= synthetic_min_depth(set));
    CHECK(synthetic_continuation(prompt, set, static_cast<int>(ids.size())) == ids);
  }
}

TEST_CASE("bad requests are refused by name") {
  check_refused([] { synthetic_lags("shrot"); },
                {"shrot", "wanted one of none, early, late, short, d512, d1024,"});
  const auto prompt = synthetic_prompt(10, 1);
  check_refused([&] { synthetic_continuation(prompt, "short", 1); }, {"11 ids", "at least 12"});
  auto stateless = synthetic_prompt(11, 1);
  while (synthetic_state(stateless[4]) >= 0) ++stateless[4];
  check_refused([&] { synthetic_continuation(stateless, "short", 1); },
                {"index 4", std::to_string(stateless[4])});
  check_refused([] { make_synthetic("none", 1, 0); }, {"layers is 0"});
  check_refused([] { make_synthetic("none", 1, 29); }, {"layers is 29"});
}

TEST_CASE("bytes do not depend on the number of threads; a cut ends with the shift") {
  const ModelWeights one = make_synthetic("none", 1, 2);
  const ModelWeights three = make_synthetic("early", 3, 2);
  CHECK(one.layers.size() == 2);
  CHECK(one.config.shape.layers == 2);
  // The set `early` plants layer 1, which is the last layer of this cut.
  CHECK(one.sha256 == three.sha256);
  CHECK(three.name == "synthetic:early");
  CHECK(three.lagset == "early");
  CHECK(one.lm_head.data == one.embed_tokens.data);
  for (uint32_t s : {1u, 2u, 777u, 131071u}) {
    const auto row = one.embed_tokens.row(synthetic_token(s));
    CHECK(to_float(row[0]) == 0.25f);
    for (int i = 0; i < kCode; ++i) {
      const float x = to_float(row[static_cast<size_t>(1 + i)]);
      CHECK((x < 0) == (code_bit(s, i) == 1));
      CHECK(std::abs(std::abs(x) - 1 / 32.0f) < 0.01f);
    }
  }
}

TEST_CASE("cuts of every shape have the committed bytes, which Python makes too") {
  const nlohmann::json known = committed().at("sha256_of_cuts_of_4_layers");
  for (const ShapeRow& row : analytic_models()) {
    INFO(row.name);
    // The cut of the 4B is in test_synthetic_bytes; larger ones take 2 to 6 GB and are in no test.
    if (row.shape.hidden > 2048) continue;
    ShapeRow cut = row;
    cut.shape.layers = 4;
    const ModelWeights w = make_synthetic(cut, "short");
    CHECK(w.sha256 == known.at(std::string(row.name) + ":short").get<std::string>());
    CHECK(w.config.max_positions == row.max_positions);
    CHECK((w.lm_head.data == w.embed_tokens.data) == row.tied);
  }
}

TEST_CASE("a salt renames the states and keeps their recurrence") {
  for (const int vocab : {3072, 66000, 151936}) {
    const StateCode plain(vocab);
    std::vector<std::vector<int32_t>> maps;
    for (const uint64_t salt : {uint64_t{0}, uint64_t{1}, uint64_t{2}, kSaltBound - 1}) {
      INFO(vocab << " " << salt);
      const StateCode code(vocab, salt);
      CHECK(code.states() == plain.states());
      std::vector<bool> seen(static_cast<size_t>(vocab));
      std::vector<int32_t>& ids = maps.emplace_back();
      bool sound = true;
      for (uint32_t s = 0; s < code.states(); ++s) {
        const int32_t id = ids.emplace_back(code.token(s));
        sound = sound && id >= 0 && id < vocab && !seen[static_cast<size_t>(id)] &&
                code.state(id) == static_cast<int32_t>(s) && code.step(s) == plain.step(s);
        if (sound) seen[static_cast<size_t>(id)] = true;
      }
      CHECK(sound);
      for (int32_t id = 0; id < vocab; ++id)
        sound = sound && (code.state(id) >= 0) == seen[static_cast<size_t>(id)];
      CHECK(sound);
      CHECK((code.state(-1) == -1 && code.state(vocab) == -1));

      const auto states_of = [](const StateCode& of, std::vector<int32_t> of_ids) {
        for (int32_t& id : of_ids) id = of.state(id);
        return of_ids;
      };
      const std::vector<int32_t> own = synthetic_prompt(20, 3, vocab, salt),
                                 known = synthetic_prompt(20, 3, vocab);
      CHECK(states_of(code, own) == states_of(plain, known));
      CHECK(states_of(code, synthetic_continuation(own, "short", 9, vocab, salt)) ==
            states_of(plain, synthetic_continuation(known, "short", 9, vocab)));
    }
    // No map agrees with another one by more than chance, and neither do the places of the gaps.
    for (size_t a = 0; a < maps.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        int equal = 0;
        for (size_t s = 0; s < maps[a].size(); ++s) equal += maps[a][s] == maps[b][s];
        CHECK(equal < 20);
      }
    }
  }
}

TEST_CASE("a salt changes the noise of every tensor") {
  const ModelWeights plain = make_synthetic(kCutRow, "short"),
                     salted = make_synthetic(kCutRow, "short", 0, {}, 3);
  CHECK(salted.sha256 == make_synthetic(kCutRow, "short", 1, {}, 3).sha256);
  CHECK(salted.sha256 != make_synthetic(kCutRow, "short", 0, {}, 4).sha256);
  for (const NamedTensor& t : tensor_table(plain.config)) {
    if (t.member == &LayerWeights::q_norm || t.member == &LayerWeights::k_norm) continue;
    INFO(t.name);
    const Matrix &a = tensor_of(plain, t), &b = tensor_of(salted, t);
    size_t equal = 0;
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      equal += a.data[i].bits == b.data[i].bits;
      largest = std::max(largest, std::abs(double{to_float(a.data[i])} - to_float(b.data[i])));
    }
    // Half of the codewords' signs differ; every other weight has a byte of noise.
    CHECK(equal < a.size() / 10);
    CHECK(largest > 0);
  }
}

TEST_CASE("small models of other families have the committed bytes and follow the closed form") {
  const nlohmann::json known = committed().at("sha256_of_small_models");
  REQUIRE(known.size() == std::size(testing::kSmallAnalytic));
  for (const ShapeRow& row : testing::kSmallAnalytic) {
    INFO(row.name);
    const uint64_t salt = row.shape.qkv_bias ? 7 : 0;
    const ModelWeights w = make_synthetic(row, "short", 0, {}, salt);
    const std::string bytes = make_synthetic(row, "short").sha256;
    CHECK(bytes == known.at(std::string(row.name) + ":short").get<std::string>());
    CHECK((w.sha256 == bytes) == (salt == 0));
    CHECK(w.salt == salt);
    CHECK(w.model_type == (row.shape.qkv_bias ? "qwen2" : "llama"));
    CHECK(w.config.rope.scaling ==
          (row.shape.qkv_bias ? RopeScaling::kNone : RopeScaling::kLlama3));
    CHECK(w.config.rms_norm_eps == row.rms_norm_eps);
    std::vector<int32_t> ids = synthetic_prompt(13, 5, row.shape.vocab, salt);
    const size_t before = ids.size();
    for (const int32_t id : synthetic_continuation(ids, "short", 6, row.shape.vocab, salt))
      ids.push_back(id);
    Oracle oracle(w);
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      std::vector<float> logits = oracle.step(ids[i], i + 1 >= before);
      if (i + 1 < before) continue;
      const float next = logits[static_cast<size_t>(ids[i + 1])];
      logits[static_cast<size_t>(ids[i + 1])] = -INFINITY;
      CHECK(next - *std::max_element(logits.begin(), logits.end()) > 4);
    }
  }
}

// What a planted head of layer 1 adds to a score for its key that lies d positions back, in the
// arithmetic of an engine: frequencies in fp32, weights in bf16, the designed rms of the input.
class PlantedScore {
 public:
  PlantedScore(const ShapeRow& row, int lag) : shape_(row.shape) {
    const SyntheticRows rows(row, {{1, lag}});
    const ModelConfig config = synthetic_config(row);
    const std::vector<NamedTensor> table = tensor_table(config);
    const auto read = [&](Matrix LayerWeights::*member, int count) {
      for (size_t i = 0; i < table.size(); ++i) {
        if (table[i].layer != 1 || table[i].member != member) continue;
        std::vector<Bf16> out(static_cast<size_t>(count) * static_cast<size_t>(table[i].cols));
        rows.write(static_cast<int>(i) + 1, table[i].cols, 0, count, out.data());
        std::vector<double> first;  // of each row
        for (int r = 0; r < count; ++r)
          first.push_back(
              to_float(out[static_cast<size_t>(r) * static_cast<size_t>(table[i].cols)]));
        return first;
      }
      return std::vector<double>(1, 0.0);
    };
    const int hidden = shape_.hidden, copies = hidden / 1024;
    const double squares =
        (64.0 + 480 * copies) / hidden + 0.125 * 0.125 + 0.08 * 0.08 + 0.06 * 0.06;
    const double constant = 8 / std::sqrt(squares) * read(&LayerWeights::input_layernorm, 1)[0];
    query_ = read(&LayerWeights::q_proj, shape_.head_dim);
    key_ = read(&LayerWeights::k_proj, shape_.head_dim);
    scale(query_, constant, read(&LayerWeights::q_norm, 1)[0]);
    scale(key_, constant, read(&LayerWeights::k_norm, 1)[0]);
    frequencies_ = inverse_frequencies(config.rope, shape_.head_dim);
  }

  double at(int d) const {
    double score = 0;
    for (size_t i = 0, half = frequencies_.size(); i < half; ++i) {
      const double angle = double{frequencies_[i]} * d;
      score += query_[i] * (key_[i] * std::cos(angle) + key_[i + half] * std::sin(angle));
    }
    return score / std::sqrt(shape_.head_dim);
  }

 private:
  void scale(std::vector<double>& head, double constant, double norm_weight) const {
    double squares = 0;
    for (double& x : head) x *= constant, squares += x * x;
    if (!shape_.qk_norm) return;
    for (double& x : head) x *= norm_weight / std::sqrt(squares / shape_.head_dim);
  }

  ModelShape shape_;
  std::vector<double> query_, key_;
  std::vector<float> frequencies_;
};

TEST_CASE("planted scores of every model peak at the lag and leave little to other positions") {
  constexpr int kPositions = 40000;
  for (ShapeRow row : analytic_models()) {
    row.shape.layers = 3;
    for (const int lag : {26000, 448, 896, 1344, 1792, 3584, 7168, 14336, 28616}) {
      INFO(row.name << ", lag " << lag);
      const PlantedScore score(row, lag);
      const double peak = score.at(lag);
      const double next = std::max(score.at(lag - 1), score.at(lag + 1));
      CHECK(std::abs(peak - (row.shape.qk_norm ? 45 : 9)) < 0.6);
      CHECK(peak - next > 6);
      // QK-norm makes keys equally long. Without it they differ from position to position.
      if (!row.shape.qk_norm) CHECK(0.93 * peak - 1.07 * next > 5);
      double leak = 0;
      for (int d = 0; d < kPositions; ++d) leak += d == lag ? 0 : std::exp(score.at(d) - peak);
      CHECK(leak < 0.006);
    }
  }
}

TEST_CASE("planted layers move with the layer count and stay below the last layer") {
  CHECK(synthetic_lags("short", 36) == Lags{{5, 1}, {15, 3}, {25, 7}});
  CHECK(synthetic_lags("late", 36) == Lags{{7, 4}, {19, 1}, {32, 6}});
  for (std::string_view set : {"short", "deep", "far", "early", "late", "d512"}) {
    const Lags cut = synthetic_lags(set, 4);
    CHECK(cut.size() == 3);
    CHECK(cut.rbegin()->first == 2);
    check_refused([&] { synthetic_lags(set, 3); }, {"3 layers", "over 3"});
  }
}

TEST_CASE("smaller vocabularies have states of 11 or 16 bits, which the LFSR passes all but one") {
  for (const auto& [vocab, states] : {std::pair{3072, 2048}, {128256, 65536}, {65536, 65536}}) {
    const StateCode code(vocab);
    REQUIRE(code.states() == static_cast<uint32_t>(states));
    CHECK(code.small() == (states == 2048));
    uint32_t s = 1;
    int period = 0;
    do s = code.step(s), ++period;
    while (s != 1);
    CHECK(period == states - 1);
    std::set<int32_t> ids;
    int back = 0;
    for (uint32_t state = 0; state < code.states(); ++state) {
      ids.insert(code.token(state));
      back += code.state(code.token(state)) == static_cast<int32_t>(state);
    }
    CHECK(ids.size() == static_cast<size_t>(states));
    CHECK(back == states);
  }
  check_refused([] { StateCode between(65535); }, {"vocab is 65535", "65,536"});
  check_refused([] { StateCode too_small(1000); }, {"vocab is 1000"});
}

TEST_CASE("a shape without room for the codewords, and one beyond memory, are refused") {
  ShapeRow narrow = kShapeTable[0];
  narrow.shape.hidden = 512;
  check_refused([&] { make_synthetic(narrow, "short", 1); }, {"hidden is 512", "1024"});
  // 480 signs: 120 in each of 4 heads, or from a head_dim of 60 on 60 in each of 8.
  for (const auto& [head_dim, kv_heads, part] :
       {std::tuple{120, 3, "kv_heads is 3, wanted at least 4"},
        {119, 7, "kv_heads is 7, wanted at least 8"},
        {59, 8, "head_dim is 59, wanted at least 60"}}) {
    ShapeRow row = kShapeTable[0];
    row.shape.head_dim = head_dim, row.shape.kv_heads = kv_heads;
    CHECK_THAT(synthetic_obstacle(row), ContainsText(part));
    ++row.shape.head_dim, ++row.shape.kv_heads;
    CHECK(synthetic_obstacle(row).empty());
  }
  const testing::TemporaryFolder root;
  std::filesystem::create_directory(root.path() / "proc");
  testing::write_file(root.path() / "proc/meminfo", "MemAvailable: 5000000 kB\n");
  const std::string message = testing::error_line(
      ErrorKind::kEnvUnfit, [&] { check_synthetic_memory(kShapeTable[3], root.path()); });
  for (const char* part :
       {"synthetic:qwen3-8b", "16382 MB", "5120 MB", "synthetic:qwen3-1.7b (3441 MB)"})
    CHECK_THAT(message, ContainsText(part));
}

TEST_CASE("synthetic:short has the committed bytes") {
  const ModelWeights w = make_synthetic("short");
  CHECK(w.sha256 == committed().at("sha256").at("short").get<std::string>());
  CHECK(w.config.shape == kQwen3_0_6B);
  CHECK(w.config.max_positions == 40960);
}
