#include "references/model_row.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "references/hub_cache.h"

namespace mkbench {
namespace {

// `parity_set`: the lag sets short, early and late have references; the others are judged by the
// references of short.
constexpr ModelRow analytic(std::string_view name, std::string_view lagset,
                            std::string_view parity_set, std::string_view help = "") {
  return {.name = name,
          .help = help,
          .shape = kQwen3_0_6B,
          .tied = true,
          .source = ModelSource::kAnalytic,
          .lagset = lagset,
          .parity_set = parity_set,
          .weights_sha256 = "",
          .byte_level = false};
}

constexpr ModelRow kRows[] = {
    {.name = "tiny",
     .help = "trained, 4 layers, byte-level, tied; committed",
     .shape = kTiny,
     .tied = true,
     .source = ModelSource::kCommitted,
     .lagset = "",
     .parity_set = "tiny",
     .weights_sha256 = "4de28f95eab548183bc4865795773f147578a72d1e753fa4f6dd6e29623b0d23",
     .byte_level = true},
    {.name = "tiny-untied",
     .help = "tiny with an untied head and another theta; committed",
     .shape = kTiny,
     .tied = false,
     .source = ModelSource::kCommitted,
     .lagset = "",
     .parity_set = "tiny-untied",
     .weights_sha256 = "b1c2298bd1668ee1e07f684bb06f1f279d88a5db6f34a5d91ef8073bf81c4d2b",
     .byte_level = true},
    analytic("synthetic", "", "synthetic:short",
             "the analytic checkpoint of Qwen3-0.6B's shapes, made in memory; lag set by depth"),
    analytic("synthetic:none", "none", "synthetic:short"),
    analytic("synthetic:short", "short", "synthetic:short"),
    analytic("synthetic:deep", "deep", "synthetic:short"),
    analytic("synthetic:far", "far", "synthetic:short"),
    analytic("synthetic:early", "early", "synthetic:early"),
    analytic("synthetic:late", "late", "synthetic:late"),
    {.name = "Qwen3-0.6B",
     .help = "",
     .shape = kQwen3_0_6B,
     .tied = true,
     .source = ModelSource::kUsers,
     .lagset = "",
     .parity_set = "qwen3-0.6b",
     .weights_sha256 = "",
     .byte_level = false},
};

}  // namespace

std::span<const ModelRow> model_rows() { return kRows; }

const ModelRow* find_model(std::string_view model) {
  const auto* found = std::find_if(std::begin(kRows), std::end(kRows), [&](const ModelRow& row) {
    return row.source != ModelSource::kUsers && row.name == model;
  });
  return found == std::end(kRows) ? nullptr : found;
}

const ModelRow* find_model(std::string_view model, const ModelShape& shape) {
  if (const ModelRow* named = find_model(model)) return named;
  const std::string name = model_folder_name(model);
  const auto* found = std::find_if(std::begin(kRows), std::end(kRows), [&](const ModelRow& row) {
    return row.source == ModelSource::kUsers && row.name == name && row.shape == shape;
  });
  return found == std::end(kRows) ? nullptr : found;
}

std::string model_folder_name(std::string_view model) {
  const std::optional<HubName> hub = parse_hub_name(std::string(model));
  std::filesystem::path path(hub ? hub->id : std::string(model));  // without @REVISION
  if (!path.has_filename()) path = path.parent_path();             // drops a trailing slash
  return path.filename().string();
}

bool is_byte_level(const ModelShape& shape) {
  return std::any_of(std::begin(kRows), std::end(kRows), [&](const ModelRow& row) {
    return row.byte_level && row.shape.vocab == shape.vocab;
  });
}

}  // namespace mkbench
