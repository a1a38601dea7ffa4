#include "references/checkpoint_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string_view>

#include "references/base/json_strict.h"
#include "references/left_over.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kChunk = 1 << 19;  // values that are looked at at a time
constexpr size_t kNamesShown = 4;
constexpr char kUnknownWayOut[] =
    "remove from the file what is no part of this model, and merge LoRA into the weights";
// The search for a similar name looks at this many at most: 65,536 names would take seconds.
constexpr size_t kNamesCompared = 2048;
// Only this many missing names are compared by their letters with the unknown names.
constexpr size_t kMissingCompared = 16;

std::string file_name(const std::string& path) { return fs::path(path).filename().string(); }

ModelFinding tensor_finding(const Located& located, Severity severity, const std::string& field) {
  ModelFinding finding;
  finding.severity = severity;
  finding.field = field;
  finding.source = file_name(located.file->path()) + ":" + located.entry->name;
  return finding;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

// The candidate with the smallest edit distance from `name`; null if none is similar.
const std::string* nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  // Names are cut before they are compared: a hostile file may hold a name of megabytes.
  name = name.substr(0, 120);
  size_t best = 12;
  const std::string* nearest = nullptr;
  for (const std::string& candidate :
       std::span(candidates).first(std::min(candidates.size(), kNamesCompared))) {
    const size_t distance = edit_distance(name, std::string_view(candidate).substr(0, 120));
    if (distance < best) {
      best = distance;
      nearest = &candidate;
    }
  }
  return nearest;
}

// "'a' (nearest unknown: 'b'), 'c' and 7 more"; hints only where the names are alike.
std::string list_names(const std::vector<std::string>& names,
                       const std::vector<std::string>& candidates, const char* candidate_kind) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) {
    text += (i == 0 ? "" : ", ") + in_quotes(names[i]);
    const std::string* nearest = nearest_name(names[i], candidates);
    if (nearest != nullptr)
      text += fmt::format(" (nearest {}: {})", candidate_kind, in_quotes(*nearest));
  }
  if (names.size() > kNamesShown) text += fmt::format(" and {} more", names.size() - kNamesShown);
  return text;
}

struct NameDifferences {
  std::vector<std::string> missing, unknown;
  bool head_is_missing = false;
};

// The loader's message about all differences, in one line.
std::string names_text(const NameDifferences& d, const std::vector<NamedTensor>& table) {
  std::string what;
  if (!d.missing.empty())
    what = fmt::format("{} of {} tensors missing: {}", d.missing.size(), table.size(),
                       list_names(d.missing, d.unknown, "unknown"));
  if (!d.unknown.empty()) {
    std::vector<std::string> expected;
    for (const NamedTensor& t : table) expected.push_back(t.name);
    what +=
        fmt::format("{}{} unknown: {}", what.empty() ? "" : "; ", d.unknown.size(),
                    list_names(d.unknown, d.missing.empty() ? expected : d.missing, "expected"));
  }
  if (d.head_is_missing)
    what += "; tie_word_embeddings is false, so " + table.front().name + " is not used as the head";
  if (d.missing.empty()) what += std::string("; ") + kUnknownWayOut;
  return what;
}

// Map from a missing name to the unknown name that replaces it in the file: with another prefix
// ("model." lost, or "language_model." in front), or with a few other letters.
std::map<std::string, std::string> renamed(const NameDifferences& d) {
  const std::set<std::string> missing(d.missing.begin(), d.missing.end());
  const std::set<std::string> unknown(d.unknown.begin(), d.unknown.end());
  std::map<std::string, std::string> pairs;
  const auto pair_ends = [](const std::set<std::string>& names, const std::set<std::string>& ends,
                            auto pair) {
    for (const std::string& name : names) {
      for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
        const auto end = ends.find(name.substr(dot + 1));
        if (end == ends.end()) continue;
        pair(name, *end);
        break;
      }
    }
  };
  pair_ends(unknown, missing, [&](const auto& name, const auto& end) { pairs[end] = name; });
  pair_ends(missing, unknown, [&](const auto& name, const auto& end) { pairs[name] = end; });
  std::vector<std::string> left;
  std::set<std::string> taken;
  for (const auto& [name, other] : pairs) taken.insert(other);
  for (const std::string& name : d.unknown) {
    if (!taken.contains(name)) left.push_back(name);
  }
  size_t compared = 0;
  for (const std::string& name : d.missing) {
    if (pairs.contains(name) || ++compared > kMissingCompared) continue;
    const std::string* nearest = nearest_name(name, left);
    if (nearest == nullptr) continue;
    pairs[name] = *nearest;
    left.erase(std::find(left.begin(), left.end(), *nearest));
  }
  return pairs;
}

void add_name_findings(const NameDifferences& d, const std::string& file, ModelFindings& findings) {
  const std::map<std::string, std::string> pairs = renamed(d);
  std::set<std::string> taken;
  const auto add = [&](const char* field, const std::string& expected, const std::string& found,
                       const std::string& name, const std::string& text) {
    findings.add({.severity = Severity::kFatal,
                  .field = field,
                  .expected = expected,
                  .found = found,
                  .source = file_name(file) + ":" + in_quotes(name, 200),
                  .text = text},
                 file);
  };
  for (const std::string& name : d.missing) {
    const auto other = pairs.find(name);
    if (other == pairs.end()) {
      add("tensor missing", in_quotes(name), "absent", name, in_quotes(name) + " is missing");
    } else {
      taken.insert(other->second);
      add("tensor renamed", in_quotes(name), in_quotes(other->second), other->second,
          fmt::format("{} is missing, {} stands there instead", in_quotes(name),
                      in_quotes(other->second)));
    }
  }
  for (const std::string& name : d.unknown) {
    if (!taken.contains(name))
      add("tensor extra", "absent", in_quotes(name), name,
          fmt::format("{} is unknown: {}", in_quotes(name), kUnknownWayOut));
  }
}

// The findings of one pass over a tensor's values.
struct Scan {
  uint64_t not_finite = 0;
  uint64_t first = 0;  // index of the first value that is not finite
  bool all_zero = true;

  void add(std::span<const Bf16> values, uint64_t offset) {
    uint32_t bad = 0, any = 0;
    for (const Bf16 value : values) {  // no branch: this loop reads gigabytes
      const uint32_t magnitude = value.bits & 0x7fffu;
      any |= magnitude;
      bad += magnitude >= 0x7f80u ? 1 : 0;
    }
    all_zero = all_zero && any == 0;
    if (bad != 0 && not_finite == 0) {
      const auto at = std::find_if(values.begin(), values.end(),
                                   [](Bf16 value) { return (value.bits & 0x7fffu) >= 0x7f80u; });
      first = offset + static_cast<uint64_t>(at - values.begin());
    }
    not_finite += bad;
  }

  void check(const Located& located, const NamedTensor& t, ModelFindings& findings) const {
    const std::string& path = located.file->path();
    const auto cols = static_cast<uint64_t>(located.entry->shape.back());
    ModelFinding finding = tensor_finding(located, Severity::kFatal, "tensor values");
    finding.expected = "finite, and not all zero";
    if (not_finite != 0) {
      finding.found =
          fmt::format("{} values are NaN or Inf, the first at index {} (row {}, column {})",
                      not_finite, first, first / cols, first % cols);
      float stored = NAN;
      if (located.entry->dtype == "F32")
        located.file->read(*located.entry, sizeof stored * first,
                           std::as_writable_bytes(std::span(&stored, 1)));
      if (std::isfinite(stored))
        finding.found += fmt::format(": {} in the file, beyond the largest value of bf16, {}",
                                     stored, to_float(Bf16{0x7f7f}));
    } else if (all_zero) {
      finding.found = fmt::format("all {} values are zero", located.values());
    } else {
      return;
    }
    finding.text = "tensor " + in_quotes(t.name) + ": " + finding.found;
    findings.add(finding, path);
  }
};

// Calls use(values, index of the first) over the whole tensor. Values come from file reads, which
// fail with an Error where the file shrinks meanwhile; a mapping would raise SIGBUS.
template <typename Use>
void for_each_chunk(const Located& located, std::vector<Bf16>& buffer, Use use) {
  const uint64_t count = located.values();
  buffer.resize(kChunk);
  for (uint64_t at = 0; at < count; at += kChunk) {
    const std::span<Bf16> values(buffer.data(),
                                 static_cast<size_t>(std::min<uint64_t>(kChunk, count - at)));
    located.read(at, values);
    use(std::span<const Bf16>(values), at);
  }
}

}  // namespace

std::vector<NamedTensor> tensor_table_of(const Family& family, const ModelConfig& config) {
  std::vector<NamedTensor> table = tensor_table(config);
  for (NamedTensor& t : table) t.name = name_in(family, t.name);
  return table;
}

void check_names(const Checkpoint& checkpoint, const std::vector<NamedTensor>& table, bool tied,
                 const Family& family, ModelFindings& findings) {
  NameDifferences d;
  std::set<std::string_view> known;
  for (const NamedTensor& t : table) {
    known.insert(t.name);
    if (checkpoint.tensors.contains(t.name) || checkpoint.unread.contains(t.name)) continue;
    if (t.global != &ModelWeights::lm_head) {
      d.missing.push_back(t.name);
    } else if (!tied) {
      d.missing.insert(d.missing.begin(), t.name);  // first, because it explains the error
      d.head_is_missing = true;
    }
  }
  for (const auto& [name, located] : checkpoint.tensors) {
    if (!known.contains(name) && uncovered_part(family, name).empty() && !is_left_over(name))
      d.unknown.push_back(name);
  }
  if (d.missing.empty() && d.unknown.empty()) return;
  if (!findings.throws()) return add_name_findings(d, checkpoint.names_file, findings);
  ModelFinding all_of_them;
  all_of_them.severity = Severity::kFatal;
  all_of_them.text = names_text(d, table);
  findings.add(std::move(all_of_them), checkpoint.names_file);
}

std::string HeldPart::text() const {
  return fmt::format("{}: {} tensor{}, {} bytes", part->what, tensors, tensors == 1 ? "" : "s",
                     bytes);
}

std::vector<HeldPart> uncovered_parts(const Family& family, const Checkpoint& checkpoint) {
  std::vector<HeldPart> parts;
  for (const UncoveredPart& part : family.uncovered) {
    HeldPart held{&part};
    for (auto at = checkpoint.tensors.lower_bound(std::string(part.prefix));
         at != checkpoint.tensors.end() && at->first.starts_with(part.prefix); ++at) {
      ++held.tensors;
      held.bytes += at->second.entry->bytes();
    }
    if (held.tensors > 0) parts.push_back(held);
  }
  return parts;
}

std::string rounded_types(const Checkpoint& checkpoint, const std::vector<NamedTensor>& table) {
  std::map<std::string_view, size_t> rounded;
  size_t all = 0;
  for (const NamedTensor& t : table) {
    const auto found = checkpoint.tensors.find(t.name);
    if (found == checkpoint.tensors.end() || !is_read_type(found->second.entry->dtype)) continue;
    ++all;
    if (found->second.is_rounded()) ++rounded[found->second.entry->dtype];
  }
  std::string text;
  for (const auto& [type, count] : rounded)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, type);
  return text.empty() ? text : fmt::format("{} of {} tensors", text, all);
}

bool check_type_and_shape(const Located& located, const NamedTensor& t, const ModelShape& s,
                          const fs::path& config_path, ModelFindings& findings) {
  const TensorEntry& entry = *located.entry;
  const std::string tensor = "tensor " + in_quotes(t.name);
  bool is_sound = true;
  if (!is_read_type(entry.dtype)) {
    ModelFinding finding = tensor_finding(located, Severity::kUnsupported, "tensor dtype");
    finding.expected = kReadTypes;
    finding.found = entry.dtype;
    finding.text = fmt::format("{}: dtype is {}, wanted {}: save the model in one of these", tensor,
                               entry.dtype, kReadTypes);
    findings.add(finding, located.file->path());
    is_sound = false;
  }
  std::vector<uint64_t> wanted;
  if (!t.is_vector) wanted.push_back(static_cast<uint64_t>(t.rows));
  wanted.push_back(static_cast<uint64_t>(t.cols));
  bool fits = entry.shape.size() == wanted.size();
  for (size_t i = 0; fits && i < wanted.size(); ++i)
    fits = wanted[i] == 0 || wanted[i] == entry.shape[i];
  if (fits) return is_sound;
  const bool transposed = entry.shape.size() == 2 && wanted.size() == 2 &&
                          entry.shape[0] == wanted[1] && entry.shape[1] == wanted[0];
  ModelFinding finding = tensor_finding(located, Severity::kFatal, "tensor shape");
  finding.expected = shape_text(wanted);
  finding.found = shape_text(entry.shape) + (transposed ? " (transposed?)" : "");
  finding.text = fmt::format(
      "{}: shape is {}, wanted {}{} by {} (hidden_size {}, intermediate_size {}, "
      "num_attention_heads {}, num_key_value_heads {}, head_dim {}, vocab_size {})",
      tensor, shape_text(entry.shape), shape_text(wanted), transposed ? " (transposed?)" : "",
      config_path.string(), s.hidden, s.intermediate, s.heads, s.kv_heads, s.head_dim, s.vocab);
  findings.add(finding, located.file->path());
  return false;
}

void check_tied_head(const Located& embed, const Located& head, int hidden,
                     ModelFindings& findings) {
  std::vector<Bf16> embed_buffer(kChunk), head_buffer;
  bool differs = false;
  for_each_chunk(head, head_buffer, [&](std::span<const Bf16> values, uint64_t first) {
    if (differs) return;
    const std::span<Bf16> other(embed_buffer.data(), values.size());
    embed.read(first, other);
    if (std::memcmp(values.data(), other.data(), values.size_bytes()) == 0) return;
    differs = true;
    size_t i = 0;
    while (values[i].bits == other[i].bits) ++i;
    const uint64_t row = (first + i) / static_cast<uint64_t>(hidden);
    ModelFinding finding = tensor_finding(head, Severity::kFatal, "tie_word_embeddings");
    finding.expected = fmt::format("the values of {}", in_quotes(embed.entry->name));
    finding.found = fmt::format("other values, first in row {}", row);
    finding.text = fmt::format(
        "tie_word_embeddings is true but {} differs from {}, first in row {}: set it to "
        "false if the head was trained apart, or drop {} from the file",
        in_quotes(head.entry->name), in_quotes(embed.entry->name), row,
        in_quotes(head.entry->name));
    findings.add(finding, head.file->path());
  });
}

std::string head_text(std::string_view head, bool tied, bool in_file) {
  if (!tied) return fmt::format("{}, untied (tie_word_embeddings is false)", head);
  return fmt::format("the embedding (tie_word_embeddings is true, {} {})",
                     in_file ? "and" : "and there is no",
                     in_file ? fmt::format("{} has equal values", head) : std::string(head));
}

void check_values(const Located& located, const NamedTensor& t, bool check_finite,
                  const std::function<void(std::span<const Bf16>)>& use, ModelFindings& findings) {
  static thread_local std::vector<Bf16> buffer;
  Scan scan;
  for_each_chunk(located, buffer, [&](std::span<const Bf16> values, uint64_t first) {
    if (use) use(values);
    if (check_finite) scan.add(values, first);
  });
  if (check_finite) scan.check(located, t, findings);
}

}  // namespace mkbench
