// Device memory of the words through which the blocks of a launch exchange results (exchange.cuh).
#pragma once

#include <vector>

#include "kernels/device_buffer.h"
#include "kernels/ring/exchange_layout.h"

namespace mkbench::ring {

class ExchangeWords {
 public:
  explicit ExchangeWords(const ModelShape& shape)
      : layout_(exchange_layout(shape)), memory_(layout_.bytes) {}

  // Queues the zeroing that must precede every launch.
  void zero() { MKBENCH_CUDA(cudaMemsetAsync(memory_.get(), 0, memory_.bytes())); }
  // Sets all bits, so that a launch without zero() before it fails.
  void poison() { MKBENCH_CUDA(cudaMemset(memory_.get(), 0xff, memory_.bytes())); }

  // The fault of the last launch, 0 for none.
  unsigned long long fault() const {
    unsigned long long word = 0;
    MKBENCH_CUDA(cudaMemcpy(&word, at<unsigned long long>(layout_.fault), sizeof(word),
                            cudaMemcpyDeviceToHost));
    return word;
  }

  // All words as they are now, at the places of exchange_layout(). Waits for the stream.
  std::vector<char> read() const {
    std::vector<char> words(memory_.bytes());
    MKBENCH_CUDA(cudaMemcpy(words.data(), memory_.get(), words.size(), cudaMemcpyDeviceToHost));
    return words;
  }
  const char* get() const { return memory_.get(); }
  const ExchangeLayout& layout() const { return layout_; }
  // PlantedFault::kWordsReset: zeroes all words but the fault while a launch runs, on another stream.
  void reset_within(cudaStream_t other) const {
    MKBENCH_CUDA(cudaMemsetAsync(memory_.get(), 0, layout_.fault, other));
  }

  void fill(LaunchParams& p) const {
    p.qkv = at<unsigned>(layout_.qkv);
    p.swiglu = at<unsigned>(layout_.swiglu);
    p.partials = at<unsigned>(layout_.partials);
    p.score_maxima = at<unsigned>(layout_.score_maxima);
    p.best = at<unsigned>(layout_.best);
    p.rows_written = at<unsigned>(layout_.rows_written);
    p.attention_out = at<unsigned long long>(layout_.attention_out);
    p.mlp_out = at<unsigned long long>(layout_.mlp_out);
    p.fault = at<unsigned long long>(layout_.fault);
  }

 private:
  template <typename T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(memory_.get() + offset);
  }

  const ExchangeLayout layout_;
  DeviceBuffer<char> memory_;
};

}  // namespace mkbench::ring
