// What a fault planted in the host twin makes of a phase's arithmetic. Without a fault each of
// these is the sound expression, so the phases read as they would without them.
#pragma once

#include "kernels/host_twin/phases.h"
#include "kernels/partition.h"

namespace mkbench::host_twin {

inline bool planted(const Block& b, PlantedFault fault) { return b.model->fault == fault; }

// x[0 .. n) rounded to bf16 where HF's modules round; only with kHfRounding.
void round_as_hf(const Block& b, float* x, int n);

// y = W x for `rows` rows [rows, cols].
void matvec(const Block& b, const Bf16* w, int rows, int cols, const float* x, float* y);

// exp(x); with kFastExp to the precision of a GPU's approximation.
float exponential(const Block& b, float x);

// The activation of the gate.
float activation(const Block& b, float gate);

// The position by whose angles a query or key at `position` is rotated.
int rotary_position(const Block& b, int position, bool is_query);

// The KV row that the position's K and V are written to; -1: to none.
int written_row(const Block& b, int position);

// As it is stored in the KV cache.
Bf16 stored(const Block& b, float x);

// Positions that attention reads at `position`: all up to and including it.
int context_at(const Block& b, int position);

// Scores of positions [from, from + count) that attention leaves out get -infinity.
void leave_out(const Block& b, int from, int count, float* scores);

// One past the last row of the vocabulary that is scored.
int scored_rows(const Block& b);

// Winner of `rows`, whose logits are given: the largest, the lowest id
// among equals.
Best winner(const Block& b, const float* logits, Range rows);

// True when `a` goes before `other`: larger, or as large with a lower index.
bool better(const Block& b, Best a, Best other);

// The block whose winner is read one step too soon with kArgmaxEarly; one that owns letters in the
// tiny checkpoints.
inline int early_block(const Block& b) { return b.blocks * 3 / 8; }

}  // namespace mkbench::host_twin
