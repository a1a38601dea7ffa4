// load_folder(): turns config.json and one or more safetensors files into ModelWeights, or into an
// error that says what is wrong with them.
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "references/base/error.h"
#include "references/base/free_memory.h"
#include "references/base/json_strict.h"
#include "references/base/sha256.h"
#include "references/checkpoint_files.h"
#include "references/checkpoint_rules.h"
#include "references/config_scan.h"
#include "references/left_over.h"
#include "references/snapshot.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> parts_not_covered(const Family& family, const Checkpoint& checkpoint) {
  std::vector<std::string> parts;
  for (const HeldPart& held : uncovered_parts(family, checkpoint)) parts.push_back(held.text());
  if (!family.beside.empty()) parts.emplace_back(family.beside);
  return parts;
}

Matrix view_of(Checkpoint& checkpoint, const Located& located, const NamedTensor& t) {
  const std::span<const std::byte> bytes = located.file->view(*located.entry);
  Matrix matrix{nullptr, t.rows, t.cols};
  if (!located.is_rounded() && reinterpret_cast<uintptr_t>(bytes.data()) % alignof(Bf16) == 0) {
    matrix.data = reinterpret_cast<const Bf16*>(bytes.data());
  } else {
    check_free_memory(matrix.bytes(), "tensor " + in_quotes(t.name) + " as bf16");
    std::vector<Bf16>& copy = checkpoint.copies.emplace_back(matrix.size());
    located.read(0, copy);
    matrix.data = copy.data();
  }
  return matrix;
}

}  // namespace

ModelWeights load_folder(const fs::path& folder, const std::string& name,
                         const LoadOptions& options) {
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0) bad_input(folder.string(), std::strerror(errno));
  if (!S_ISDIR(info.st_mode))
    bad_input(folder.string(), "wanted a folder with config.json and weights");
  const fs::path config_path = folder / "config.json";
  ModelWeights weights;
  weights.name = name;
  ModelFindings rules(ModelFindings::Mode::kThrowFirst);
  const ConfigScan scan = scan_config(read_config_json(config_path), config_path.string(), rules);
  weights.config = scan.config;
  weights.model_type = scan.family->model_type;
  const bool tied = weights.config.tie_word_embeddings;

  auto checkpoint = std::make_shared<Checkpoint>(open_checkpoint(folder, rules));
  const bool is_renamed = settle_prefix(*checkpoint, *scan.family, rules);
  if (options.check_manifest) check_manifest(folder, *checkpoint);

  weights.not_covered = parts_not_covered(*scan.family, *checkpoint);

  const std::vector<NamedTensor> table = tensor_table_of(*scan.family, weights.config);
  check_names(*checkpoint, table, tied, *scan.family, rules);
  note_left_over(*checkpoint, scan, rules);
  for (const ModelFinding& note : rules.all()) weights.notes.push_back(note.text);
  weights.rounded = rounded_types(*checkpoint, table);
  weights.layers.resize(static_cast<size_t>(weights.config.shape.layers));
  const bool hashes = options.sha256.empty();
  const bool reads_values = hashes || options.check_finite;
  Sha256 hash;
  const auto add_to_hash = [&](std::span<const Bf16> values) {
    if (hashes) hash.update(values.data(), values.size_bytes());
  };
  for (const NamedTensor& t : table) {
    const auto found = checkpoint->tensors.find(t.name);
    const bool is_tied_head = tied && t.global == &ModelWeights::lm_head;
    if (found != checkpoint->tensors.end()) {
      const Located& located = found->second;
      check_type_and_shape(located, t, weights.config.shape, config_path, rules);
      if (is_tied_head) {
        if (reads_values)
          check_tied_head(checkpoint->tensors.at(table.front().name), located, t.cols, rules);
      } else {
        if (reads_values) check_values(located, t, options.check_finite, add_to_hash, rules);
        tensor_of(weights, t) = view_of(*checkpoint, located, t);
      }
    }
    if (is_tied_head) weights.lm_head = weights.embed_tokens;
  }
  const std::string head(scan.family->head);
  if (reads_values) weights.head = head_text(head, tied, checkpoint->tensors.contains(head));
  for (const auto& file : checkpoint->files) file->check_unchanged();
  weights.sha256 = hashes ? hash.hex() : options.sha256;
  std::error_code ignored;
  if (weights.rounded.empty() && !is_renamed) weights.folder = fs::absolute(folder, ignored);
  weights.owner = checkpoint;
  weights.checkpoint = std::move(checkpoint);
  return weights;
}

}  // namespace mkbench
