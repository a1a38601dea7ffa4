// A model in device memory with row-major weights. The upload of every CUDA engine begins with it.
#pragma once

#include "kernels/device_buffer.h"
#include "kernels/weight_layout.h"
#include "references/base/bf16.h"
#include "references/config.h"
#include "references/engine.h"

namespace mkbench {

struct ModelWeights;

struct DeviceModel {
  DeviceBuffer<Bf16> layers;      // slabs, see LayerLayout
  DeviceBuffer<Bf16> embed;       // (vocab, hidden)
  DeviceBuffer<Bf16> head;        // (vocab, hidden); empty when tied
  DeviceBuffer<Bf16> final_norm;  // (hidden)
  DeviceBuffer<RopePair> rope;    // (max_context, head_dim / 2)
};

// bf16 values in device memory as kernels take them: 16 raw bits each.
inline const unsigned short* raw_bits(const DeviceBuffer<Bf16>& b) {
  return reinterpret_cast<const unsigned short*>(b.get());
}

// Bytes of device memory that upload_model() allocates.
int64_t device_model_bytes(const ModelConfig& config, int max_context);

// Throws Error(kEnvUnfit) when memory does not suffice, Error(kCuda).
DeviceModel upload_model(const ModelWeights& weights, int max_context, PlantedFault fault);

}  // namespace mkbench
