// The faults of timing (timing_faults.h) around naive_cuda.cu.
#define mkbench_engine_table sound_engine_table
#include "tests/plugins/naive_cuda.cu"
#undef mkbench_engine_table

namespace timing_faults {

std::vector<int32_t> read_ids(const int32_t* ids, int32_t n) {
  std::vector<int32_t> values(static_cast<size_t>(n));
  CHECK(cudaMemcpy(values.data(), ids, 4 * values.size(), cudaMemcpyDeviceToHost));
  return values;
}
void write_ids(int32_t* ids, const std::vector<int32_t>& values) {
  CHECK(cudaMemcpy(ids, values.data(), 4 * values.size(), cudaMemcpyHostToDevice));
}
int32_t pending_of(const mkbench_engine* e) { return read_ids(e->pending.data, 1).front(); }
void stand_at(mkbench_engine* e, int32_t position, int32_t pending) {
  e->position = position;
  write_ids(e->pending.data, {pending});
}
int32_t* scratch_ids() {
  static const Buffer<int32_t> ids(64);
  return ids.data;
}

}  // namespace timing_faults

#include "tests/plugins/timing_faults.h"

namespace timing_faults {

// T4: K and V that the timed run leaves have 3 bits of mantissa.
__global__ void round_rows(Bf16* rows, size_t n) {
  const size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  if (i < n) rows[i] = __ushort_as_bfloat16(__bfloat16_as_ushort(rows[i]) & 0xfff0u);
}
int32_t decode_to_few_bits(mkbench_engine* e, const mkbench_decode* args) {
  const int32_t status = sound->decode(e, args);
  if (!timed(args)) return status;
  const size_t count = size_t(args->n) * e->kv_width;
  for (size_t i = 0; i < e->layers.size(); ++i) {
    const size_t begin = (i * e->max_context + e->position - args->n) * e->kv_width;
    for (Bf16* rows : {e->keys.data, e->values.data})
      round_rows<<<blocks_for(int(count)), kThreads>>>(rows + begin, count);
  }
  return status;
}

// T4: the weight of the last layer's k_norm is left out.
int32_t decode_without_norm(mkbench_engine* e, const mkbench_decode* args) {
  if (!timed(args)) return sound->decode(e, args);
  static const Buffer<Bf16> ones(e->m.head_dim);
  const std::vector<Bf16> one(e->m.head_dim, __float2bfloat16(1.0f));
  CHECK(cudaMemcpy(ones.data, one.data(), sizeof(Bf16) * one.size(), cudaMemcpyHostToDevice));
  const Bf16*& norm = e->layers.back().k_norm;
  const Bf16* weight = std::exchange(norm, ones.data);
  const int32_t status = sound->decode(e, args);
  norm = weight;
  return status;
}

// T8: the last 5 % of the LM head's rows are not read.
int32_t decode_part_of_the_head(mkbench_engine* e, const mkbench_decode* args) {
  const int32_t rows = e->m.vocab;
  if (timed(args)) e->m.vocab -= rows / 20;
  const int32_t status = sound->decode(e, args);
  e->m.vocab = rows;
  return status;
}

}  // namespace timing_faults

extern "C" MKBENCH_ENGINE_EXPORT const mkbench_engine_abi* mkbench_engine_table() {
  using namespace timing_faults;
  using Table = mkbench_engine_abi;
  static const mkbench_engine_abi* const table =
      changed_table(sound_engine_table(), reinterpret_cast<const void*>(&mkbench_engine_table),
                    {{"few_bits", [](Table& t) { t.decode = decode_to_few_bits; }},
                     {"no_norm", [](Table& t) { t.decode = decode_without_norm; }},
                     {"part_of_the_head", [](Table& t) { t.decode = decode_part_of_the_head; }}});
  return table;
}
