#include "harness/plugin/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "harness/plugin/checksum.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

constexpr size_t kAlignment = 256;  // of every tensor, as mkbench_tensor promises
constexpr size_t kPage = 4096;
constexpr std::byte kCanary{0xa5}, kPoison{0xff};

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

size_t bytes_of(const NamedTensor& t) {
  return 2 * static_cast<size_t>(t.rows) * static_cast<size_t>(t.cols);
}

bool is_alias(const NamedTensor& t, const ModelConfig& config) {
  return config.tie_word_embeddings && t.global == &ModelWeights::lm_head;
}

}  // namespace

PluginWeights::PluginWeights(std::string who, const ModelWeights& weights, bool cuda)
    : who_(std::move(who)), weights_(weights), cuda_(cuda), table_(tensor_table(weights.config)) {
  check_shapes(weights_, who_);
  const auto lines = static_cast<size_t>(bytes(weights_.config)) / sizeof(Line);
  if (cuda_) {
    device_ = DeviceBuffer<Line>(lines);
    // The checksum covers the gaps between tensors, too.
    MKBENCH_CUDA(cudaMemset(device_.get(), 0, device_.bytes()));
  } else {
    host_.resize(lines);
  }
  copy_in();
  if (cuda_) checksum_ = device_checksum(device_.get(), device_.bytes() / 8);
}

int64_t PluginWeights::bytes(const ModelConfig& config) {
  size_t sum = 0;
  for (const NamedTensor& t : tensor_table(config)) {
    if (!is_alias(t, config)) sum += round_up(bytes_of(t), kAlignment);
  }
  return static_cast<int64_t>(sum);
}

std::byte* PluginWeights::base() { return cuda_ ? device_.get()->bytes : host_.data()->bytes; }

void PluginWeights::copy_in() {
  std::byte* to = base();
  for (const NamedTensor& t : table_) {
    mkbench_tensor tensor{};
    tensor.size = sizeof tensor;
    tensor.name = t.name.c_str();
    tensor.bytes = bytes_of(t);
    tensor.rank = t.is_vector ? 1 : 2;
    std::fill(std::begin(tensor.shape), std::end(tensor.shape), 1);
    tensor.shape[0] = t.is_vector ? t.cols : t.rows;
    if (!t.is_vector) tensor.shape[1] = t.cols;
    tensor.dtype = MKBENCH_BF16;
    if (is_alias(t, weights_.config)) {
      tensor.data = tensors_.front().data;  // the first tensor of the table is the embedding
    } else {
      const Matrix& from = tensor_of(weights_, t);
      tensor.data = to;
      if (cuda_) {
        MKBENCH_CUDA(cudaMemcpy(to, from.data, from.bytes(), cudaMemcpyHostToDevice));
      } else {
        std::memcpy(to, from.data, from.bytes());
      }
      to += round_up(from.bytes(), kAlignment);
    }
    tensors_.push_back(tensor);
  }
}

void PluginWeights::check() const {
  if (cuda_) {
    if (device_checksum(device_.get(), device_.bytes() / 8) != checksum_) name_changed();
    return;
  }
  for (size_t i = 0; i < table_.size(); ++i) {
    if (is_alias(table_[i], weights_.config)) continue;
    if (std::memcmp(tensors_[i].data, tensor_of(weights_, table_[i]).data, tensors_[i].bytes) != 0)
      name_changed();
  }
}

void PluginWeights::name_changed() const {
  std::vector<std::byte> copy;
  for (size_t i = 0; i < table_.size(); ++i) {
    copy.resize(tensors_[i].bytes);
    if (cuda_) {
      MKBENCH_CUDA(cudaMemcpy(copy.data(), tensors_[i].data, copy.size(), cudaMemcpyDeviceToHost));
    } else {
      std::memcpy(copy.data(), tensors_[i].data, copy.size());
    }
    if (std::memcmp(copy.data(), tensor_of(weights_, table_[i]).data, copy.size()) == 0) continue;
    throw Error(
        ErrorKind::kIntegrity,
        fmt::format("{}: weights: {} was modified; they are read only", who_, table_[i].name));
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
