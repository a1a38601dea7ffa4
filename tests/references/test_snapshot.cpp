// From --model to weights: names, hub caches, folders, and the weights of a sound folder in memory.
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "references/base/error.h"
#include "references/checkpoint_files.h"
#include "references/config_scan.h"
#include "references/foreign_folder.h"
#include "references/shared_snapshot.h"
#include "references/snapshot.h"
#include "references/synthetic.h"
#include "references/user_folders.h"
#include "tests/support/catch2.h"
#include "tests/support/micro_model.h"
#include "tests/support/scoped_variable.h"
#include "tests/support/thrown.h"

namespace mkbench::testing {
namespace {

namespace fs = std::filesystem;

std::string refusal(const std::string& model) {
  return testing::error_line([&] { resolve_model(model); });
}

constexpr const char* kRevision = "0123456789abcdef0123456789abcdef01234567";

// A hub cache as the client lays it out: blobs, and links to them from the snapshot.
fs::path make_cache(const fs::path& cache) {
  const fs::path repository = cache / "models--Org--Name-1.5";
  const fs::path snapshot = repository / "snapshots" / kRevision;
  fs::create_directories(repository / "blobs");
  fs::create_directories(repository / "refs");
  fs::create_directories(snapshot);
  write_micro_model(repository / "blobs");
  for (const char* name : {"config.json", "model.safetensors"})
    fs::create_symlink(fs::path("../../blobs") / name, snapshot / name);
  write_file(repository / "refs" / "main", std::string(kRevision) + "\n");
  return snapshot;
}

bool same_bytes(const Matrix& matrix, const FileTensor& tensor) {
  return matrix.bytes() == tensor.data.size() &&
         std::memcmp(matrix.data, tensor.data.data(), matrix.bytes()) == 0;
}

}  // namespace

TEST_CASE("committed names and synthetic sets") {
  const TemporaryFolder data;
  const ScopedVariable variable("MKBENCH_DATA_DIR", data.path().c_str());
  CHECK(data_dir() == data.path());
  CHECK(holds(refusal("tiny"), (data.path() / "tiny").string()));
  CHECK(holds(refusal("tiny"), "MKBENCH_DATA_DIR"));
  fs::create_directory(data.path() / "tiny");
  const Model tiny = resolve_model("tiny");
  REQUIRE(tiny.row != nullptr);
  CHECK(tiny.row->source == ModelSource::kCommitted);
  CHECK(tiny.folder == data.path() / "tiny");

  const Model plain = resolve_model("synthetic");
  REQUIRE(is_analytic(plain.row));
  CHECK(plain.row->lagset.empty());
  CHECK(resolve_model("synthetic:short").row->lagset == "short");
  CHECK(holds(refusal("synthetic:shorter"), "shorter"));
  CHECK(holds(refusal("synthetic:shorter"), "deep"));  // the message lists the sets
  CHECK(refusal("synthetic:") != "accepted");
  CHECK(resolve_model("synthetic:qwen2.5-7b:far").row->lagset == "far");
  CHECK(holds(refusal("synthetic:llama-3.2-1b:odd"), "late"));
  int without = 0;
  for (const ShapeRow& row : kPublishedModels) {
    const std::string name = "synthetic:" + std::string(row.name);
    if (synthetic_obstacle(row).empty()) {
      CHECK(resolve_model(name).row->published->name == std::string_view(row.name));
      continue;
    }
    ++without;
    for (const std::string& text : {name, name + ":short"}) {
      CHECK(holds(refusal(text), "no closed form for this row (synthetic:"));
      CHECK(holds(refusal(text), "name their folder"));
    }
  }
  CHECK(without == 5);
}

TEST_CASE("a fetched model is found in the user's cache, and the command that fetches it named") {
  const TemporaryFolder cache;
  const ScopedVariable variable("XDG_CACHE_HOME", cache.path().c_str());
  const fs::path folder = cache.path() / "mkbench" / "models" / "smollm2-135m";
  CHECK(holds(refusal("smollm2-135m"), folder.string()));
  CHECK(holds(refusal("smollm2-135m"), "to fetch it: mkbench fetch smollm2-135m"));
  fs::create_directories(folder);
  CHECK(holds(refusal("smollm2-135m"), "is not there"));
  write_file(folder / "manifest.json", "{}");
  const Model model = resolve_model("smollm2-135m");
  CHECK(model.folder == folder);
  CHECK(has_committed_truth(model.row));
  // A folder of the same name and shape has other weights: the references are not for it.
  CHECK(find_model("/models/SmolLM2-135M", model.row->shape) == nullptr);
}

TEST_CASE("without the variable, or with an empty one, the data is the source tree's") {
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    const ScopedVariable variable("MKBENCH_DATA_DIR", value);
    CHECK(fs::exists(data_dir() / "tiny" / "config.json"));
  }
}

TEST_CASE("folders and files") {
  const TemporaryFolder folder;
  const Model spec = resolve_model(folder.path().string());
  CHECK(spec.row == nullptr);
  CHECK(spec.folder == folder.path());
  write_file(folder.path() / "file", "x");
  CHECK(holds(refusal((folder.path() / "file").string()), "is a file"));
  CHECK(holds(refusal("/no/such/folder"), "/no/such/folder"));
  CHECK(holds(refusal(""), "empty"));
  CHECK(refusal("two\nlines") != "accepted");
}

TEST_CASE("a folder in another form is told by its files, with the way out") {
  struct Row {
    std::vector<std::string> files;
    std::string told;
  };
  const Row rows[] = {
      {{"README.md", "._x.npz", "m-Q4_1.gguf"}, "'m-Q4_1.gguf', a GGUF file"},
      {{"model-00001-of-00002.safetensors"}, "shards without model.safetensors.index.json"},
      {{"consolidated.safetensors"}, "weights in their publisher's own form"},
      {{"adapted.safetensors"}, "rename the file to model.safetensors"},
      {{"pytorch_model-00001-of-00002.bin"}, "pickled weights, which are never opened"},
      {{"README.md", "tokenizer.json"}, ""},
  };
  for (const Row& row : rows) {
    const TemporaryFolder folder;
    const fs::path config = folder.path() / "config.json";
    for (const std::string& file : row.files) write_file(folder.path() / file, "x");
    INFO(row.files.back());
    CHECK(holds(foreign_folder(folder.path()), row.told));
    CHECK(foreign_folder(folder.path()).empty() == row.told.empty());
    const std::string without = error_line([&] { read_config_json(config); });
    CHECK(holds(without, config.string() + ": "));
    CHECK(holds(without, row.told.empty() ? "No such file" : ": missing; the folder holds '"));
    ModelFindings findings(ModelFindings::Mode::kCollect);
    open_checkpoint(folder.path(), findings);
    CHECK(holds(findings.all().back().text, "holds neither model.safetensors nor"));
    CHECK(holds(findings.all().back().text, row.told));
  }
  for (const char* file : {"model.safetensors", "model.safetensors.index.json"}) {
    const TemporaryFolder folder;
    write_file(folder.path() / file, "x");
    write_file(folder.path() / "model-00001-of-00002.safetensors", "x");
    INFO(file);
    CHECK(foreign_folder(folder.path()).empty());
  }
}

TEST_CASE("names without their prefix are settled, in a folder that other processes can read") {
  const TemporaryFolder folder;
  write_micro_model(folder.path());
  const std::string usual = load_folder(folder.path(), "micro").sha256;
  for (const std::string prefix : {"", "model.model."}) {
    std::vector<FileTensor> tensors = micro_tensors();
    for (FileTensor& t : tensors) t.name = prefix + t.name.substr(6);
    write_file(folder.path() / "model.safetensors", safetensors_bytes(tensors));
    const ModelWeights weights = load_folder(folder.path(), "micro");
    CHECK((weights.sha256 == usual && weights.folder.empty()));
    REQUIRE(weights.notes.size() == 1);
    const ModelWeights shared = share_weights(weights);
    CHECK((shared.notes == weights.notes && shared.sha256 == usual));
    CHECK(load_folder(shared.folder, "shared").notes.empty());
    tensors.push_back(tensors.back());
    tensors.back().name = "model.norm.weight";  // would be there twice
    write_file(folder.path() / "model.safetensors", safetensors_bytes(tensors));
    CHECK_THROWS_AS(load_folder(folder.path(), "micro"), Error);
  }
}

TEST_CASE("hub ids are looked up in the local caches") {
  const TemporaryFolder home, hf_home, hub_cache;
  const ScopedVariable h("HOME", home.path().c_str());
  const ScopedVariable hf("HF_HOME", hf_home.path().c_str());
  const ScopedVariable hub("HF_HUB_CACHE", hub_cache.path().c_str());
  const std::string nowhere = refusal("Org/Name-1.5");
  for (const fs::path& cache :
       {hub_cache.path(), hf_home.path() / "hub", home.path() / ".cache/huggingface/hub"})
    CHECK(holds(nowhere, (cache / "models--Org--Name-1.5").string()));

  // Each cache is preferred to the ones after it.
  for (const fs::path& cache :
       {home.path() / ".cache/huggingface/hub", hf_home.path() / "hub", hub_cache.path()}) {
    const fs::path snapshot = make_cache(cache);
    const Model spec = resolve_model("Org/Name-1.5");
    CHECK(spec.row == nullptr);
    CHECK(spec.folder == snapshot);
    CHECK(spec.name == "Org/Name-1.5");
    CHECK(load_model(spec).name == "Org/Name-1.5");
  }
  CHECK(holds(refusal("Org/Name/x"), "not of that form"));
  CHECK(holds(refusal("../Name"), "not of that form"));
}

TEST_CASE("a hub name may end in a revision") {
  const TemporaryFolder cache;
  const ScopedVariable hub("HF_HUB_CACHE", cache.path().c_str());
  const fs::path snapshot = make_cache(cache.path());
  const fs::path refs = cache.path() / "models--Org--Name-1.5" / "refs";
  fs::create_directory(refs / "pr");
  for (const char* name : {"v1.0", "pr/3"}) write_file(refs / name, kRevision);
  for (const std::string& revision :
       {std::string("v1.0"), std::string("pr/3"), std::string("main"), std::string(kRevision)}) {
    const Model spec = resolve_model("Org/Name-1.5@" + revision);
    CHECK(spec.folder == snapshot);
    CHECK(spec.commit == kRevision);
    CHECK(spec.name == "Org/Name-1.5@" + revision);
  }
  CHECK(model_folder_name("Org/Name-1.5@pr/3") == "Name-1.5");
  CHECK(model_folder_name("/somewhere/Name@1/") == "Name@1");
  CHECK(holds(refusal("Org/Name-1.5@v2"), "refs/v2"));
  CHECK(holds(refusal("Org/Name-1.5@v2"), "mkbench fetch Org/Name-1.5@v2"));
  CHECK(holds(refusal("Org/Name-1.5@" + std::string(40, 'a')), "(not there)"));
  for (const char* name : {"Org/Name@", "Org/Name@../main", "Org/Name@a//b", "Org@main", "@main"})
    CHECK(holds(refusal(name), "not of that form"));
}

TEST_CASE("the older variables of the hub's client name caches too") {
  const TemporaryFolder old_cache, xdg, nowhere;
  const ScopedVariable hub("HF_HUB_CACHE", nullptr), hf("HF_HOME", nullptr);
  const ScopedVariable h("HOME", nowhere.path().c_str());
  const ScopedVariable x("XDG_CACHE_HOME", xdg.path().c_str());
  const ScopedVariable old("HUGGINGFACE_HUB_CACHE", old_cache.path().c_str());
  const fs::path later = make_cache(xdg.path() / "huggingface" / "hub");
  CHECK(resolve_model("Org/Name-1.5").folder == later);
  const fs::path first = make_cache(old_cache.path());
  CHECK(resolve_model("Org/Name-1.5").folder == first);
}

TEST_CASE("references of a user's model lie in its folder or in the user's data") {
  const TemporaryFolder cache, data;
  const ScopedVariable hub("HF_HUB_CACHE", cache.path().c_str());
  const ScopedVariable xdg("XDG_DATA_HOME", data.path().c_str());
  const fs::path snapshot = make_cache(cache.path());
  const Model spec = resolve_model("Org/Name-1.5");
  CHECK(find_users_references(spec).empty());
  const fs::path of_user =
      data.path() / "mkbench" / "references" / "models--Org--Name-1.5" / kRevision;
  fs::create_directories(of_user);
  for (const char* name : {"reference.json", "reference-2.json", "other.json"})
    write_file(of_user / name, "{}");
  const std::vector<fs::path> found = find_users_references(spec);
  CHECK(found == std::vector<fs::path>{of_user / "reference-2.json", of_user / "reference.json"});

  // What lies beside the weights goes first.
  const fs::path named = snapshot / "reference" / kRevision;  // the folder's own name
  fs::create_directories(named);
  write_file(named / "reference.json", "{}");
  CHECK(find_users_references(spec) == std::vector<fs::path>{named / "reference.json"});
  write_file(snapshot / "reference.json", "{}");
  CHECK(find_users_references(spec) == std::vector<fs::path>{snapshot / "reference.json"});
  const Model folder = resolve_model(snapshot.string());
  CHECK(find_users_references(folder) == find_users_references(spec));

  CHECK(find_users_references(resolve_model("tiny")).empty());
  const ScopedVariable none("XDG_DATA_HOME", nullptr), no_home("HOME", nullptr);
  CHECK(user_data_dir().empty());
}

TEST_CASE("a cache whose refs/main leads nowhere is explained") {
  const TemporaryFolder cache, empty;
  const ScopedVariable h("HOME", empty.path().c_str());
  const ScopedVariable hf("HF_HOME", nullptr);
  const ScopedVariable hub("HF_HUB_CACHE", cache.path().c_str());
  make_cache(cache.path());
  const fs::path main_ref = cache.path() / "models--Org--Name-1.5" / "refs" / "main";
  write_file(main_ref, "../../../elsewhere");
  CHECK(holds(refusal("Org/Name-1.5"), "wanted a commit id"));
  write_file(main_ref, "abc");
  CHECK(holds(refusal("Org/Name-1.5"), "though refs/main names it"));
  fs::remove(main_ref);
  CHECK(holds(refusal("Org/Name-1.5"), main_ref.string()));
}

TEST_CASE("a folder's tensors come to their places, aligned or not, in one file or two") {
  const std::vector<FileTensor> tensors = micro_tensors();
  std::string hash;
  for (const size_t residue : {0, 1}) {
    const TemporaryFolder folder;
    write_micro_model(folder.path());
    write_file(folder.path() / "model.safetensors", safetensors_bytes(tensors, residue));
    const ModelWeights weights = load_folder(folder.path(), "micro");
    CHECK(weights.name == "micro");
    CHECK(weights.config.shape == kMicro);
    const std::vector<NamedTensor> table = tensor_table(weights.config);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Matrix& matrix = tensor_of(weights, table[i]);
      CHECK(reinterpret_cast<uintptr_t>(matrix.data) % 2 == 0);
      CHECK(same_bytes(matrix, tensors[i]));
      CHECK((matrix.rows == table[i].rows && matrix.cols == table[i].cols));
    }
    CHECK(weights.lm_head.data == weights.embed_tokens.data);
    CHECK(holds(weights.head, "there is no lm_head.weight"));
    CHECK(weights.sha256 == hash_weights(weights));
    CHECK((hash.empty() || hash == weights.sha256));
    hash = weights.sha256;
  }
}

TEST_CASE("views outlive the loader as long as a copy of the weights lives") {
  ModelWeights copy;
  {
    const TemporaryFolder folder;
    write_micro_model(folder.path());
    copy = load_folder(folder.path(), "micro");
  }  // the file has no name any more; the mapping keeps its bytes
  CHECK(hash_weights(copy) == copy.sha256);
}

TEST_CASE("an untied head is its own matrix and part of the hash") {
  const TemporaryFolder folder;
  write_micro_model(folder.path());
  const std::string tied_hash = load_folder(folder.path(), "micro").sha256;
  std::vector<FileTensor> tensors = micro_tensors();
  tensors.push_back(make_tensor("lm_head.weight", {6, 4}, 999));
  write_file(folder.path() / "model.safetensors", safetensors_bytes(tensors));
  write_file(folder.path() / "config.json", micro_config({{"tie_word_embeddings", "false"}}));
  const ModelWeights weights = load_folder(folder.path(), "micro");
  CHECK(weights.lm_head.data != weights.embed_tokens.data);
  CHECK(holds(weights.head, "untied (tie_word_embeddings is false)"));
  CHECK(same_bytes(weights.lm_head, tensors.back()));
  CHECK(weights.sha256 != tied_hash);
  CHECK(weights.sha256 == hash_weights(weights));
}

TEST_CASE("a tied head in the file must be the embedding, and is said to be") {
  const TemporaryFolder folder;
  write_micro_model(folder.path());
  std::vector<FileTensor> tensors = micro_tensors();
  FileTensor head = tensors.front();
  head.name = "lm_head.weight";
  tensors.push_back(head);
  write_file(folder.path() / "model.safetensors", safetensors_bytes(tensors));
  const ModelWeights weights = load_folder(folder.path(), "micro");
  CHECK(weights.lm_head.data == weights.embed_tokens.data);
  CHECK(holds(weights.head, "lm_head.weight has equal values"));
}

TEST_CASE("the checks of values and of the manifest can be left out") {
  const TemporaryFolder folder;
  write_micro_model(folder.path());
  write_manifest(folder.path());
  std::vector<FileTensor> tensors = micro_tensors();
  tensors[4].data.assign(tensors[4].data.size(), '\xff');  // NaN
  write_file(folder.path() / "model.safetensors", safetensors_bytes(tensors));
  LoadOptions options;
  CHECK_THROWS_AS(load_folder(folder.path(), "micro", options), Error);
  options.check_manifest = false;
  CHECK_THROWS_AS(load_folder(folder.path(), "micro", options), Error);
  options.check_finite = false;
  CHECK(load_folder(folder.path(), "micro", options).sha256.size() == 64);
  options.check_manifest = true;
  CHECK_THROWS_AS(load_folder(folder.path(), "micro", options), Error);
}

TEST_CASE("a hash that the caller knows is taken, and no value is looked at") {
  const TemporaryFolder folder;
  write_micro_model(folder.path());
  std::vector<FileTensor> tensors = micro_tensors();
  tensors[4].data.assign(tensors[4].data.size(), '\xff');         // NaN
  tensors.push_back(make_tensor("lm_head.weight", {6, 4}, 999));  // not the embedding
  LoadOptions options;
  options.sha256 = "known";
  for (const size_t residue : {0, 1}) {
    write_file(folder.path() / "model.safetensors", safetensors_bytes(tensors, residue));
    options.check_finite = false;
    const ModelWeights weights = load_folder(folder.path(), "micro", options);
    CHECK(weights.sha256 == "known");
    CHECK(weights.folder == folder.path());
    const std::vector<NamedTensor> table = tensor_table(weights.config);
    for (size_t i = 0; i + 1 < tensors.size(); ++i)
      CHECK(same_bytes(tensor_of(weights, table[i]), tensors[i]));
    CHECK(weights.lm_head.data == weights.embed_tokens.data);
    options.check_finite = true;
    CHECK_THROWS_AS(load_folder(folder.path(), "micro", options), Error);
  }
  write_micro_model(folder.path());
  CHECK(load_folder(folder.path(), "micro", options).sha256 == "known");
}

TEST_CASE("the committed checkpoints load and have the hash that their maker wrote down") {
  const ScopedVariable variable("MKBENCH_DATA_DIR", nullptr);
  for (const char* name : {"tiny", "tiny-untied"}) {
    const Model spec = resolve_model(name);
    const ModelWeights weights = load_model(spec);
    CHECK(weights.config.shape == kTiny);
    CHECK(weights.config.tie_word_embeddings == (std::string(name) == "tiny"));
    std::ifstream in(spec.folder / "manifest.json");
    const nlohmann::json manifest = nlohmann::json::parse(in);
    CHECK(weights.sha256 == manifest.at("weights_sha256").get<std::string>());
    CHECK(weights.sha256 == hash_weights(weights));
  }
}

}  // namespace mkbench::testing
