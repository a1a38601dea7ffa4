// The weights in the order in which the ring megakernel reads them, made on the device from a
// DeviceModel.
#pragma once

#include "kernels/device_model.h"
#include "kernels/ring/layout.h"

namespace mkbench::ring {

struct StreamedModel {
  DeviceBuffer<char> stream;    // slots, see slot_offset(); padding is zero
  DeviceBuffer<Bf16> norms;     // (2 * layers + 1, hidden): input, post-attention, .., final
  DeviceBuffer<Bf16> qk_norms;  // (layers, 2, head_dim): q, k
};

// Bytes of device memory that repack() allocates.
int64_t streamed_model_bytes(const ModelShape& shape);

// Repacks a model whose layers have a layout (rows.h). Synchronous. Throws
// Error(kEnvUnfit) when memory does not suffice, Error(kCuda) when a CUDA call fails otherwise.
StreamedModel repack(const DeviceModel& model, const ModelShape& shape);

}  // namespace mkbench::ring
