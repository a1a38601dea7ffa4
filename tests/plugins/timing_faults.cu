// The faults of timing (timing_faults.h) around naive_cuda.cu.
#define mkbench_engine_table sound_engine_table
#include "tests/plugins/naive_cuda.cu"
#undef mkbench_engine_table

namespace timing_faults {

std::vector<int32_t> read_ids(const int32_t* ids, int32_t n) {
  std::vector<int32_t> values(static_cast<size_t>(n));
  MKBENCH_STEP_CUDA(cudaMemcpy(values.data(), ids, 4 * values.size(), cudaMemcpyDeviceToHost));
  return values;
}
void write_ids(int32_t* ids, const std::vector<int32_t>& values) {
  MKBENCH_STEP_CUDA(cudaMemcpy(ids, values.data(), 4 * values.size(), cudaMemcpyHostToDevice));
}
mkbench_step::Frame<Naive>& frame(const mkbench_engine* e) {
  return mkbench_step::frame<Naive>(const_cast<mkbench_engine*>(e));
}
int32_t max_context_of(const mkbench_engine* e) { return frame(e).max_context; }
int32_t position_of(const mkbench_engine* e) { return frame(e).position; }
int32_t pending_of(const mkbench_engine* e) { return read_ids(frame(e).pending(), 1).front(); }
void stand_at(mkbench_engine* e, int32_t position, int32_t pending) {
  frame(e).go_to(position);
  frame(e).set_pending(&pending);
}
int32_t* scratch_ids() {
  static const auto ids = mkbench_step::make<int32_t>(64);
  return ids.get();
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
  const Naive& engine = frame(e).step;
  const size_t count = size_t(args->n) * engine.kv_width;
  for (int i = 0; i < engine.m.layers; ++i) {
    const size_t begin =
        (size_t(i) * engine.max_context + position_of(e) - args->n) * engine.kv_width;
    for (Bf16* rows : {engine.keys.get(), engine.values.get()})
      round_rows<<<blocks_for(int(count)), kThreads>>>(rows + begin, count);
  }
  return status;
}

// T4: the weight of the last layer's k_norm is left out.
int32_t decode_without_norm(mkbench_engine* e, const mkbench_decode* args) {
  if (!timed(args)) return sound->decode(e, args);
  Naive& engine = frame(e).step;
  static const auto ones = mkbench_step::make<Bf16>(engine.m.head_dim);
  const std::vector<Bf16> one(engine.m.head_dim, __float2bfloat16(1.0f));
  mkbench_step::copy(ones.get(), one.data(), sizeof(Bf16) * one.size());
  const Bf16*& norm = engine.w.layers.back().k_norm;
  const Bf16* weight = std::exchange(norm, ones.get());
  const int32_t status = sound->decode(e, args);
  norm = weight;
  return status;
}

// T8: the last 5 % of the LM head's rows are not read.
int32_t decode_part_of_the_head(mkbench_engine* e, const mkbench_decode* args) {
  mkbench_model& m = frame(e).step.m;
  const int32_t rows = m.vocab;
  if (timed(args)) m.vocab -= rows / 20;
  const int32_t status = sound->decode(e, args);
  m.vocab = rows;
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
