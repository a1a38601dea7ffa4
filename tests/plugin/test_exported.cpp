// Our own engines as libraries (kernels/exported/library.cpp): what their tables offer, and that it works.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "harness/engines/registry.h"
#include "harness/plugin/library.h"
#include "kernels/host_twin/host_twin.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"
#include "tests/support/llama3_rope.h"
#include "tests/support/plugins.h"

namespace mkbench {
namespace {

using namespace testing;

std::string exported(const std::string& name) {
  return std::string(MKBENCH_ENGINES) + "/" + name + ".so";
}

std::unique_ptr<Engine> make_twin(const ModelWeights& model = plugin_model()) {
  return make_plugin(model, {.path = exported("host-twin"), .max_context = 64});
}

mkbench_model qwen3_record() {
  mkbench_model model{};
  model.size = sizeof model;
  model.hidden = 64;
  model.intermediate = model.vocab = 128;
  model.layers = 1;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 16;
  model.tied = model.qk_norm = 1;
  model.rms_norm_eps = 1e-6;
  model.rope_theta = 1e6;
  model.rope_factor = 1;
  return model;
}

// Which optional functions but last_error() a table has.
std::vector<bool> offered(const mkbench_engine_abi& t) {
  return {t.progress != nullptr, t.rewind != nullptr,       t.save != nullptr,
          t.restore != nullptr,  t.set_timeline != nullptr, t.phase_name != nullptr,
          t.show != nullptr};
}

TEST_CASE("our exported engines claim what the registry says of them, and refuse by name",
          "[plugin]") {
  for (const std::string name : {"host-twin", "plain", "ring"}) {
    CAPTURE(name);
    const mkbench_engine_abi table = load_plugin(exported(name));
    const EngineRow* row = find_engine(name);
    REQUIRE(row != nullptr);
    CHECK(table.name == name);
    CHECK(static_cast<int32_t>(row->precision) == table.precision);
    CHECK((table.devices == MKBENCH_DEVICE_CUDA) == row->cuda);
    CHECK((table.devices == MKBENCH_DEVICE_CPU) == row->cpu);
    CHECK(table.can ==
          (MKBENCH_CAN_LOGITS | MKBENCH_CAN_FORCED | MKBENCH_CAN_LATE_ID | MKBENCH_ONE_LAUNCH |
           (name == "ring" ? 0 : MKBENCH_CAN_VECTORS | MKBENCH_CAN_HIDDEN)));
    CHECK(offered(table) == std::vector(7, true));
    // A model without tensors.
    mkbench_model model = qwen3_record();
    mkbench_open args{};
    args.size = sizeof args;
    args.model = &model;
    args.device = static_cast<int32_t>(table.devices);
    args.max_context = 8;
    args.batch = 1;
    mkbench_engine* engine = nullptr;
    CHECK(table.open(&args, &engine) == MKBENCH_UNFIT_MODEL);
    CHECK(std::string(table.last_error(nullptr)) ==
          "open: found no tensor model.embed_tokens.weight");
    model.rope_scaling = 3;
    CHECK(table.open(&args, &engine) == MKBENCH_UNFIT_MODEL);
    CHECK(std::string(table.last_error(nullptr)) == "open: rope_scaling: found 3, wanted 0 to 2");
    model.activation = 2;
    CHECK(table.open(&args, &engine) == MKBENCH_UNFIT_MODEL);
    CHECK(std::string(table.last_error(nullptr)) == "open: activation: found 2, wanted 0 or 1");
  }
}

TEST_CASE("an exported engine decodes every family, keeps states and shows them", "[plugin]") {
  ModelShape shape = plugin_model().config.shape;
  shape.qk_norm = false;
  ModelWeights llama = random_model(shape), linear = random_model(shape);
  llama.config.rope = llama3_rope(5e5, 8, 16);
  linear.config.rope.scaling = RopeScaling::kLinear;
  linear.config.rope.factor = 4;
  ModelWeights other = random_model(with_other_steps(shape));
  other.folder = data_dir() / "tiny-llama";  // whose config.json the engine does not read
  shape.qkv_bias = true;
  for (const ModelWeights& model : {plugin_model(), llama, linear, other, random_model(shape)}) {
    CAPTURE(model.config.shape.qk_norm, rope_type(model.config.rope.scaling));
    const auto engine = make_twin(model);
    const auto near = [](const std::vector<float>& a, const std::vector<float>& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                        [](float x, float y) { return std::abs(x - y) < 0.1f; });
    };
    std::vector<float> found(97);
    engine->prefill(kPrompt);
    const Snapshot start = engine->save();
    engine->decode(1);
    const Snapshot next = engine->save();
    CHECK(next.kv_checksum != start.kv_checksum);
    std::vector<int32_t> longer = kPrompt;
    longer.push_back(next.pending);
    for (const std::vector<int32_t>& ids : {kPrompt, longer, late(60)}) {
      engine->reset();
      CHECK_FALSE(engine->kv_row(0, 0).has_value());
      engine->prefill(longer);
      engine->decode(1);
      Snapshot state = ids.size() == longer.size() ? next : start;
      state.pending = ids.back();
      engine->restore(state);
      CHECK_FALSE(engine->hidden(0).has_value());
      engine->decode(1, nullptr, found.data());
      Oracle oracle(model, 1);
      std::vector<float> wanted;
      for (const int32_t id : ids) wanted = oracle.step(id);
      CHECK(near(found, wanted));
      CHECK(near(engine->hidden(1).value(), oracle.hidden_states()[1]));
      CHECK(near(engine->kv_row(1, 2).value(), oracle.kv_row(1, 2)));
    }
  }
}

TEST_CASE("a library offers no more than its engine can", "[plugin]") {
  const mkbench_engine_abi table = load_plugin(example_path("lesser"));
  CHECK(table.can == MKBENCH_NOT_DETERMINISTIC);
  CHECK(offered(table) == std::vector(7, false));
  const EngineCapabilities library = make_twin()->capabilities();
  const EngineCapabilities twin =
      make_host_twin(plugin_model(), {.max_context = 64})->capabilities();
  const auto abilities = [](const EngineCapabilities& c) {
    return std::vector{c.logits, c.one_launch, c.forced,        c.snapshots,
                       c.rewind, c.late_id,    c.deterministic, c.vectors};
  };
  CHECK(abilities(library) == abilities(twin));
}

TEST_CASE("host-twin and its library go back as if fed the shorter prompt alone", "[plugin]") {
  const std::vector<int32_t> prompt = {5, 17, 96, 0, 33, 4, 4, 61, 12, 80};
  const auto library = make_twin();
  const auto twin = make_host_twin(plugin_model(), {.max_context = 64}),
             fresh = make_host_twin(plugin_model(), {.max_context = 64});
  const auto decode = [](Engine& e) {
    std::vector<float> values(3 * 97);
    for (const int32_t id : e.decode(3, nullptr, values.data()))
      values.push_back(static_cast<float>(id));
    return values;
  };
  for (const int position : {13, 11, 9, 6, 0}) {  // within the decode, after the prompt, within it
    fresh->reset();
    fresh->prefill(prompt);
    std::vector<int32_t> fed = prompt;
    for (const int32_t id : fresh->decode(4)) fed.push_back(id);
    fed.resize(static_cast<size_t>(position) + 1);
    fresh->reset();
    fresh->prefill(fed);
    const uint64_t checksum = fresh->save().kv_checksum;
    const std::vector<float> wanted = decode(*fresh);
    for (Engine* e : {library.get(), twin.get()}) {
      CAPTURE(position, e->capabilities().name);
      e->reset();
      e->prefill(prompt);
      e->decode(4);
      e->rewind(position);
      CHECK(e->position() == position);
      CHECK(thrown_by([&] { e->decode(1); }).says("no pending id"));
      CHECK_FALSE(e->kv_row(0, position).has_value());
      CHECK_FALSE(e->hidden(0).has_value());
      for (const int outside : {-1, position + 1}) {
        const Thrown thrown = thrown_by([&] { e->rewind(outside); });
        CHECK(thrown.kind == ErrorKind::kBadInput);
        CHECK(thrown.says(fmt::format("rewind: position {} is not in [0, {}]", outside, position)));
      }
      CHECK(e->save().kv_checksum == checksum);
      e->set_pending(fed.back());
      CHECK(decode(*e) == wanted);
    }
  }
}

TEST_CASE("an exported engine tells its position and hands over its timeline", "[plugin]") {
  const auto engine = make_twin();
  const auto twin = make_host_twin(plugin_model(), {.max_context = 64});
  CHECK(engine->progress().position == -1);
  for (Engine* e : {engine.get(), twin.get()}) {
    REQUIRE(e->set_timeline(true));
    e->prefill(kPrompt);
    e->decode(3);
  }
  CHECK(engine->progress().position == 6);
  const Timeline found = engine->timeline(), wanted = twin->timeline();
  CHECK(found.phases == wanted.phases);
  CHECK(found.roles == wanted.roles);
  REQUIRE(found.spans.size() == wanted.spans.size());
  for (size_t i = 0; i < found.spans.size(); ++i) {
    const TimelineSpan &a = found.spans[i], &b = wanted.spans[i];
    CHECK((a.block == b.block && a.phase == b.phase && a.what() == b.what() && a.t1_ns >= a.t0_ns));
  }
  CHECK(found.lost == 0);
  REQUIRE(engine->set_timeline(false));
  engine->decode(1);
  CHECK(thrown_by([&] { engine->timeline(); }).says("no decode has recorded a timeline"));
}

}  // namespace
}  // namespace mkbench
