// Rows S40-S47: defects of a checkpoint in which every container is sound.
#include <algorithm>
#include <cstdint>

#include "references/base/sha256.h"
#include "tests/support/input_case.h"
#include "tests/support/micro_model.h"

namespace mkbench::testing {
namespace {

namespace fs = std::filesystem;
using Named = std::vector<std::string>;
using Tensors = std::vector<FileTensor>;

constexpr const char* kFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kShard1 = "model-00001-of-00002.safetensors";
constexpr const char* kShard2 = "model-00002-of-00002.safetensors";
constexpr const char* kEmbed = "model.embed_tokens.weight";
constexpr const char* kNorm = "model.norm.weight";
constexpr const char* kKProj = "model.layers.0.self_attn.k_proj.weight";

// The micro model with its tensors changed.
template <typename Change>
auto tensors_with(Change change) {
  return [change](const fs::path& folder) {
    Tensors tensors = micro_tensors();
    change(tensors);
    write_file(folder / kFile, safetensors_bytes(tensors));
  };
}

void set_value(FileTensor& tensor, size_t index, uint16_t bits) {
  tensor.data[2 * index] = static_cast<char>(bits & 0xff);
  tensor.data[2 * index + 1] = static_cast<char>(bits >> 8);
}

void append_f32(std::string& data, uint32_t bits) {
  for (int i = 0; i < 4; ++i) data += static_cast<char>(bits >> (8 * i) & 0xff);
}

void transpose(FileTensor& tensor) {
  const FileTensor before = tensor;
  const uint64_t rows = before.shape[0], cols = before.shape[1];
  tensor.shape = {cols, rows};
  for (uint64_t r = 0; r < rows; ++r) {
    for (uint64_t c = 0; c < cols; ++c)
      before.data.copy(tensor.data.data() + 2 * (c * rows + r), 2, 2 * (r * cols + c));
  }
}

// A sharded micro model, any part of which may be changed before it is written.
struct Shards {
  Tensors first, second;
  std::vector<std::pair<std::string, std::string>> weight_map;
  std::string total_size;

  Shards() {
    uint64_t bytes = 0;
    const Tensors all = micro_tensors();
    for (size_t i = 0; i < all.size(); ++i) {
      (i < 13 ? first : second).push_back(all[i]);
      weight_map.emplace_back(all[i].name, i < 13 ? kShard1 : kShard2);
      bytes += all[i].data.size();
    }
    total_size = std::to_string(bytes);
  }
  std::string& shard_of(std::string_view name) {
    return std::find_if(weight_map.begin(), weight_map.end(),
                        [&](const auto& item) { return item.first == name; })
        ->second;
  }
  void write(const fs::path& folder) const {
    fs::remove(folder / kFile);
    write_file(folder / kShard1, safetensors_bytes(first));
    write_file(folder / kShard2, safetensors_bytes(second));
    std::string text = "{\"metadata\": {\"total_size\": " + total_size + "}, \"weight_map\": {";
    for (size_t i = 0; i < weight_map.size(); ++i)
      text +=
          (i == 0 ? "\"" : ", \"") + weight_map[i].first + "\": \"" + weight_map[i].second + "\"";
    write_file(folder / kIndex, text + "}}");
  }
};

template <typename Change>
auto shards_with(Change change) {
  return [change](const fs::path& folder) {
    Shards shards;
    change(shards);
    shards.write(folder);
  };
}

void add_shard_cases(std::vector<InputCase>& cases) {
  const auto add = [&](const char* what, auto make, Named named) {
    cases.push_back({"S40", what, make, std::move(named)});
  };
  add("sound: legal", shards_with([](Shards&) {}), {});
  add("no total_size: legal",
      [](const fs::path& folder) {
        Shards shards;
        shards.write(folder);
        std::string map;
        for (const auto& [name, shard] : shards.weight_map)
          map += (map.empty() ? "\"" : ", \"") + name + "\": \"" + shard + "\"";
        write_file(folder / kIndex, "{\"weight_map\": {" + map + "}}");
      },
      {});
  add("a shard is missing",
      [](const fs::path& folder) {
        Shards().write(folder);
        fs::remove(folder / kShard2);
      },
      {kIndex, kShard2, "missing"});
  for (const char* path : {"../model.safetensors", "/etc/passwd", "sub/x.safetensors", "..", ""})
    add(*path == '\0' ? "empty shard name" : path,
        shards_with([path](Shards& shards) { shards.shard_of(kNorm) = path; }),
        {kIndex, kNorm, "'" + std::string(path) + "'", "plain file name"});
  add("a tensor in two shards", shards_with([](Shards& shards) {
        shards.second.push_back(find_tensor(shards.first, kEmbed));
      }),
      {kIndex, kEmbed, "two shards", kShard1, kShard2});
  add("a tensor in two shards, named by the later", shards_with([](Shards& shards) {
        shards.first.push_back(find_tensor(shards.second, kNorm));
      }),
      {kIndex, kNorm, "two shards", kShard1, kShard2});
  add("a tensor in the other shard: legal",
      shards_with([](Shards& shards) { shards.shard_of(kNorm) = kShard1; }), {});
  add("a tensor in no shard", shards_with([](Shards& shards) { shards.second.pop_back(); }),
      {kIndex, "1 of 25 tensors missing", kNorm});
  add("a tensor that the index does not know: legal",
      shards_with([](Shards& shards) { shards.weight_map.pop_back(); }), {});
  add("a name twice",
      shards_with([](Shards& shards) { shards.weight_map.push_back(shards.weight_map[0]); }),
      {kIndex, "duplicate key", kEmbed});
  add("no weight_map",
      [](const fs::path& folder) {
        Shards().write(folder);
        write_file(folder / kIndex, "{}");
      },
      {kIndex, "weight_map"});
  add("a truncated shard",
      [](const fs::path& folder) {
        Shards().write(folder);
        fs::resize_file(folder / kShard2, fs::file_size(folder / kShard2) - 3);
      },
      {kShard2, "3 bytes missing"});
  add("neither file nor index", [](const fs::path& folder) { fs::remove(folder / kFile); },
      {kFile, kIndex});
}

void add_name_cases(std::vector<InputCase>& cases) {
  const auto add = [&](const char* what, auto change, Named named) {
    named.push_back(kFile);
    cases.push_back({"S41", what, tensors_with(change), std::move(named)});
  };
  add("missing", [](Tensors& t) { t.pop_back(); }, {"1 of 25 tensors missing", kNorm});
  add("unknown", [](Tensors& t) { t.push_back(make_tensor("model.norm.bias", {4}, 1)); },
      {"1 unknown", "'model.norm.bias'", "nearest expected", kNorm});
  add("misspelt",
      [](Tensors& t) { find_tensor(t, kKProj).name = "model.layers.0.self_attn.key_proj.weight"; },
      {"1 of 25", kKProj, "nearest unknown: 'model.layers.0.self_attn.key_proj.weight'"});
  add("another prefix",
      [](Tensors& t) {
        for (FileTensor& tensor : t) tensor.name.insert(0, "x.");
      },
      {"24 of 25", "'model.embed_tokens.weight' (nearest unknown: 'x.model.embed_tokens.weight')",
       "and 20 more"});
  add("a layer too many",
      [](Tensors& t) { t.push_back(make_tensor("model.layers.2.input_layernorm.weight", {4}, 1)); },
      {"1 unknown", "'model.layers.2.input_layernorm.weight'"});
  add("control characters in a name",
      [](Tensors& t) { t.push_back(make_tensor("a\\u000ab", {4}, 1)); },
      {"1 unknown", "'a\\x0ab'"});
  add("60,000 unknown names",
      [](Tensors& t) {
        const std::string tail(100, 'x');
        for (int i = 0; i < 60'000; ++i)
          t.push_back({"model.layers." + std::to_string(i) + tail, "U8", {0}, ""});
      },
      {"60000 unknown", "and 59996 more"});
}

void add_shape_cases(std::vector<InputCase>& cases) {
  cases.push_back({"S42",
                   "o_proj transposed",
                   tensors_with([](Tensors& t) {
                     transpose(find_tensor(t, "model.layers.0.self_attn.o_proj.weight"));
                   }),
                   {"'model.layers.0.self_attn.o_proj.weight'", "shape is [8, 4]", "wanted [4, 8]",
                    "transposed?"}});
  cases.push_back({"S42",
                   "norm of rank 2",
                   tensors_with([](Tensors& t) {
                     find_tensor(t, kNorm).shape = {1, 4};
                   }),
                   {kNorm, "shape is [1, 4]", "wanted [4]"}});
  // Shapes do not show these defects. A manifest does; without one only parity can.
  const auto square = [](Tensors& t) { transpose(find_tensor(t, kKProj)); };
  const auto swapped = [](Tensors& t) {
    std::swap(find_tensor(t, kKProj).data,
              find_tensor(t, "model.layers.0.self_attn.v_proj.weight").data);
  };
  const auto doubled = [](Tensors& t) {
    for (FileTensor& tensor : t) {
      if (tensor.name.starts_with("model.layers.1."))
        tensor.data = find_tensor(t, "model.layers.0." + tensor.name.substr(15)).data;
    }
  };
  const auto hashed = [&](const char* row, const char* what, auto change) {
    cases.push_back(
        {row, std::string(what) + ": loads without a manifest", tensors_with(change), {}});
    cases.push_back({row,
                     std::string(what) + ": seen by the manifest",
                     [change](const fs::path& folder) {
                       write_manifest(folder);
                       tensors_with(change)(folder);
                     },
                     {kFile, "sha256 is", "manifest.json says"}});
  };
  hashed("S43", "k_proj transposed", square);
  hashed("S44", "k_proj and v_proj swapped", swapped);
  hashed("S44", "layer 1 is a copy of layer 0", doubled);
}

void add_value_cases(std::vector<InputCase>& cases) {
  const auto add = [&](const char* row, const std::string& what, auto make, Named named) {
    cases.push_back({row, what, make, std::move(named)});
  };
  add("S45", "NaN and Inf", tensors_with([](Tensors& t) {
        FileTensor& tensor = find_tensor(t, kKProj);
        set_value(tensor, 7, 0x7fc0);
        set_value(tensor, 9, 0xff80);
        set_value(tensor, 15, 0x7f80);
      }),
      {kFile, kKProj, "3 values", "index 7", "row 1, column 3)\n"});
  add("S45", "NaN in the embedding",
      tensors_with([](Tensors& t) { set_value(find_tensor(t, kEmbed), 23, 0xffff); }),
      {kEmbed, "1 values", "index 23"});
  add("S45", "matrix of zeros", tensors_with([](Tensors& t) {
        FileTensor& tensor = find_tensor(t, kKProj);
        std::fill(tensor.data.begin(), tensor.data.end(), '\0');
      }),
      {kKProj, "all 16 values are zero"});
  add("S45", "norm of negative zeros", tensors_with([](Tensors& t) {
        for (size_t i = 0; i < 4; ++i) set_value(find_tensor(t, kNorm), i, 0x8000);
      }),
      {kNorm, "all 4 values are zero"});
  add("S45", "constant norm: legal", tensors_with([](Tensors& t) {
        for (size_t i = 0; i < 4; ++i) set_value(find_tensor(t, kNorm), i, 0x3f80);
      }),
      {});
  add("S45", "a zero row and the largest finite value: legal", tensors_with([](Tensors& t) {
        for (size_t i = 0; i < 4; ++i) set_value(find_tensor(t, kEmbed), i, 0);
        set_value(find_tensor(t, kEmbed), 4, 0x7f7f);
      }),
      {});

  // k_proj in F32: 1, but from index 7 on `count` values of `bits`.
  const auto k_proj = [](int count, uint32_t bits) {
    return tensors_with([=](Tensors& t) {
      std::string data;
      for (int i = 0; i < 16; ++i) append_f32(data, i >= 7 && i < 7 + count ? bits : 0x3f800000);
      FileTensor& tensor = find_tensor(t, kKProj);
      tensor = {tensor.name, "F32", tensor.shape, data};
    });
  };
  const std::string place = "index 7 (row 1, column 3)";
  add("S45", "F32, the largest that rounds to a finite value: legal", k_proj(1, 0x7f7f7fff), {});
  add("S45", "F32, the next", k_proj(1, 0x7f7f8000),
      {kFile, kKProj, "1 values are NaN or Inf", place + ": 3.3961775e+38 in the file",
       "the largest value of bf16, 3.3895314e+38"});
  add("S45", "F32, large and negative", k_proj(9, 0xff7fffff),
      {kKProj, "9 values are NaN or Inf", place + ": -3.4028235e+38 in the file"});
  add("S45", "F32, NaN", k_proj(2, 0x7f800001), {kKProj, "2 values are NaN or Inf", place + "\n"});
  add("S45", "F16, Inf", tensors_with([](Tensors& t) {
        find_tensor(t, kKProj) = stored_as(find_tensor(t, kKProj), "F16");
        set_value(find_tensor(t, kKProj), 15, 0xfc00);
      }),
      {kKProj, "1 values are NaN or Inf, the first at index 15 (row 3, column 3)\n"});
  add("S45", "F32, all too small", tensors_with([](Tensors& t) {
        std::string data;
        for (const uint32_t bits : {0x00008000u, 0x80008000u, 0u, 1u}) append_f32(data, bits);
        find_tensor(t, kNorm) = {kNorm, "F32", {4}, data};
      }),
      {kNorm, "all 4 values are zero"});

  const auto add_head = [](Tensors& t) {
    t.push_back(find_tensor(t, kEmbed));
    t.back().name = "lm_head.weight";
  };
  add("S46", "tied, head equal: legal", tensors_with(add_head), {});
  add("S46", "tied, head differs", tensors_with([=](Tensors& t) {
        add_head(t);
        set_value(t.back(), 17, 0x3f80);
      }),
      {kFile, "lm_head.weight", kEmbed, "row 4"});
  for (const char* dtype : {"F32", "F16"}) {
    const std::string in = std::string(", head of ") + dtype;
    add("S46", "tied" + in + " that rounds to the embedding: legal", tensors_with([=](Tensors& t) {
          add_head(t);
          t.back() = stored_as(t.back(), dtype);
        }),
        {});
    add("S46", "tied" + in + " over an embedding of bf16, differs", tensors_with([=](Tensors& t) {
          add_head(t);
          set_value(t.back(), 17, 0x3f80);
          t.back() = stored_as(t.back(), dtype);
        }),
        {kFile, "lm_head.weight", kEmbed, "row 4"});
    add("S46", "tied" + in + ", embedding rounded too: legal", tensors_with([=](Tensors& t) {
          add_head(t);
          t.front() = stored_as(t.front(), dtype == std::string("F32") ? "F16" : "F32");
          t.back() = stored_as(t.back(), dtype);
        }),
        {});
  }
  add("S46", "tied, head of another shape", tensors_with([=](Tensors& t) {
        add_head(t);
        t.back().shape = {3, 8};
      }),
      {"lm_head.weight", "[3, 8]", "[6, 4]"});
  add("S46", "untied without head",
      [](const fs::path& folder) {
        write_file(folder / "config.json", micro_config({{"tie_word_embeddings", "false"}}));
      },
      {"lm_head.weight", kEmbed, "tie_word_embeddings is false"});
  add("S46", "untied with a head of its own: legal",
      [=](const fs::path& folder) {
        write_file(folder / "config.json", micro_config({{"tie_word_embeddings", "false"}}));
        tensors_with([=](Tensors& t) {
          add_head(t);
          set_value(t.back(), 17, 0x3f80);
        })(folder);
      },
      {});
}

void add_manifest_cases(std::vector<InputCase>& cases) {
  const auto add = [&](const char* what, auto make, Named named) {
    cases.push_back({"S47", what, make, std::move(named)});
  };
  const auto manifest = [](const std::string& text) {
    return [text](const fs::path& folder) { write_file(folder / "manifest.json", text); };
  };
  add("manifest holds: legal", [](const fs::path& folder) { write_manifest(folder); }, {});
  add("one bit of the weights",
      [](const fs::path& folder) {
        write_manifest(folder);
        tensors_with([](Tensors& t) { t[1].data[0] ^= 1; })(folder);
      },
      {kFile, "sha256 is ", "manifest.json says '",
       sha256_hex(safetensors_bytes(micro_tensors()).data(),
                  safetensors_bytes(micro_tensors()).size())});
  add("another config",
      [](const fs::path& folder) {
        write_manifest(folder);
        write_file(folder / "config.json", micro_config({{"rope_theta", "1000001"}}));
      },
      {"config.json", "sha256 is ", "manifest.json says '"});
  add("another size",
      [](const fs::path& folder) {
        write_manifest(folder);
        write_file(folder / "config.json", micro_config({{"bos_token_id", "1"}}));
      },
      {"config.json", "bytes", "manifest.json says"});
  add("weights not listed", manifest(R"({"files": {}})"), {"manifest.json", kFile, "not listed"});
  add("no hash", manifest(R"({"files": {"model.safetensors": {"bytes": 3}}})"),
      {"manifest.json", kFile, "sha256"});
  add("files is a list", manifest(R"({"files": []})"), {"manifest.json", "files", "array"});
  add("not JSON", manifest("{"), {"manifest.json", "not JSON"});
  add("somebody else's: legal", manifest(R"({"version": 3})"), {});
}

}  // namespace

std::vector<InputCase> checkpoint_cases() {
  std::vector<InputCase> cases;
  add_shard_cases(cases);
  add_name_cases(cases);
  add_shape_cases(cases);
  add_value_cases(cases);
  add_manifest_cases(cases);
  return cases;
}

}  // namespace mkbench::testing
