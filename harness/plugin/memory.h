// Memory that mkbench shares with a plugin: weights, which the plugin must not change, and output
// buffers, outside of which the plugin must not write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/device_buffer.h"
#include "references/engine_abi.h"
#include "references/model/weights.h"

namespace mkbench {

// A copy of a model's tensors that only a plugin uses, in host memory or on the current GPU.
class PluginWeights {
 public:
  // Error messages begin with `who`. Throws Error(kEnvUnfit) if memory does not suffice, or
  // Error(kCuda).
  PluginWeights(std::string who, const ModelWeights& weights, bool cuda);

  // The tensors, with Hugging Face's names; a tied head shares the embedding's memory. An outline's
  // are those of its files, by name.
  const std::vector<mkbench_tensor>& tensors() const { return tensors_; }
  // Throws Error(kIntegrity), naming the first tensor whose bytes have changed, or Error(kBadInput),
  // naming the model's file that was written to meanwhile.
  void check() const;

 private:
  struct alignas(256) Line {
    std::byte bytes[256];
  };
  void list_table();
  void list_stored();
  void copy_in(std::byte* to);
  [[noreturn]] void name_changed() const;

  std::string who_;
  ModelWeights weights_;  // the original, with which the copy is compared
  const bool cuda_;
  std::vector<NamedTensor> table_;         // of a model that is no outline
  std::vector<mkbench_tensor> originals_;  // in weights_; data is null for a tied head
  std::vector<Line> host_;
  DeviceBuffer<Line> device_;
  uint64_t checksum_ = 0;  // over device_
  std::vector<mkbench_tensor> tensors_;
};

// A buffer with a canary in front of it and behind it. On a CPU inaccessible pages lie beyond the
// canaries, so that a stray write does not reach other memory of the process.
class GuardedBuffer {
 public:
  // Error messages name the buffer `what`; canaries are at least `canary_bytes` long.
  GuardedBuffer(std::string what, bool cuda, size_t canary_bytes);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  // Makes room for `bytes` and sets all their bits: -1 as an id, NaN as a number.
  void* prepare(size_t bytes);
  // Copies all bytes of the last prepare() to `out`, then throws Error(kIntegrity) if a canary has
  // changed. The device must have finished its work.
  void collect(void* out);

 private:
  void allocate(size_t bytes);
  void release();
  void check(const std::byte* canary, const char* where);

  const std::string what_;
  const bool cuda_;
  const size_t canary_;       // a whole number of pages
  size_t bytes_ = 0;          // asked for by the last prepare()
  size_t room_ = 0;           // bytes that fit
  std::byte* map_ = nullptr;  // host: guard page, canary, room, canary, guard page
  size_t map_bytes_ = 0;
  DeviceBuffer<std::byte> device_;  // canary, room, canary
  std::vector<std::byte> copy_;     // device_ as last read back
};

}  // namespace mkbench
