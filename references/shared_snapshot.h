// Weights that several processes read: the parent publishes them as one snapshot folder, and a
// host, transformers' from_pretrained() or a plugin opens that folder like any other.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "references/shape_table.h"
#include "references/snapshot_folder.h"
#include "references/weights.h"

namespace mkbench {

// Returns `weights` as other processes can open them: with `folder` set. Weights that have no folder,
// or one that is not a checkpoint of kind qwen3, are copied to a memfd with the bytes of a safetensors file. The memfd is sealed, so that nobody
// can change it, and a SnapshotFolder links to it; that folder is removed with the last copy of the
// result. Weights that have a folder which holds them are returned unchanged.
// Throws Error(kEnvUnfit) where memory or the folder of temporary files does not suffice.
ModelWeights share_weights(const ModelWeights& weights);

// Generates the analytic checkpoint (make_synthetic()) right in such a memfd, so that it is not held
// twice: 1.2 GB for the 0.6B, 16.4 GB for the 8B.
ModelWeights make_shared_synthetic(const ShapeRow& row, std::string_view lagset, int threads = 0);

// One line: name, size and modification time in ns of the folder's config.json, *.safetensors and
// index, links followed. Equal lines mean the files that the parent has judged.
// Throws Error(kBadInput).
std::string snapshot_stamp(const std::filesystem::path& folder);

// A folder as another process has judged it and describes it. Reads no tensor's bytes.
// Throws Error(kIntegrity) naming found and wanted where the stamp is another one, Error(kBadInput)
// like load_folder().
ModelWeights load_shared(const std::filesystem::path& folder, const std::string& name,
                         const std::string& lagset, const std::string& sha256,
                         const std::string& stamp);

}  // namespace mkbench
