// inspect_model() against the loader: on every row of the input tables both come to the same end.
#include <algorithm>
#include <optional>

#include "references/base/error.h"
#include "references/inspection.h"
#include "references/inspection_facts.h"
#include "references/model/family.h"
#include "tests/support/catch2.h"
#include "tests/support/input_case.h"
#include "tests/support/micro_model.h"

namespace mkbench::testing {
namespace {

namespace fs = std::filesystem;

bool refuses(const ModelFinding& f) { return f.severity >= Severity::kUnsupported; }

std::optional<std::string> loader_message(const fs::path& folder) {
  try {
    load_folder(folder, folder.string());
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

Inspection inspect(const fs::path& folder, bool values = true) {
  return inspect_model({nullptr, folder.string(), folder, {}}, values);
}

bool has(const Inspection& inspection, Severity severity, const std::string& field,
         const std::string& found = {}) {
  return std::any_of(inspection.findings.begin(), inspection.findings.end(),
                     [&](const ModelFinding& f) {
                       return f.severity == severity && f.field == field &&
                              f.found.find(found) != std::string::npos;
                     });
}

// The loader has one line for several missing keys or names, inspect has a finding for each.
bool is_a_list(const std::string& message) {
  return message.find(": missing ") != std::string::npos ||
         message.find("tensors missing: ") != std::string::npos ||
         message.find(" unknown: ") != std::string::npos;
}

void check_agreement(const InputCase& input) {
  const TemporaryFolder folder;
  write_micro_model(folder.path());
  input.make(folder.path());
  const std::optional<std::string> refusal = loader_message(folder.path());
  INFO(input.row << ", " << input.what << ": " << refusal.value_or("loads"));
  Inspection inspection;
  try {
    inspection = inspect(folder.path());
  } catch (const Error& error) {
    // A config.json that cannot be read ends both with one line.
    CHECK(refusal == error.what());
    return;
  }
  const auto first = std::find_if(inspection.findings.begin(), inspection.findings.end(), refuses);
  const bool inspect_refuses = first != inspection.findings.end();
  INFO("inspect: " << (inspect_refuses ? first->text.substr(0, 500) : "no refusal"));
  CHECK(refusal.has_value() == inspect_refuses);
  // The micro model's shape is not compiled in.
  CHECK((inspection.verdict == (inspect_refuses ? Runs::kNo : Runs::kAfterRebuild)));
  if (!refusal || is_a_list(*refusal)) return;
  CHECK(std::any_of(inspection.findings.begin(), inspection.findings.end(),
                    [&](const ModelFinding& f) {
                      return refuses(f) && refusal->find(f.text) != std::string::npos;
                    }));
}

template <typename Change>
Inspection inspect_changed(Change change, bool values = false) {
  const TemporaryFolder folder;
  write_micro_model(folder.path());
  change(folder.path());
  return inspect(folder.path(), values);
}

}  // namespace

TEST_CASE("loader and inspect agree on every row of the input tables") {
  size_t judged = 0;
  for (const auto& cases : {container_cases(), checkpoint_cases(), config_cases()}) {
    for (const InputCase& input : cases) {
      if (!input.options.empty()) continue;  // these change the file while it is read
      check_agreement(input);
      ++judged;
    }
  }
  CHECK(judged > 250);
}

TEST_CASE("a sound model of another shape wants a rebuild") {
  const Inspection inspection = inspect_changed([](const fs::path&) {});
  CHECK((inspection.verdict == Runs::kAfterRebuild));
  for (const char* field : {"hidden_size", "intermediate_size", "num_attention_heads",
                            "num_key_value_heads", "head_dim"}) {
    INFO(field);
    CHECK(has(inspection, Severity::kNeedsRebuild, field));
  }
  CHECK(inspection.shape.empty());
  CHECK(has(inspection, Severity::kInformation, "KV cache", "32 bytes a position, 2048"));
}

TEST_CASE("steps for which no kernel is written want a rebuild") {
  ModelFindings findings(ModelFindings::Mode::kCollect);
  ModelConfig config{.shape = kTinyLlama};
  add_shape_facts(config, "config.json:", findings);
  const auto rebuilds = [&] {
    std::string text;
    for (const ModelFinding& f : findings.all())
      if (f.severity == Severity::kNeedsRebuild) text += f.field + ": " + f.text + "\n";
    return text;
  };
  CHECK(rebuilds().empty());
  config.shape.norm_offset = 1;
  add_shape_facts(config, "config.json:", findings);
  CHECK(rebuilds() == "steps of a layer: no kernel has code for norm weights + 1\n");
}

TEST_CASE("parts of a layer are compared with the nearest compiled shape") {
  const Inspection inspection = inspect_changed([](const fs::path& folder) {
    std::vector<FileTensor> tensors = micro_tensors();
    std::erase_if(tensors, [](const FileTensor& t) {
      return t.name.ends_with("q_norm.weight") || t.name.ends_with("k_norm.weight");
    });
    write_file(folder / "model.safetensors", safetensors_bytes(tensors));
    write_file(folder / "config.json",
               micro_config({{"model_type", "\"llama\""},
                             {"architectures", "[\"LlamaForCausalLM\"]"},
                             {"rope_scaling", R"({"rope_type": "linear", "factor": 4.0})"}}));
  });
  CHECK(has(inspection, Severity::kInformation, "QK-norm", "none"));
  CHECK(has(inspection, Severity::kInformation, "biases of q, k and v", "none"));
  CHECK(has(inspection, Severity::kInformation, "RoPE scaling", "linear, factor 4"));
  CHECK((inspection.verdict == Runs::kAfterRebuild));
  CHECK(inspection.verdict_text.find("eager, graph and host-twin run it as it is") !=
        std::string::npos);
}

TEST_CASE("values are read on request alone") {
  const auto plant = [](const fs::path& folder) {
    std::vector<FileTensor> tensors = micro_tensors();
    FileTensor& norm = find_tensor(tensors, "model.norm.weight");
    std::fill(norm.data.begin(), norm.data.end(), '\0');
    write_file(folder / "model.safetensors", safetensors_bytes(tensors));
  };
  CHECK_FALSE(has(inspect_changed(plant), Severity::kFatal, "tensor values"));
  const Inspection read = inspect_changed(plant, /*values=*/true);
  CHECK(has(read, Severity::kFatal, "tensor values", "all 4 values are zero"));
  CHECK(read.values_read);
}

TEST_CASE("tensors that the loader rounds are counted, and hashed as rounded") {
  const auto store = [](const std::string& dtype) {
    return [=](const fs::path& folder) {
      std::vector<FileTensor> tensors = micro_tensors();
      for (size_t i : {1, 3}) tensors[i] = stored_as(tensors[i], dtype);
      write_file(folder / "model.safetensors", safetensors_bytes(tensors));
    };
  };
  const auto hash_of = [](const Inspection& inspection) {
    const auto at =
        std::find_if(inspection.findings.begin(), inspection.findings.end(),
                     [](const ModelFinding& f) { return f.field == "sha256 of all tensors"; });
    return at == inspection.findings.end() ? "none" : at->found;
  };
  const Inspection plain = inspect_changed([](const fs::path&) {}, /*values=*/true);
  const Inspection rounded = inspect_changed(store("F32"), /*values=*/true);
  CHECK_FALSE(has(plain, Severity::kInformation, "rounded to bf16"));
  CHECK(has(rounded, Severity::kInformation, "rounded to bf16", "2 F32 of 24 tensors"));
  CHECK(hash_of(plain).size() == 64);
  CHECK(hash_of(rounded) == hash_of(plain));

  // A type that is not read is not counted, nor are its values compared.
  const Inspection refused = inspect_changed([](const fs::path& folder) {
    std::vector<FileTensor> tensors = micro_tensors();
    tensors.push_back(make_tensor("lm_head.weight", {6, 4}, 0));
    tensors.front() = {tensors.front().name, "F64", {6, 4}, std::string(8 * 24, '<')};
    write_file(folder / "model.safetensors", safetensors_bytes(tensors));
  });
  CHECK(has(refused, Severity::kUnsupported, "tensor dtype", "F64"));
  CHECK_FALSE(has(refused, Severity::kInformation, "rounded to bf16"));
  CHECK_FALSE(has(refused, Severity::kFatal, "tie_word_embeddings"));
}

TEST_CASE("a tied head of another type is compared by its rounded values") {
  for (const bool equal : {true, false}) {
    const Inspection inspection = inspect_changed([&](const fs::path& folder) {
      std::vector<FileTensor> tensors = micro_tensors();
      tensors.push_back(make_tensor("lm_head.weight", {6, 4}, equal ? 0 : 1));
      tensors.front() = stored_as(tensors.front(), "F16");
      write_file(folder / "model.safetensors", safetensors_bytes(tensors));
    });
    CHECK(has(inspection, Severity::kFatal, "tie_word_embeddings", "other values") != equal);
  }
}

TEST_CASE("a name with another beginning is a renamed tensor") {
  for (const char* prefix : {"", "language_model.model."}) {
    INFO(prefix);
    const Inspection inspection = inspect_changed([&](const fs::path& folder) {
      std::vector<FileTensor> tensors = micro_tensors();
      for (FileTensor& t : tensors)
        if (t.name != tensors.front().name) t.name = prefix + t.name.substr(6);
      write_file(folder / "model.safetensors", safetensors_bytes(tensors));
    });
    const auto count = [&](const char* field) {
      return std::count_if(inspection.findings.begin(), inspection.findings.end(),
                           [&](const ModelFinding& f) { return f.field == field; });
    };
    CHECK(count("tensor renamed") == 23);
    CHECK(count("tensor missing") == 0);
    CHECK(count("tensor extra") == 0);
  }
}

TEST_CASE("dimensions that the config does not say are not compared") {
  const Inspection inspection = inspect_changed([](const fs::path& folder) {
    write_file(folder / "config.json",
               micro_config({{"hidden_size", "\"4\""}, {"num_hidden_layers", ""}}));
  });
  CHECK(has(inspection, Severity::kFatal, "hidden_size", "'4'"));
  CHECK(has(inspection, Severity::kFatal, "num_hidden_layers", "absent"));
  CHECK_FALSE(has(inspection, Severity::kFatal, "tensor shape"));
  CHECK_FALSE(has(inspection, Severity::kFatal, "tensor extra"));
}

TEST_CASE("names of the talker are those of Qwen3 with other beginnings") {
  const Family* talker = find_family("qwen3_tts");
  REQUIRE(talker != nullptr);
  CHECK(name_in(*talker, "model.layers.3.mlp.up_proj.weight") ==
        "talker.model.layers.3.mlp.up_proj.weight");
  CHECK(name_in(*talker, "model.norm.weight") == "talker.model.norm.weight");
  CHECK(name_in(*talker, "model.embed_tokens.weight") == "talker.model.codec_embedding.weight");
  CHECK(name_in(*talker, "lm_head.weight") == "talker.codec_head.weight");
  CHECK(uncovered_part(*talker, "talker.code_predictor.lm_head.0.weight") == "code predictor");
  CHECK(uncovered_part(*talker, "talker.model.norm.weight").empty());
}

}  // namespace mkbench::testing
