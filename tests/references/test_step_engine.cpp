// references/step_engine.h: classes with step() or steps() behind the table of the C interface.
#include <algorithm>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "references/step_engine.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

using Ids = std::vector<int32_t>;

mkbench_tensor weight(const char* name, const uint16_t* data, uint64_t bytes, int32_t rank,
                      int64_t rows, int64_t cols) {
  mkbench_tensor t{};
  t.size = sizeof t;
  t.dtype = MKBENCH_BF16;
  t.name = name;
  t.data = data;
  t.bytes = bytes;
  t.rank = rank;
  t.shape[0] = rows;
  t.shape[1] = cols;
  t.shape[2] = t.shape[3] = 1;
  return t;
}

constexpr int32_t kVocab = 97, kRows = 12;
const Ids kPrompt = {5, 17, 96, 0, 33};

// The next id depends on all rows so far: (1 + 1 * row[0] + 2 * row[1] + ...) mod vocab. Ids from 190 on, which no step
// emits, are errors.
struct Counter : mkbench_step::Step {
  static constexpr const char* name = "counter";
  Ids rows;
  mkbench_model model = {};
  int32_t max_context = 0;

  void open(const mkbench_model& m, const mkbench_step::Tensors& tensors) {
    model = m;
    max_context = tensors.args.max_context;
    if (tensors.args.gpu == 7) throw mkbench_step::Unfit("gpu 7", MKBENCH_UNFIT_ENV);
    if (tensors.args.gpu == 8) throw mkbench_step::Unfit("hidden: found 8");
    if (tensors.args.gpu == 9) throw 9;
  }

  static void throw_for(int32_t token) {
    if (token == 190) throw std::runtime_error("the card\nburns");
    if (token == 191) throw 91;
    if (token == 192) throw std::bad_alloc();
    if (token == 193) throw mkbench_step::Unfit("never in open()");
  }

  int32_t next(int32_t token, int32_t position) {
    throw_for(token);
    if (position > int32_t(rows.size())) throw std::runtime_error("a row was left out");
    rows.resize(size_t(position));
    rows.push_back(token);
    if (token == 194) return -1;
    if (token == 195) return kVocab;
    int64_t sum = 1;
    for (size_t i = 0; i < rows.size(); ++i) sum += int64_t(i + 1) * rows[i];
    return int32_t(sum % kVocab);
  }
};

struct Plain : Counter {
  static constexpr int32_t context_limit = 77;
  static constexpr int32_t precision = MKBENCH_PRECISION_LOSSY;
  int32_t step(int32_t token, int32_t position) { return next(token, position); }
};

// With an open() of its own beside the one that mkbench calls.
struct Overloaded : Plain {
  using Plain::open;
  void open(const char* path);
};

struct ByConfig : Overloaded {
  using Overloaded::open;
  int32_t open(const mkbench_step::Tensors&) { return 7; }
};

struct WithLogits : Counter {
  int32_t step(int32_t token, int32_t position, float* logits) {
    const int32_t id = next(token, position);
    if (logits != nullptr) std::fill_n(logits, kVocab, float(id));
    return id;
  }
};

// Shows the number of its rows and what it is asked for; layer 1 is not shown, layer 2 throws.
struct Showing : Plain {
  bool show(const mkbench_show& s) {
    if (s.layer == 2) throw std::runtime_error("no layer 2");
    const int32_t values[] = {int32_t(rows.size()), s.what, s.position};
    std::copy(std::begin(values), std::end(values), s.out);
    return s.layer != 1;
  }
};

// steps(), and a prefill in one call.
struct AtOnce : Counter {
  static constexpr uint32_t can = Step::can | MKBENCH_ONE_LAUNCH;
  int calls = 0;
  void prefill(const int32_t* tokens, int32_t n) {
    REQUIRE(n > 0);
    rows.assign(tokens, tokens + n);
  }
  void steps(const int32_t* token, int32_t position, int32_t n, int32_t* ids, float* logits) {
    ++calls;
    for (int32_t t = 0; t < n; ++t) {
      ids[t] = next(t == 0 ? *token : ids[t - 1], position + t);
      if (logits != nullptr) std::fill_n(logits + size_t(t) * kVocab, kVocab, float(ids[t]));
    }
  }
};

// What follows `rows`, with `inputs` in place of the ids emitted where there are some.
Ids counted(Ids rows, int n, const Ids& inputs = {}) {
  Counter counter;
  Ids ids;
  int32_t input = rows.back();
  for (size_t i = 0; i + 1 < rows.size(); ++i) counter.next(rows[i], int32_t(i));
  for (int t = 0; t < n; ++t) {
    if (!inputs.empty()) input = inputs[size_t(t)];
    ids.push_back(input = counter.next(input, int32_t(rows.size()) - 1 + t));
  }
  return ids;
}

template <class S>
class Opened {
 public:
  explicit Opened(int32_t gpu = -1, int32_t batch = 1) {
    mkbench_model model{};
    model.size = sizeof model;
    model.vocab = kVocab;
    mkbench_open args{};
    args.size = sizeof args;
    args.model = &model;
    args.max_context = kRows;
    args.gpu = gpu;
    args.batch = batch;
    status = table.open(&args, &engine);
  }
  ~Opened() {
    if (engine != nullptr) table.close(engine);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  int32_t prefill(const Ids& prompt) {
    return table.prefill(engine, prompt.data(), static_cast<int32_t>(prompt.size()));
  }
  int32_t decode(int32_t n, int32_t late = -1, const Ids& forced = {}, bool shown = false) {
    ids.assign(size_t(n), -1);
    logits.assign(shown ? size_t(n) * kVocab : 0, -1.0f);
    mkbench_decode d{};
    d.size = sizeof d;
    d.n = n;
    d.late_id = late;
    d.forced = forced.empty() ? nullptr : forced.data();
    d.ids = ids.data();
    d.logits = shown ? logits.data() : nullptr;
    return table.decode(engine, &d);
  }
  std::string error() const { return table.last_error(engine); }

  const mkbench_engine_abi table = mkbench_step::table<S>();
  mkbench_engine* engine = nullptr;
  int32_t status = 0;
  Ids ids;
  std::vector<float> logits;
};

TEMPLATE_TEST_CASE("a class with one step is a whole engine", "[step]", Plain, WithLogits, AtOnce) {
  Opened<TestType> e;
  REQUIRE(e.status == MKBENCH_OK);
  CHECK(mkbench_step::frame<TestType>(e.engine).step.model.vocab == kVocab);
  CHECK(mkbench_step::frame<TestType>(e.engine).step.max_context == kRows);
  REQUIRE(e.prefill(kPrompt) == MKBENCH_OK);
  REQUIRE(e.decode(6) == MKBENCH_OK);
  const Ids free = e.ids;
  CHECK(free == counted(kPrompt, 6));
  // It goes on from its last id.
  REQUIRE(e.decode(2) == MKBENCH_OK);
  Ids all = kPrompt;
  all.insert(all.end(), free.begin(), free.end());
  CHECK(e.ids == counted(all, 2));
  // Back to 4 rows, and on by a late id, or by forced ones, the last of which is not the next input.
  REQUIRE(e.table.rewind(e.engine, 4) == MKBENCH_OK);
  REQUIRE(e.decode(3, 60) == MKBENCH_OK);
  CHECK(e.ids == counted({5, 17, 96, 0, 60}, 3));
  const Ids forced = {0, 96, 4};
  REQUIRE(e.table.rewind(e.engine, 4) == MKBENCH_OK);
  REQUIRE(e.decode(3, -1, forced) == MKBENCH_OK);
  CHECK(e.ids == counted({5, 17, 96, 0, 0}, 3, forced));
  const int32_t last = e.ids.back();
  REQUIRE(e.decode(1) == MKBENCH_OK);
  CHECK(e.ids == counted({5, 17, 96, 0, 0, 96, 4, last}, 1));
  // A prompt of one id writes no row.
  REQUIRE(e.table.reset(e.engine) == MKBENCH_OK);
  REQUIRE(e.prefill({33}) == MKBENCH_OK);
  REQUIRE(e.decode(2, 0) == MKBENCH_OK);
  CHECK(e.ids == counted({0}, 2));
}

TEMPLATE_TEST_CASE("each row of logits belongs to its step", "[step]", WithLogits, AtOnce) {
  Opened<TestType> e;
  for (const Ids& forced : {Ids{}, Ids{33, 2, 61}}) {
    e.table.reset(e.engine);
    REQUIRE(e.prefill(kPrompt) == MKBENCH_OK);
    REQUIRE(e.decode(3, -1, forced, true) == MKBENCH_OK);
    CHECK(e.ids == counted(kPrompt, 3, forced));
    for (size_t i = 0; i < e.logits.size(); ++i) REQUIRE(e.logits[i] == float(e.ids[i / kVocab]));
  }
}

TEST_CASE("states are shown by a class that has show()", "[step]") {
  CHECK(mkbench_step::table<Plain>().show == nullptr);
  Opened<Showing> e;
  e.prefill(kPrompt);
  float out[3] = {};
  mkbench_show s{};
  s.size = sizeof s;
  s.what = MKBENCH_SHOW_KV_ROW;
  s.position = 3;
  s.out = out;
  REQUIRE(e.table.show(e.engine, &s) == MKBENCH_OK);
  CHECK((out[0] == 4 && out[1] == float{MKBENCH_SHOW_KV_ROW} && out[2] == 3));
  s.layer = 1;
  CHECK(e.table.show(e.engine, &s) == MKBENCH_NOT_SHOWN);
  s.layer = 2;
  CHECK(e.table.show(e.engine, &s) == MKBENCH_FAILED);
  CHECK(e.error() == "no layer 2");
}

TEST_CASE("free steps are one call of steps(), forced ones one each", "[step]") {
  Opened<AtOnce> e;
  const int& calls = mkbench_step::frame<AtOnce>(e.engine).step.calls;
  e.prefill(kPrompt);
  CHECK(calls == 0);
  e.decode(4);
  CHECK(calls == 1);
  e.decode(3, -1, {1, 2, 3});
  CHECK(calls == 4);
  CHECK(*e.table.progress(e.engine) == 10);
  e.table.reset(e.engine);
  e.prefill(kPrompt);
  CHECK(*e.table.progress(e.engine) == 0);
}

TEST_CASE("the table says what a class has", "[step]") {
  constexpr uint32_t kIds = MKBENCH_CAN_FORCED | MKBENCH_CAN_LATE_ID;
  const auto plain = mkbench_step::table<Plain>(), at_once = mkbench_step::table<AtOnce>();
  CHECK(plain.size == sizeof plain);
  CHECK(plain.version == MKBENCH_ENGINE_ABI_VERSION);
  CHECK(std::string(plain.name) == "counter");
  CHECK(plain.devices == MKBENCH_DEVICE_CPU);
  CHECK(plain.can == kIds);
  CHECK(mkbench_step::table<WithLogits>().can == (kIds | MKBENCH_CAN_LOGITS));
  CHECK(at_once.can == (kIds | MKBENCH_CAN_LOGITS | MKBENCH_ONE_LAUNCH));
  CHECK(plain.precision == MKBENCH_PRECISION_LOSSY);
  CHECK(at_once.precision == MKBENCH_PRECISION_BF16);
  CHECK(plain.max_context == 77);
  CHECK(at_once.max_context == 0);
}

TEMPLATE_TEST_CASE("the KV cache is filled to its last row and no further", "[step]", Plain,
                   AtOnce) {
  Opened<TestType> e;
  CHECK(e.prefill(Ids(kRows + 2, 1)) == MKBENCH_FAILED);
  CHECK(e.error() == "prefill: 13 KV rows needed, max_context is 12");
  CHECK(e.prefill(Ids(kRows + 1, 1)) == MKBENCH_OK);
  CHECK(e.decode(1) == MKBENCH_FAILED);
  CHECK(e.error() == "decode: 13 KV rows needed, max_context is 12");
  e.table.rewind(e.engine, kRows - 3);
  CHECK(e.decode(4, 1) == MKBENCH_FAILED);
  CHECK(e.decode(3, 1) == MKBENCH_OK);
  CHECK(*e.table.progress(e.engine) == (std::is_same_v<TestType, Plain> ? kRows - 1 : kRows - 3));
}

TEMPLATE_TEST_CASE("nothing is pending after open, reset and rewind", "[step]", Plain, AtOnce) {
  Opened<TestType> e;
  CHECK(e.decode(1) == MKBENCH_FAILED);
  CHECK(e.error() == "decode: no id is pending");
  e.prefill(kPrompt);
  e.table.reset(e.engine);
  CHECK(e.decode(1) == MKBENCH_FAILED);
  e.prefill(kPrompt);
  e.table.rewind(e.engine, 2);
  CHECK(e.decode(1) == MKBENCH_FAILED);
  CHECK(e.decode(1, 3) == MKBENCH_OK);
}

TEST_CASE("what a class throws is told, and crosses no call", "[step]") {
  Opened<WithLogits> e;
  const std::pair<int32_t, const char*> told[] = {
      {190, "the card\nburns"},
      {191, "an exception that is not a std::exception"},
      {192, "no memory"},
      {193, "never in open()"},
      {194, "step() at position 1: found id -1, wanted 0 to 96"},
      {195, "step() at position 1: found id 97, wanted 0 to 96"}};
  for (const auto& [id, text] : told) {
    CAPTURE(id);
    e.table.reset(e.engine);
    e.prefill({1, 2});
    CHECK(e.decode(1, id) == MKBENCH_FAILED);
    CHECK(e.error() == text);
    e.table.reset(e.engine);
    CHECK(e.prefill({2, id, 2}) == MKBENCH_FAILED);
    CHECK(e.error() == text);
  }
}

TEST_CASE("a class may have several open()", "[step]") {
  const Opened<Overloaded> plain;
  const Opened<ByConfig> config;
  CHECK(mkbench_step::frame<Overloaded>(plain.engine).vocab == kVocab);
  CHECK(mkbench_step::frame<ByConfig>(config.engine).vocab == 7);
}

TEST_CASE("open() says why it refuses", "[step]") {
  const auto refused = [](int32_t gpu, int32_t batch, int32_t status, const char* text) {
    const Opened<Plain> e(gpu, batch);
    CHECK(e.status == status);
    CHECK(e.engine == nullptr);
    CHECK(e.error() == text);
  };
  refused(7, 1, MKBENCH_UNFIT_ENV, "gpu 7");
  refused(8, 1, MKBENCH_UNFIT_MODEL, "hidden: found 8");
  refused(9, 1, MKBENCH_FAILED, "an exception that is not a std::exception");
  refused(-1, 2, MKBENCH_UNFIT_MODEL, "batch: wanted 1");
}

TEST_CASE("a weight is found by name, and its shape and type are compared", "[step]") {
  const uint16_t data[6] = {};
  mkbench_tensor norm = weight("norm", data, 4, 1, 2, 1), q = weight("q", data + 2, 8, 2, 2, 3);
  const mkbench_tensor* all[] = {&norm, &q};
  mkbench_step::Tensors tensors{};
  tensors.args.tensors = all;
  tensors.args.tensor_count = 2;
  CHECK(tensors.get("norm", 2) == data);
  CHECK(tensors.get("q", 2, 3) == data + 2);
  const auto refusal = [&](const char* name, int64_t rows, int64_t cols) -> std::string {
    try {
      tensors.get(name, rows, cols);
    } catch (const mkbench_step::Unfit& e) {
      CHECK(e.status == MKBENCH_UNFIT_MODEL);
      return e.what();
    }
    return "";
  };
  CHECK(refusal("k", 2, 3) == "k: there is no such tensor");
  CHECK(refusal("q", 3, 3) == "q: found [2, 3] of type 1, wanted [3, 3] of type 1");
  CHECK(refusal("q", 2, 2) == "q: found [2, 3] of type 1, wanted [2, 2] of type 1");
  q.dtype = MKBENCH_FP16;
  CHECK(refusal("q", 2, 3) == "q: found [2, 3] of type 2, wanted [2, 3] of type 1");
}

TEST_CASE("biases and norms of heads are looked for where the model has them", "[step]") {
  mkbench_model m{};
  m.hidden = 5, m.intermediate = 7, m.layers = 1, m.heads = 4, m.kv_heads = 1, m.head_dim = 3;
  m.vocab = 11, m.qk_norm = 1, m.qkv_bias = 1;
  const std::string at = "model.layers.0.self_attn.";
  const struct {
    std::string name;
    int64_t rows, cols;
  } all[] = {{"model.embed_tokens.weight", 11, 5},
             {"model.norm.weight", 5, 1},
             {"lm_head.weight", 11, 5},
             {"model.layers.0.input_layernorm.weight", 5, 1},
             {"model.layers.0.post_attention_layernorm.weight", 5, 1},
             {"model.layers.0.mlp.gate_proj.weight", 7, 5},
             {"model.layers.0.mlp.up_proj.weight", 7, 5},
             {"model.layers.0.mlp.down_proj.weight", 5, 7},
             {at + "q_proj.weight", 12, 5},
             {at + "k_proj.weight", 3, 5},
             {at + "v_proj.weight", 3, 5},
             {at + "o_proj.weight", 5, 12},
             {at + "q_norm.weight", 3, 1},
             {at + "k_norm.weight", 3, 1},
             {at + "q_proj.bias", 12, 1},
             {at + "k_proj.bias", 3, 1},
             {at + "v_proj.bias", 3, 1}};
  std::vector<uint16_t> data(std::size(all));
  std::vector<mkbench_tensor> tensors;
  for (size_t i = 0; i < data.size(); ++i)
    tensors.push_back(weight(all[i].name.c_str(), &data[i], 2, 2, all[i].rows, all[i].cols));
  std::vector<const mkbench_tensor*> pointers;
  for (const mkbench_tensor& t : tensors) pointers.push_back(&t);
  mkbench_step::Tensors given{};
  given.args.tensors = pointers.data();
  given.args.tensor_count = uint32_t(pointers.size());
  const auto place = [&](const uint16_t* weight) { return weight - data.data(); };
  const mkbench_step::Weights<> w(m, given);
  REQUIRE(w.layers.size() == 1);
  const auto& l = w.layers[0];
  CHECK((place(w.embedding) == 0 && place(w.final_norm) == 1 && place(w.head) == 2));
  CHECK((place(l.input_norm) == 3 && place(l.post_norm) == 4 && place(l.gate) == 5));
  CHECK((place(l.up) == 6 && place(l.down) == 7 && place(l.q) == 8 && place(l.k) == 9));
  CHECK((place(l.v) == 10 && place(l.o) == 11 && place(l.q_norm) == 12 && place(l.k_norm) == 13));
  CHECK((place(l.q_bias) == 14 && place(l.k_bias) == 15 && place(l.v_bias) == 16));
  m.qk_norm = 0;
  CHECK(mkbench_step::Weights<>(m, given).layers[0].q_norm == nullptr);
  CHECK(mkbench_step::Weights<>(m, given).layers[0].k_norm == nullptr);
  CHECK(place(mkbench_step::Weights<>(m, given).layers[0].v_bias) == 16);
  m.qkv_bias = 0;
  const auto bare = mkbench_step::Weights<>(m, given).layers[0];
  CHECK((bare.q_bias == nullptr && bare.k_bias == nullptr && bare.v_bias == nullptr));
}

}  // namespace
}  // namespace mkbench
