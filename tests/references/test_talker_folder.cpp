// Folders of Qwen3-TTS: the talker's trunk as the loader, `mkbench inspect` and a shared copy see it.
#include <algorithm>
#include <optional>

#include "references/base/error.h"
#include "references/inspection.h"
#include "references/model/family.h"
#include "references/shared_snapshot.h"
#include "tests/support/catch2.h"
#include "tests/support/micro_model.h"
#include "tests/support/thrown.h"

namespace mkbench::testing {
namespace {

namespace fs = std::filesystem;

using Edits = std::vector<ConfigEdit>;

const Family& talker() { return *find_family("qwen3_tts"); }

// The sections share out the two frequencies of kMicro's heads.
std::string rope(const std::string& sections, const std::string& more = "") {
  return R"({"rope_type": "default", "interleaved": true, "mrope_section": )" + sections + more +
         "}";
}

// config.json; `edits` are of the decoder's own object.
std::string talker_config(const Edits& edits = {}) {
  Edits all = {{"model_type", "\"qwen3_tts_talker\""},
               {"architectures", ""},
               {"tie_word_embeddings", ""},
               {"rope_scaling", rope("[1, 1, 0]")}};
  all.insert(all.end(), edits.begin(), edits.end());
  return R"({"model_type": "qwen3_tts", "architectures": ["Qwen3TTSForConditionalGeneration"],)"
         R"( "talker_config": )" +
         micro_config(all) + "}\n";
}

// kMicro's tensors and an untied head under the talker's names, and one of a part not covered.
std::vector<FileTensor> talker_tensors() {
  std::vector<FileTensor> tensors = micro_tensors();
  tensors.push_back(make_tensor("lm_head.weight", {6, 4}, 999));
  for (FileTensor& tensor : tensors) tensor.name = name_in(talker(), tensor.name);
  tensors.push_back({"talker.code_predictor.lm_head.0.weight", "F32", {2}, std::string(8, '\0')});
  return tensors;
}

void write_talker(const fs::path& folder, const std::vector<FileTensor>& tensors = talker_tensors(),
                  const std::string& config = talker_config()) {
  write_file(folder / "config.json", config);
  write_file(folder / "model.safetensors", safetensors_bytes(tensors));
}

// The values of talker_tensors() that its decoder reads, by Qwen3's names and with its config.json.
ModelWeights untied_micro(const fs::path& folder) {
  std::vector<FileTensor> tensors = micro_tensors();
  tensors.push_back(make_tensor("lm_head.weight", {6, 4}, 999));
  write_file(folder / "config.json", micro_config({{"tie_word_embeddings", "false"}}));
  write_file(folder / "model.safetensors", safetensors_bytes(tensors));
  return load_folder(folder, "micro");
}

std::string refusal(const fs::path& folder) {
  return testing::error_line([&] { load_folder(folder, "talker"); });
}

void check_refused(const std::string& what, const std::vector<FileTensor>& tensors,
                   const std::string& config, const std::string& named) {
  INFO(what);
  const TemporaryFolder folder;
  write_talker(folder.path(), tensors, config);
  CHECK_THAT(refusal(folder.path()), ContainsText(named));
  const Inspection inspection =
      inspect_model({nullptr, "talker", folder.path(), {}}, /*values=*/true);
  CHECK((inspection.verdict == Runs::kNo));
  CHECK(std::any_of(inspection.findings.begin(), inspection.findings.end(),
                    [](const ModelFinding& f) { return f.severity >= Severity::kUnsupported; }));
}

}  // namespace

TEST_CASE("the talker's trunk is loaded by its names, and the rest is declared out") {
  const TemporaryFolder folder, plain_folder;
  write_talker(folder.path());
  const ModelWeights weights = load_folder(folder.path(), "talker");
  const ModelWeights plain = untied_micro(plain_folder.path());
  CHECK(weights.sha256 == plain.sha256);
  CHECK(hash_weights(weights) == plain.sha256);
  CHECK(weights.config.shape == kMicro);
  CHECK_FALSE(weights.config.tie_word_embeddings);
  CHECK(weights.config.max_positions == plain.config.max_positions);
  CHECK(weights.lm_head.data != weights.embed_tokens.data);
  CHECK(weights.head.find("talker.codec_head.weight, untied") == 0);
  CHECK(weights.model_type == "qwen3_tts");
  CHECK((weights.not_covered == std::vector<std::string>{"code predictor: 1 tensor, 8 bytes",
                                                         "speech tokenizer (codec ids to audio)"}));
  CHECK((plain.model_type == "qwen3" && plain.not_covered.empty()));
}

TEST_CASE("embedding and head of the talker are told apart") {
  std::vector<FileTensor> tensors = talker_tensors();
  std::swap(find_tensor(tensors, talker().embedding).data,
            find_tensor(tensors, talker().head).data);
  const TemporaryFolder folder, plain_folder;
  write_talker(folder.path(), tensors);
  const ModelWeights swapped = load_folder(folder.path(), "talker");
  const ModelWeights plain = untied_micro(plain_folder.path());
  CHECK(swapped.sha256 != plain.sha256);
  CHECK(swapped.lm_head.row(0)[0].bits == plain.embed_tokens.row(0)[0].bits);
}

TEST_CASE("hosts see the talker as a checkpoint of Qwen3") {
  const TemporaryFolder folder;
  write_talker(folder.path());
  const ModelWeights weights = load_folder(folder.path(), "talker");
  const ModelWeights shared = share_weights(weights);
  CHECK(shared.folder != weights.folder);
  CHECK((shared.model_type == "qwen3_tts" && shared.not_covered == weights.not_covered));
  CHECK(shared.head == weights.head);
  const ModelWeights read = load_folder(shared.folder, "read");
  CHECK(read.model_type == "qwen3");
  CHECK(read.sha256 == weights.sha256);
  CHECK(read.config.max_positions == weights.config.max_positions);
  CHECK(share_weights(shared).folder == shared.folder);
}

TEST_CASE("mRoPE is plain RoPE at its theta, and other variants are refused by name") {
  for (const Edits& legal :
       {Edits{}, Edits{{"rope_scaling", ""}}, Edits{{"rope_scaling", rope("[0, 1, 1]")}},
        Edits{{"rope_theta", "5e5"}}}) {
    const TemporaryFolder folder;
    write_talker(folder.path(), talker_tensors(), talker_config(legal));
    INFO(talker_config(legal));
    CHECK(refusal(folder.path()) == "accepted");
  }
  const TemporaryFolder folder;
  write_talker(folder.path(), talker_tensors(), talker_config({{"rope_theta", "5e5"}}));
  CHECK(load_folder(folder.path(), "talker").config.rope.theta == 5e5);

  struct Refused {
    std::string value, named;
  };
  for (const Refused& r :
       {Refused{rope("[1, 1, 1]"), "rope_scaling.mrope_section is [1,1,1], wanted three lengths"},
        Refused{rope("[1, 1]"), "rope_scaling.mrope_section"},
        Refused{rope("[1, 1, 0]", R"(, "factor": 4)"), "rope_scaling.'factor' = 4: unsupported"},
        Refused{R"({"rope_type": "yarn"})", "rope_scaling.rope_type is 'yarn': unsupported"}}) {
    check_refused(r.value, talker_tensors(), talker_config({{"rope_scaling", r.value}}), r.named);
  }
}

TEST_CASE("damaged talkers are refused by the names of their own file") {
  std::vector<FileTensor> tensors = talker_tensors();
  std::erase_if(tensors, [](const FileTensor& t) { return t.name == talker().head; });
  check_refused("no head", tensors, talker_config(),
                "'talker.codec_head.weight'; tie_word_embeddings is false, so "
                "talker.model.codec_embedding.weight is not used as the head");
  tensors = talker_tensors();
  tensors.push_back(make_tensor("talker.model.extra.weight", {2}, 1));
  check_refused("an unknown tensor", tensors, talker_config(), "'talker.model.extra.weight'");
  tensors = talker_tensors();
  find_tensor(tensors, "talker.model.norm.weight").shape = {2, 2};
  check_refused("a shape", tensors, talker_config(), "'talker.model.norm.weight': shape is [2, 2]");
  check_refused("tied after all", talker_tensors(),
                talker_config({{"tie_word_embeddings", "true"}}),
                "'talker.codec_head.weight' differs from 'talker.model.codec_embedding.weight'");
  check_refused(
      "no decoder", talker_tensors(),
      R"({"model_type": "qwen3_tts", "architectures": ["Qwen3TTSForConditionalGeneration"]})",
      "talker_config is absent, wanted an object");
  check_refused("a key of the decoder", talker_tensors(),
                talker_config({{"hidden_act", "\"gelu\""}}),
                "hidden_act is 'gelu', supported: 'silu' (in talker_config)");
}

}  // namespace mkbench::testing
