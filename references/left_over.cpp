#include "references/left_over.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "references/base/json_strict.h"
#include "references/model/rope.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTable = "rotary_emb.inv_freq";
constexpr std::string_view kEnds[] = {kTable,
                                      "rotary_emb.cos_cached",
                                      "rotary_emb.sin_cached",
                                      ".self_attn.bias",
                                      ".self_attn.masked_bias",
                                      "position_ids"};
constexpr std::string_view kBegins[] = {"score.", "classifier.", "v_head.", "value_head.", "mtp."};

// Relative and absolute: bf16 rounds by 0.4 %, the smallest step of fp16 is 6e-8.
constexpr float kTableError = 0.01f, kSmallestStep = 1e-7f;

std::string base_name(const std::string& path) { return fs::path(path).filename().string(); }

// The first entry of a RoPE table that is not `wanted`; the table's size if it has another length.
std::optional<size_t> first_difference(const std::vector<Bf16>& table,
                                       const std::vector<float>& wanted) {
  if (table.size() != wanted.size()) return table.size();
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!(std::abs(to_float(table[i]) - wanted[i]) <= kTableError * wanted[i] + kSmallestStep))
      return i;
  }
  return std::nullopt;
}

// Older versions wrote the table before it was scaled.
void check_table(const std::string& name, const Located& located, const ConfigScan& scan,
                 ModelFindings& findings) {
  const Rope& rope = scan.config.rope;
  const int dim = scan.config.shape.head_dim;
  if (rope.theta == 0 || dim == 0 || !is_read_type(located.entry->dtype)) return;
  std::vector<Bf16> table(std::min<uint64_t>(located.values(), static_cast<uint64_t>(dim)));
  located.read(0, table);
  const std::vector<float> plain = inverse_frequencies({.theta = rope.theta}, dim);
  const auto differs = first_difference(table, plain);
  if (!differs || !first_difference(table, inverse_frequencies(rope, dim))) return;
  const std::string found =
      *differs < plain.size() && table.size() == plain.size()
          ? fmt::format("{:.3g} at index {}", to_float(table[*differs]), *differs)
          : fmt::format("{} values", located.values());
  const std::string wanted = table.size() == plain.size() ? fmt::format("{:.3g}", plain[*differs])
                                                          : fmt::format("{} values", plain.size());
  findings.add(
      {.severity = Severity::kFatal,
       .field = "rope_theta",
       .expected = wanted,
       .found = found,
       .source = base_name(located.file->path()) + ":" + in_quotes(name, 200),
       .text = fmt::format("tensor {}: {}, wanted {} by rope_theta {}: correct rope_theta, or drop "
                           "this tensor from the file (transformers does not read it)",
                           in_quotes(name), found, wanted, rope.theta)},
      located.file->path());
}

}  // namespace

bool is_left_over(std::string_view tensor) {
  return std::any_of(std::begin(kEnds), std::end(kEnds),
                     [&](std::string_view end) { return tensor.ends_with(end); }) ||
         std::any_of(std::begin(kBegins), std::end(kBegins),
                     [&](std::string_view begin) { return tensor.starts_with(begin); });
}

void note_left_over(const Checkpoint& checkpoint, const ConfigScan& scan, ModelFindings& findings) {
  size_t count = 0;
  std::string first;
  for (const auto& [name, located] : checkpoint.tensors) {
    if (!is_left_over(name)) continue;
    if (count++ == 0) first = in_quotes(name, 200);
    if (name.ends_with(kTable)) check_table(name, located, scan, findings);
  }
  if (count == 0) return;
  const std::string found = count == 1 ? first : fmt::format("{} and {} more", first, count - 1);
  findings.note("tensors not read", "", found, base_name(checkpoint.names_file),
                fmt::format("not read, as transformers leaves them out: {}", found));
}

bool settle_prefix(Checkpoint& checkpoint, const Family& family, ModelFindings& findings) {
  const std::string trunk(family.trunk), usual(family.embedding);
  if (!family.config_key.empty() || checkpoint.tensors.contains(usual)) return false;
  const bool is_lost = checkpoint.tensors.contains(usual.substr(trunk.size()));
  if (!is_lost && !checkpoint.tensors.contains(trunk + usual)) return false;
  const auto settled = [&](const std::string& name) {
    if (is_lost) return name.starts_with(trunk) || name == family.head ? name : trunk + name;
    return name.starts_with(trunk + trunk) ? name.substr(trunk.size()) : name;
  };
  decltype(checkpoint.tensors) tensors;
  for (const auto& [name, located] : checkpoint.tensors) tensors.emplace(settled(name), located);
  if (tensors.size() < checkpoint.tensors.size()) return false;  // two would get one name
  decltype(checkpoint.unread) unread;
  for (const std::string& name : checkpoint.unread) unread.insert(settled(name));
  checkpoint.tensors = std::move(tensors);
  checkpoint.unread = std::move(unread);
  const std::string found = is_lost ? "missing" : "there twice";
  findings.note(
      "prefix of names", in_quotes(trunk), found, base_name(checkpoint.names_file),
      fmt::format("the prefix {} of the tensors' names is {}: they are read as if it were "
                  "there once, as in transformers",
                  in_quotes(trunk), found));
  return true;
}

}  // namespace mkbench
