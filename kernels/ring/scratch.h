// Device memory of the words through which the blocks of a launch exchange results (exchange.cuh).
#pragma once

#include "kernels/device_buffer.h"
#include "kernels/ring/params.h"

namespace mkbench::ring {

// Bytes from the allocation's start to each array. It is one allocation, because values, epochs and
// fault word must start together: every launch begins with all of it zero. Arrays start at
// multiples of 256 bytes; their shapes are in LaunchParams.
struct ExchangeLayout {
  size_t qkv, swiglu, partials, score_maxima, best, rows_written, attention_out, mlp_out, fault,
      bytes;
};

constexpr ExchangeLayout exchange_layout() {
  constexpr size_t kWide = 16;  // bytes of a word that holds several values
  size_t end = 0;
  const auto place = [&end](size_t bytes) {
    const size_t at = end;
    end += (bytes + 255) / 256 * 256;
    return at;
  };
  ExchangeLayout at{};
  at.qkv = place(size_t{kBlocks} * kQkvRows * 4);
  at.swiglu = place(size_t{kBlocks} * 32 * 4);
  at.partials = place(size_t{kGroups} * kConsumerWarps * kMembers * 4 * kWide);
  at.score_maxima = place(size_t{kGroups} * kMembers * kWide);
  at.best = place(size_t{kBlocks} * kWide);
  at.rows_written = place(size_t{kGroups} * kMembers * 4);
  at.attention_out = place(size_t{kReplicas} * kHidden * 8);
  at.mlp_out = place(size_t{kReplicas} * kHidden * 8);
  at.fault = place(8);
  at.bytes = end;
  return at;
}

class ExchangeWords {
 public:
  ExchangeWords() : memory_(kLayout.bytes) {}
  static constexpr int64_t bytes() { return static_cast<int64_t>(kLayout.bytes); }

  // Queues the zeroing that must precede every launch.
  void zero() { MKBENCH_CUDA(cudaMemsetAsync(memory_.get(), 0, memory_.bytes())); }
  // Sets all bits: a launch that does not zero the words first fails.
  void poison() { MKBENCH_CUDA(cudaMemset(memory_.get(), 0xff, memory_.bytes())); }

  // The fault of the last launch, 0 for none.
  unsigned long long fault() const {
    unsigned long long word = 0;
    MKBENCH_CUDA(cudaMemcpy(&word, at<unsigned long long>(kLayout.fault), sizeof(word),
                            cudaMemcpyDeviceToHost));
    return word;
  }

  void fill(LaunchParams& p) const {
    p.qkv = at<unsigned>(kLayout.qkv);
    p.swiglu = at<unsigned>(kLayout.swiglu);
    p.partials = at<unsigned>(kLayout.partials);
    p.score_maxima = at<unsigned>(kLayout.score_maxima);
    p.best = at<unsigned>(kLayout.best);
    p.rows_written = at<unsigned>(kLayout.rows_written);
    p.attention_out = at<unsigned long long>(kLayout.attention_out);
    p.mlp_out = at<unsigned long long>(kLayout.mlp_out);
    p.fault = at<unsigned long long>(kLayout.fault);
  }

 private:
  static constexpr ExchangeLayout kLayout = exchange_layout();
  template <typename T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(memory_.get() + offset);
  }

  DeviceBuffer<char> memory_;
};

}  // namespace mkbench::ring
