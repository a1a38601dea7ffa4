// Weights that several processes read: the parent publishes them as one snapshot folder, and a
// host, transformers' from_pretrained() or a plugin opens that folder like any other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "references/model/published.h"
#include "references/model/weights.h"
#include "references/snapshot_folder.h"

namespace mkbench {

// Returns `weights` with a `folder` that other processes can open. Weights whose own folder holds
// them, as a checkpoint that is one decoder, are returned unchanged. Others are copied to a sealed
// memfd, which nobody can change, with the bytes of a safetensors file; a SnapshotFolder links to
// the memfd and is removed with the last copy of the result.
// Throws Error(kEnvUnfit) where memory or the folder of temporary files does not suffice.
ModelWeights share_weights(const ModelWeights& weights);

// Generates the analytic checkpoint (make_synthetic()) directly in a sealed memfd, so that it is
// not held twice: 1.2 GB for the 0.6B, 16.4 GB for the 8B.
ModelWeights make_shared_synthetic(const ShapeRow& row, std::string_view lagset, int threads = 0,
                                   uint64_t salt = 0);

// libtorch's vectorised CPU kernels treat memory of this alignment, in bytes, like libtorch's own.
inline constexpr size_t kAliasAlignment = 16;
// Bytes of a folder's tensors that lie otherwise in their files, which each engine of libtorch
// copies on a CPU; 0 where share_weights() will copy all of them, aligned. Throws Error(kBadInput).
int64_t misaligned_bytes(const std::filesystem::path& folder);

// One line: name, size and modification time in ns of the folder's config.json, *.safetensors and
// index, links followed. An equal line means that the files are those that the parent has loaded.
// Throws Error(kBadInput).
std::string snapshot_stamp(const std::filesystem::path& folder);

// Loads a folder that another process has checked, as an outline if the loader does not read its
// config; the other arguments come from that process. Reads no tensor's bytes. Throws
// Error(kIntegrity) naming found and wanted if the folder's stamp differs, Error(kBadInput) like
// load_folder() and load_outline().
ModelWeights load_shared(const std::filesystem::path& folder, const std::string& name,
                         const std::string& lagset, const std::string& sha256,
                         const std::string& stamp);

}  // namespace mkbench
