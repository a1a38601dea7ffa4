#include "harness/plugin/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

#include "harness/plugin/checksum.h"
#include "references/base/error.h"
#include "references/checkpoint_files.h"

namespace mkbench {
namespace {

constexpr size_t kMostDimensions = std::extent_v<decltype(mkbench_tensor::shape)>;
constexpr size_t kPage = 4096;
constexpr std::byte kCanary{0xa5}, kPoison{0xff};

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

struct StoredType {
  std::string_view name;  // in safetensors
  int32_t dtype;
};
constexpr StoredType kStoredTypes[] = {{"BF16", MKBENCH_BF16}, {"F16", MKBENCH_FP16},
                                       {"F32", MKBENCH_FP32},  {"F8_E4M3", MKBENCH_FP8_E4M3},
                                       {"I8", MKBENCH_INT8},   {"U8", MKBENCH_UINT8}};

// 0 for a type that engine_abi.h does not name.
int32_t dtype_of(const Located& located) {
  for (const StoredType& type : kStoredTypes) {
    if (type.name == located.entry->dtype) return type.dtype;
  }
  return 0;
}

}  // namespace

PluginWeights::PluginWeights(std::string who, const ModelWeights& weights, bool cuda)
    : who_(std::move(who)), weights_(weights), cuda_(cuda) {
  weights_.config.is_outline() ? list_stored() : list_table();
  size_t lines = 0;
  for (const mkbench_tensor& t : originals_) {
    if (t.data != nullptr) lines += round_up(t.bytes, sizeof(Line)) / sizeof(Line);
  }
  if (cuda_) {
    device_ = DeviceBuffer<Line>(lines);
    // The checksum covers the gaps between tensors, too.
    MKBENCH_CUDA(cudaMemset(device_.get(), 0, device_.bytes()));
  } else {
    host_.resize(lines);
  }
  copy_in(cuda_ ? device_.get()->bytes : host_.data()->bytes);
  if (cuda_) checksum_ = device_checksum(device_.get(), device_.bytes() / 8);
}

void PluginWeights::list_table() {
  check_shapes(weights_, who_);
  table_ = tensor_table(weights_.config);
  for (const NamedTensor& t : table_) {
    const Matrix& matrix = tensor_of(weights_, t);
    const bool tied = weights_.config.tie_word_embeddings && t.global == &ModelWeights::lm_head;
    originals_.push_back({.size = sizeof(mkbench_tensor),
                          .dtype = MKBENCH_BF16,
                          .name = t.name.c_str(),
                          .data = tied ? nullptr : matrix.data,
                          .bytes = matrix.bytes(),
                          .rank = t.is_vector ? 1 : 2,
                          .shape = {t.is_vector ? t.cols : t.rows, t.is_vector ? 1 : t.cols, 1, 1},
                          .storage = nullptr,
                          .scales = nullptr,
                          .zeros = nullptr});
  }
}

void PluginWeights::list_stored() {
  for (const auto& [name, located] : weights_.checkpoint->tensors) {
    const std::vector<uint64_t>& shape = located.entry->shape;
    mkbench_tensor& t = originals_.emplace_back(mkbench_tensor{
        .size = sizeof(mkbench_tensor),
        .dtype = dtype_of(located),
        .name = name.c_str(),
        .data = located.file->view(*located.entry).data(),
        .bytes = located.entry->bytes(),
        .rank = static_cast<int32_t>(std::min<size_t>(shape.size(), kMostDimensions)),
        .shape = {1, 1, 1, 1},
        .storage = nullptr,
        .scales = nullptr,
        .zeros = nullptr});
    for (size_t i = 0; i < shape.size(); ++i)
      t.shape[std::min(i, kMostDimensions - 1)] *= static_cast<int64_t>(shape[i]);
  }
}

void PluginWeights::copy_in(std::byte* to) {
  tensors_ = originals_;
  for (mkbench_tensor& t : tensors_) {
    if (t.data == nullptr) {
      t.data = tensors_.front().data;  // the first tensor of the table is the embedding
      continue;
    }
    if (cuda_) {
      MKBENCH_CUDA(cudaMemcpy(to, t.data, t.bytes, cudaMemcpyHostToDevice));
    } else {
      std::memcpy(to, t.data, t.bytes);
    }
    t.data = std::exchange(to, to + round_up(t.bytes, sizeof(Line)));
  }
}

void PluginWeights::check() const {
  if (cuda_) {
    if (device_checksum(device_.get(), device_.bytes() / 8) != checksum_) name_changed();
    return;
  }
  // Files that were rewritten differ from the copy, too, and the engine is not to blame.
  if (weights_.checkpoint != nullptr) {
    for (const auto& file : weights_.checkpoint->files) file->check_unchanged();
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const mkbench_tensor& original = originals_[i];
    if (original.data != nullptr &&
        std::memcmp(tensors_[i].data, original.data, original.bytes) != 0)
      name_changed();
  }
}

void PluginWeights::name_changed() const {
  std::vector<std::byte> copy;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (originals_[i].data == nullptr) continue;
    copy.resize(tensors_[i].bytes);
    if (cuda_) {
      MKBENCH_CUDA(cudaMemcpy(copy.data(), tensors_[i].data, copy.size(), cudaMemcpyDeviceToHost));
    } else {
      std::memcpy(copy.data(), tensors_[i].data, copy.size());
    }
    if (std::memcmp(copy.data(), originals_[i].data, copy.size()) == 0) continue;
    throw Error(
        ErrorKind::kIntegrity,
        fmt::format("{}: weights: {} was modified; they are read only", who_, tensors_[i].name));
  }
  throw Error(ErrorKind::kIntegrity,
              fmt::format("{}: weights: memory between the tensors was written", who_));
}

GuardedBuffer::GuardedBuffer(std::string what, bool cuda, size_t canary_bytes)
    : what_(std::move(what)),
      cuda_(cuda),
      canary_(round_up(std::max<size_t>(canary_bytes, 1), kPage)) {}

GuardedBuffer::~GuardedBuffer() { release(); }

void GuardedBuffer::release() {
  if (map_ != nullptr) munmap(map_, map_bytes_);
  map_ = nullptr;
}

void GuardedBuffer::allocate(size_t bytes) {
  if (cuda_) {
    device_ = DeviceBuffer<std::byte>(bytes + 2 * canary_);
    MKBENCH_CUDA(cudaMemset(device_.get(), static_cast<int>(kCanary), device_.bytes()));
  } else {
    release();
    const size_t inner = round_up(bytes, kPage) + 2 * canary_;
    map_bytes_ = inner + 2 * kPage;
    void* map = mmap(nullptr, map_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
      throw Error(ErrorKind::kEnvUnfit, fmt::format("{}: {} bytes of memory: {}", what_, map_bytes_,
                                                    std::strerror(errno)));
    }
    map_ = static_cast<std::byte*>(map);
    if (mprotect(map_ + kPage, inner, PROT_READ | PROT_WRITE) != 0) {
      throw Error(ErrorKind::kEnvUnfit,
                  fmt::format("{}: mprotect: {}", what_, std::strerror(errno)));
    }
    std::fill_n(map_ + kPage, inner, kCanary);
  }
  room_ = bytes;
  bytes_ = 0;
}

void* GuardedBuffer::prepare(size_t bytes) {
  if (bytes > room_) allocate(bytes);
  std::byte* payload = nullptr;
  if (cuda_) {
    payload = device_.get() + canary_;
    // Bytes that only an earlier, longer call used become canary again.
    if (bytes < bytes_) {
      MKBENCH_CUDA(cudaMemset(payload + bytes, static_cast<int>(kCanary), bytes_ - bytes));
    }
    MKBENCH_CUDA(cudaMemset(payload, static_cast<int>(kPoison), bytes));
  } else {
    payload = map_ + kPage + canary_;
    if (bytes < bytes_) std::fill_n(payload + bytes, bytes_ - bytes, kCanary);
    std::fill_n(payload, bytes, kPoison);
  }
  bytes_ = bytes;
  return payload;
}

void GuardedBuffer::collect(void* out) {
  const std::byte* front = nullptr;
  if (cuda_) {
    copy_.resize(bytes_ + 2 * canary_);  // a single copy costs about the latency of one launch
    MKBENCH_CUDA(cudaMemcpy(copy_.data(), device_.get(), copy_.size(), cudaMemcpyDeviceToHost));
    front = copy_.data();
  } else {
    front = map_ + kPage;
  }
  std::memcpy(out, front + canary_, bytes_);
  check(front, "before");
  check(front + canary_ + bytes_, "after");
}

void GuardedBuffer::check(const std::byte* canary, const char* where) {
  const std::byte* end = canary + canary_;
  const std::byte* changed = std::find_if(canary, end, [](std::byte b) { return b != kCanary; });
  if (changed == end) return;
  const auto at = static_cast<size_t>(changed - canary);
  const size_t distance = *where == 'b' ? canary_ - at : at;
  room_ = 0;  // the next prepare() makes new canaries
  throw Error(ErrorKind::kIntegrity,
              fmt::format("{}: {} bytes were asked for, memory {} bytes {} them was written", what_,
                          bytes_, distance, where));
}

}  // namespace mkbench
