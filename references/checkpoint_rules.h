// What a checkpoint's tensors must be for a config: names, types, shapes, the tied head, values.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "references/checkpoint_files.h"
#include "references/model/family.h"
#include "references/model/weights.h"

namespace mkbench {

// Functions with `findings` add to them what they find, and throw as ModelFindings::add() does.

// tensor_table() with the names of `family`.
std::vector<NamedTensor> tensor_table_of(const Family& family, const ModelConfig& config);

// Requires every name of `table`, which begins with the embedding, but the head only if `tied` is
// false. Any other name means another model, unless it belongs to an uncovered part or is_left_over().
void check_names(const Checkpoint& checkpoint, const std::vector<NamedTensor>& table, bool tied,
                 const Family& family, ModelFindings& findings);

// A part of a model that mkbench does not run, and what a checkpoint holds of it.
struct HeldPart {
  const UncoveredPart* part = nullptr;
  size_t tensors = 0;
  uint64_t bytes = 0;

  std::string text() const;  // "code predictor: 57 tensors, 12345 bytes"
};
// The parts of `family.uncovered` of which the checkpoint has at least one tensor.
std::vector<HeldPart> uncovered_parts(const Family& family, const Checkpoint& checkpoint);

// The tensors of `table` that are read in another type than BF16: "2 F16, 3 F32 of 25 tensors";
// empty without one.
std::string rounded_types(const Checkpoint& checkpoint, const std::vector<NamedTensor>& table);

// Requires a type that is_read_type() and the rows and columns of `t` (0: any number). Returns false
// after a finding.
bool check_type_and_shape(const Located& located, const NamedTensor& t, const ModelShape& shape,
                          const std::filesystem::path& config_path, ModelFindings& findings);

// A file with tie_word_embeddings may hold a head anyway: its values must be the embedding's.
// Reads both tensors, which must have passed check_type_and_shape().
void check_tied_head(const Located& embed, const Located& head, int hidden,
                     ModelFindings& findings);

// Which LM head a model has, and by which rule; `head` is the name of its tensor.
std::string head_text(std::string_view head, bool tied, bool in_file);

// With `check_finite` finds NaN, Inf and all zeros. Calls use(values) for all values, in order.
void check_values(const Located& located, const NamedTensor& t, bool check_finite,
                  const std::function<void(std::span<const Bf16>)>& use, ModelFindings& findings);

}  // namespace mkbench
