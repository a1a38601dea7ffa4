// The faults of timing (timing_faults.h) around naive_cpu.cpp.
#define mkbench_engine_table sound_engine_table
#include "tests/plugins/naive_cpu.cpp"
#undef mkbench_engine_table

namespace timing_faults {

int32_t max_context_of(const mkbench_engine* e) { return e->max_context; }
int32_t position_of(const mkbench_engine* e) { return e->position; }
int32_t pending_of(const mkbench_engine* e) { return e->pending; }
void stand_at(mkbench_engine* e, int32_t position, int32_t pending) {
  e->position = position;
  e->pending = pending;
}
std::vector<int32_t> read_ids(const int32_t* ids, int32_t n) { return {ids, ids + n}; }
void write_ids(int32_t* ids, const std::vector<int32_t>& values) {
  std::copy(values.begin(), values.end(), ids);
}
int32_t* scratch_ids() {
  static int32_t ids[64];
  return ids;
}

}  // namespace timing_faults

#include "tests/plugins/timing_faults.h"

namespace timing_faults {

// T4: K and V that the timed run leaves have 3 bits of mantissa.
void round_rows(std::vector<float>& rows, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    uint32_t bits;
    std::memcpy(&bits, &rows[i], sizeof bits);
    bits &= 0xfff00000u;
    std::memcpy(&rows[i], &bits, sizeof bits);
  }
}
int32_t decode_to_few_bits(mkbench_engine* e, const mkbench_decode* args) {
  const int32_t status = sound->decode(e, args);
  if (!timed(args)) return status;
  const size_t width = size_t(e->m.kv_heads) * e->m.head_dim;
  for (Layer& layer : e->layers) {
    for (Vector* rows : {&layer.keys, &layer.values})
      round_rows(*rows, (e->position - args->n) * width, e->position * width);
  }
  return status;
}

// T4: the weight of the last layer's k_norm is left out.
int32_t decode_without_norm(mkbench_engine* e, const mkbench_decode* args) {
  if (!timed(args)) return sound->decode(e, args);
  static const std::vector<uint16_t> ones(e->m.head_dim, 0x3f80);
  Matrix& norm = e->layers.back().k_norm;
  const uint16_t* weight = std::exchange(norm.data, ones.data());
  const int32_t status = sound->decode(e, args);
  norm.data = weight;
  return status;
}

// T4: half of the heads are left out of attention.
int32_t decode_half_of_the_heads(mkbench_engine* e, const mkbench_decode* args) {
  const int half = timed(args) ? 2 : 1;
  e->m.heads /= half, e->m.kv_heads /= half;
  const int32_t status = sound->decode(e, args);
  e->m.heads *= half, e->m.kv_heads *= half;
  return status;
}

// T8: the last 5 % of the LM head's rows are not read.
int32_t decode_part_of_the_head(mkbench_engine* e, const mkbench_decode* args) {
  const int rows = e->head.rows;
  if (timed(args)) e->head.rows -= rows / 20;
  const int32_t status = sound->decode(e, args);
  e->head.rows = rows;
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
                     {"half_the_heads", [](Table& t) { t.decode = decode_half_of_the_heads; }},
                     {"part_of_the_head", [](Table& t) { t.decode = decode_part_of_the_head; }}});
  return table;
}
