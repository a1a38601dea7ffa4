// What a library gets of a model that only transformers computes: the folder's tensors as they are stored.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "harness/plugin/memory.h"
#include "harness/plugin/model.h"
#include "references/engine_maker.h"
#include "references/outline.h"
#include "references/shared_snapshot.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"
#include "tests/support/micro_model.h"
#include "tests/support/plugins.h"

namespace mkbench {
extern const EngineMaker plugin_maker;
namespace {

using namespace testing;

constexpr const char* kConfig =
    R"({"model_type": "zebra", "vocab_size": 7, "hidden_size": 5, "num_hidden_layers": 3})";

const std::vector<FileTensor> kTensors = {
    {"a.odd", "U8", {3}, "abc"},        {"b.bf16", "BF16", {1, 2}, "defg"},
    {"c.scalar", "F32", {}, "hijk"},    {"d.video", "F16", {1, 2, 1, 1, 2}, "lmnopqrs"},
    {"e.fp8", "F8_E4M3", {2, 1}, "tu"}, {"f.int8", "I8", {1}, "v"},
    {"g.ids", "I64", {1}, "01234567"},  {"h.mask", "BOOL", {2}, "wx"}};

class OutlineFolder {
 public:
  OutlineFolder() {
    write_file(place_.path() / "config.json", kConfig);
    write_file(place_.path() / "model.safetensors", safetensors_bytes(kTensors));
  }
  ModelWeights load() const { return load_outline(place_.path(), "mine"); }

 private:
  TemporaryFolder place_;
};

TEST_CASE("a library gets every tensor of the folder as it is stored", "[plugin]") {
  const OutlineFolder folder;
  const ModelWeights loaded = folder.load();
  // As a host loads the folder: the hash is the parent's word.
  const ModelWeights weights =
      load_shared(loaded.folder, "mine", "", "hash", snapshot_stamp(loaded.folder));
  CHECK((weights.config.is_outline() && weights.sha256 == "hash"));
  const PluginWeights copy("engine x", weights, false);
  const int32_t dtypes[] = {MKBENCH_UINT8,
                            MKBENCH_BF16,
                            MKBENCH_FP32,
                            MKBENCH_FP16,
                            MKBENCH_FP8_E4M3,
                            MKBENCH_INT8,
                            0,
                            0};
  const int32_t ranks[] = {1, 2, 0, 4, 2, 1, 1, 1};
  const std::vector<int64_t> shapes[] = {{3, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 1, 1}, {1, 2, 1, 2},
                                         {2, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, {2, 1, 1, 1}};
  REQUIRE(copy.tensors().size() == kTensors.size());
  for (size_t i = 0; i < kTensors.size(); ++i) {
    const mkbench_tensor& found = copy.tensors()[i];
    CAPTURE(kTensors[i].name);
    CHECK(found.name == kTensors[i].name);
    CHECK((found.dtype == dtypes[i] && found.rank == ranks[i]));
    CHECK(std::equal(shapes[i].begin(), shapes[i].end(), found.shape));
    CHECK(std::string(static_cast<const char*>(found.data), found.bytes) == kTensors[i].data);
    CHECK(reinterpret_cast<uintptr_t>(found.data) % 256 == 0);
  }
  const PluginModel told(weights, copy.tensors());
  const mkbench_open args = told.arguments();
  CHECK(args.model == nullptr);
  CHECK(args.config_json == std::string(kConfig));
  CHECK(args.folder == loaded.folder);
  CHECK(args.tensor_count == kTensors.size());
  CHECK(plugin_maker.bytes(weights.config, {.name = "x.so", .max_context = 9}) ==
        weights.config.outline_bytes);
}

TEST_CASE("a changed tensor of an outline is named", "[plugin]") {
  const PluginWeights copy("engine x", OutlineFolder().load(), false);
  copy.check();
  *static_cast<char*>(const_cast<void*>(copy.tensors()[3].data)) ^= 1;
  const std::string message = error_line(ErrorKind::kIntegrity, [&] { copy.check(); });
  CHECK(message == "engine x: weights: d.video was modified; they are read only");
}

TEST_CASE("files that were rewritten are named in place of the engine", "[plugin]") {
  const OutlineFolder outline;
  const TemporaryFolder family;
  write_micro_model(family.path());
  for (const ModelWeights& weights : {outline.load(), load_folder(family.path(), "micro")}) {
    const PluginWeights copy("engine x", weights, false);
    const std::string file = (weights.folder / "model.safetensors").string();
    write_file(file, std::string(std::filesystem::file_size(file) + 1, 'x'));
    CHECK(error_line([&] { copy.check(); }).find(file + ": changed since it was opened") == 0);
  }
}

TEST_CASE("examples for families refuse a model without a record", "[plugin]") {
  const OutlineFolder folder;
  const ModelWeights weights = folder.load();
  for (const char* name : {"naive_cpu", "step_cpu", "lesser", "counting"}) {
    CAPTURE(name);
    const Thrown thrown = thrown_by([&] { make_example(name, false, 64, weights); });
    CHECK(thrown.kind == ErrorKind::kBadInput);
    const bool silent = std::string(name) == "counting";
    CHECK(thrown.says(std::string("open failed (2): ") +
                      (silent ? "it does not say why" : MKBENCH_NO_RECORD)));
  }
  CHECK(thrown_by([&] { make_example("gpt2_cpu", false, 64, weights); }).says("wanted a GPT-2"));
  mkbench_model none{};
  mkbench_read(&none, sizeof none, nullptr);
  CHECK(none.size == sizeof none);
  CHECK(mkbench_unlike_qwen3(&none) == std::string(MKBENCH_NO_RECORD));
}

}  // namespace
}  // namespace mkbench
