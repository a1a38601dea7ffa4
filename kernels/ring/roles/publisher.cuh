// The publisher: one warp that sums the consumers' partial results, publishes them to other blocks,
// and chooses the token. A role of its own, so that the consumers can fetch the next weights while
// the words travel.
//   qkv     q, k, v = row sums / rms(h)
//   O       attention_out += row sums
//   SwiGLU  swiglu = silu(gate) up, gate and up = row sums / rms(h)
//   down    mlp_out += row sums
//   token   argmax over the best rows of all blocks
// Reads   Shared::partials, squares; best of all blocks; inputs.
// Writes  qkv, swiglu, attention_out, mlp_out, best; Shared::token, ended; block 0 also outputs,
//         token_ns, cycles, progress.
// In a held shape a lane takes one row (QKV), two rows (O, down) or one unit (SwiGLU, 24 lanes).
#pragma once

#include "kernels/best_key.cuh"
#include "kernels/ring/exchange.cuh"
#include "kernels/timeline_record.cuh"

namespace mkbench::ring {

// The sum of a row's 16 partials.
template <typename L>
__device__ __forceinline__ float row_sum(const Shared<L>& s, int turn, int row) {
  const float4* q = reinterpret_cast<const float4*>(s.partials[turn][row]);
  const float4 a = q[0], b = q[1], c = q[2], d = q[3];
  return (((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w))) +
         (((c.x + c.y) + (c.z + c.w)) + ((d.x + d.y) + (d.z + d.w)));
}

template <RingAblation kAblation>
using PublisherTrack = TrackWriter<kAblation == RingAblation::kRecorded>;

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void publish_held_layer(const LaunchParams& p, Shared<L>& s,
                                                   const Block& block, int lane, int layer,
                                                   int position, unsigned epoch, int& turn,
                                                   bool stalls, PublisherTrack<kAblation>& track) {
  auto begin = [&](Phase phase) {
    track.enter(SpanKind::kHandOff, phase, layer, position - p.position);
    ptx::named_sync<kOneMore>(kPartials + turn);
    track.mark(SpanKind::kBody);
  };
  auto partials_read = [&] {
    ptx::named_arrive<kOneMore>(kPartialsRead);
    turn ^= 1;
  };
  const int first_row = L::kOutRows * block.member() + lane;

  begin(Phase::kQkv);
  const float x = row_sum(s, turn, lane), squares_of_qkv = square_sum(s, turn);
  const float scaled = x * norm_scale<L>(p, squares_of_qkv);
  if (!stalls) publish_word(p.qkv + block.index * L::kQkvRows + lane, scaled, epoch);
  partials_read();

  begin(Phase::kOProj);
  const float o0 = row_sum(s, turn, lane), o1 = row_sum(s, turn, lane + 32);
  publish_contribution<L, kAblation>(p, {Phase::kOProj, layer, position}, p.attention_out,
                                     first_row, o0, first_row + 32, o1);
  partials_read();

  begin(Phase::kGateUp);  // and SwiGLU
  const int unit = lane < L::kUnits ? lane : 0;
  const float gate_sum = row_sum(s, turn, unit), up_sum = row_sum(s, turn, L::kUnits + unit);
  const float squares = square_sum(s, turn);
  const float scale = norm_scale<L>(p, squares), gate = gate_sum * scale, up = up_sum * scale;
  const float swiglu = __fdividef(gate * up, 1.0f + __expf(-gate));
  if (lane < L::kUnits) publish_word(p.swiglu + block.index * 32 + lane, swiglu, epoch);
  partials_read();

  begin(Phase::kDown);
  const float d0 = row_sum(s, turn, lane), d1 = row_sum(s, turn, lane + 32);
  publish_contribution<L, kAblation>(p, {Phase::kDown, layer, position}, p.mlp_out, first_row, d0,
                                     first_row + 32, d1);
  partials_read();
}

// --- publishing in a streamed shape, round by round

// The sum of a row's 8 partials from one half of the warps.
template <typename L>
__device__ __forceinline__ float half_row_sum(const Shared<L>& s, int turn, int row, int half) {
  const float4* q = reinterpret_cast<const float4*>(s.partials[turn][row]) + 2 * half;
  const float4 a = q[0], b = q[1];
  return ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
}

// The publisher of a streamed shape.
template <typename L, RingAblation kAblation>
struct RoundPublisher {
  const LaunchParams& p;
  Shared<L>& s;
  const Block& block;
  const int lane;
  int& turn;

  __device__ __forceinline__ void begin() const { ptx::named_sync<kOneMore>(kPartials + turn); }
  __device__ __forceinline__ void partials_read() const {
    __syncwarp();
    ptx::named_arrive<kOneMore>(kPartialsRead);
    turn ^= 1;
  }

  __device__ __forceinline__ void qkv(unsigned epoch, bool stalls) const {
    begin();
    const float scale = norm_scale<L>(p, square_sum(s, turn));
#pragma unroll
    for (int i = 0; i < (L::kQkvRows + 31) / 32; ++i) {
      const int row = lane + 32 * i;
      if (row >= L::kQkvRows) continue;
      const float x = row_sum(s, turn, row) * scale;
      if (!stalls) publish_word(p.qkv + block.index * L::kQkvRows + L::qkv_word(row), x, epoch);
    }
    partials_read();
  }

  // A round of O or down: a lane sums rows lane, lane + 32, .. and adds them to all replicas, as
  // publish_contribution() does.
  template <Rounds kRound>
  __device__ __forceinline__ void add_rows(const Site& at, FixedWord* accumulator,
                                           int first_row) const {
    constexpr int kRows = kRound.rows() * kRound.parts;
    bool fits = true;
#pragma unroll 2
    for (int row = lane; row < kRows; row += 32) {
      const float x = kRound.parts == 1
                          ? row_sum(s, turn, row)
                          : half_row_sum(s, turn, row % kRound.rows(), row / kRound.rows());
      const FixedWord word = fixed_contribution(__float2ll_rn(x * kFixedScale));
#pragma unroll
      for (int r = 0; r < kReplicas; ++r)
        ptx::add_relaxed(accumulator + r * L::kHidden + first_row + row, word);
      fits = fits && fabsf(x) < kFixedLimit;
    }
    if (computes_tokens(kAblation) && !fits) raise(p, kRaisedRange, at, 0, 0);
  }

  template <Rounds kRound>
  __device__ __forceinline__ void rows(const Site& at, FixedWord* accumulator) const {
    int first_row = L::kOutRows * block.member();
#pragma unroll 1
    for (int round = 0; round < kRound.rounds; ++round) {
      begin();
      add_rows<kRound>(at, accumulator, first_row);
      partials_read();
      first_row += kRound.rows() * kRound.parts;
    }
  }

  __device__ __forceinline__ void gate_up(unsigned epoch) const {
    float scale = 0;
#pragma unroll 1
    for (int first = 0; first < L::kUnits; first += L::kRoundUnits) {
      begin();
      if (first == 0) scale = norm_scale<L>(p, square_sum(s, turn));
      const int unit = min(lane, L::kRoundUnits - 1);
      const float gate = row_sum(s, turn, unit) * scale;
      const float up = row_sum(s, turn, L::kRoundUnits + unit) * scale;
      const float swiglu = __fdividef(gate * up, 1.0f + __expf(-gate));
      if (lane < L::kRoundUnits && first + lane < L::kUnits)
        publish_word(p.swiglu + block.index * L::kSwigluStride + first + lane, swiglu, epoch);
      partials_read();
    }
  }

  // The key of a lane's best row of the LM head. The last round is read, but not announced as read:
  // the consumers wait for the token instead.
  __device__ __forceinline__ unsigned long long head(int step) const {
    constexpr int kRows = Rounds{L::kHeadRound}.rows();
    unsigned long long best = 0;
    begin();
    if (step >= p.first_output) {
      const float scale = norm_scale<L>(p, square_sum(s, turn));
      const int rows = L::head_rows(p.vocab), first_row = block.index * rows;
      const int mine = min(rows, p.vocab - first_row);  // 0 or less: no rows
      float* logits = p.logits == nullptr
                          ? nullptr
                          : p.logits + static_cast<size_t>(step - p.first_output) * p.vocab;
#pragma unroll 1
      for (int first = 0;;) {
#pragma unroll
        for (int i = 0; i < (kRows + 31) / 32; ++i) {
          const int row = first + lane + 32 * i;
          if (lane + 32 * i >= kRows || row >= mine) continue;
          const float x = row_sum(s, turn, lane + 32 * i) * scale;
          if (logits != nullptr) logits[first_row + row] = x;
          best = max_key(best, best_key(x, first_row + row));
        }
        first += kRows;
        if (first >= rows) break;
        partials_read();
        begin();
      }
    }
    turn ^= 1;
    __syncwarp();
    return best;
  }
};

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void warp_publish_layer(const LaunchParams& p, Shared<L>& s,
                                                   const Block& block, int lane, int layer,
                                                   int position, unsigned epoch, int& turn,
                                                   PublisherTrack<kAblation>& track) {
  constexpr bool kNeverReturns = kAblation == RingAblation::kDelayed;
  const bool stalls = !kNeverReturns && static_cast<int>(blockIdx.x) == p.stall_block;
  while (kNeverReturns && layer == p.layers - 1 && static_cast<int>(blockIdx.x) == p.stall_block) {
    __nanosleep(1000000);
  }
  if constexpr (!L::kHeld) {
    const RoundPublisher<L, kAblation> rounds{p, s, block, lane, turn};
    rounds.qkv(epoch, stalls);
    rounds.template rows<L::kOutRound>({Phase::kOProj, layer, position}, p.attention_out);
    rounds.gate_up(epoch);
    rounds.template rows<L::kDownRound>({Phase::kDown, layer, position}, p.mlp_out);
  } else {
    publish_held_layer<L, kAblation>(p, s, block, lane, layer, position, epoch, turn, stalls,
                                     track);
  }
}
// The token boundary: every block publishes its best row and reads the best rows of all blocks.
// Returns the next input id, or -1 to end the launch.
template <typename L, RingAblation kAblation>
__device__ __forceinline__ int warp_choose_token(const LaunchParams& p, Shared<L>& s,
                                                 const Block& block, int lane, int step, int& turn,
                                                 PublisherTrack<kAblation>& track) {
  unsigned long long key = 0;
  if constexpr (L::kHeld) {
    track.enter(SpanKind::kHandOff, Phase::kLmHead, -1, step);
    ptx::named_sync<kOneMore>(kPartials + turn);
    track.mark(SpanKind::kBody);
    if (step >= p.first_output && lane < kConsumerWarps) {
      key = best_key(s.partials[turn][0][lane], __float_as_int(s.partials[turn][1][lane]));
    }
    turn ^= 1;
  } else {
    key = RoundPublisher<L, kAblation>{p, s, block, lane, turn}.head(step);
  }
  key = warp_max_key(key);
  const unsigned epoch = static_cast<unsigned>(step) + 1;
  if (lane == 0) {
    ptx::store_relaxed16(
        p.best + 4 * block.index,
        make_uint4(static_cast<unsigned>(key), static_cast<unsigned>(key >> 32), epoch, 0));
  }
  // Polls all words at once: polled one after the other, each would cost a round trip.
  constexpr int kWords = kBlocks / 32;
  uint4 v[kWords];
  track.mark(SpanKind::kExchange);
  warp_wait_until(p, {Phase::kLmHead, p.layers, p.position + step}, epoch, [&](unsigned& seen) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) v[i] = ptx::load_relaxed16(p.best + 4 * (32 * i + lane));
    bool ready = true;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      ready = ready && v[i].z == epoch;
      seen = v[i].z;
    }
    return ready || kAblation == RingAblation::kNoWaits;
  });
  track.mark(SpanKind::kBody);
  key = 0;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    key = max_key(key, static_cast<unsigned long long>(v[i].y) << 32 | v[i].x);
  }
  key = warp_max_key(key);
  int token = static_cast<int>(~static_cast<unsigned>(key));
  if (key == kNanKey || token >= p.vocab) token = -1;  // a logit was NaN, or no row had a logit
  // The ablations compute meaningless logits; any row is taken, so that the launch goes on.
  if (!computes_tokens(kAblation)) token = static_cast<int>(static_cast<unsigned>(token) % p.vocab);
  const bool aborted = any_fault(p);
  if (aborted) token = -1;
  if (block.index == 0 && lane == 0 && step >= p.first_output) {
    p.outputs[step - p.first_output] = token;
  }
  if (step + 1 < p.input_count && !aborted) token = __ldg(p.inputs + step + 1);
  // Lane 0 decides for all: a fault may be raised between two lanes' reads of the fault word.
  return __shfl_sync(~0u, token, 0);
}

template <typename L, RingAblation kAblation>
__device__ __forceinline__ void run_publisher(const LaunchParams& p, Shared<L>& s,
                                              const Block& block) {
  int lane = static_cast<int>(threadIdx.x) & 31;
  asm volatile("" : "+r"(lane));
  const bool keeps_time = block.index == 0 && lane == 0;
  if (keeps_time) p.cycles[0] = ptx::sm_cycles();
  int turn = 0;
  unsigned epoch = 0;
  PublisherTrack<kAblation> track;
  const int number = static_cast<int>(blockIdx.x) * kTracks + kPublisherTrack;
  track.begin(p.timeline, number, lane == 0);
#pragma unroll 1
  for (int step = 0; step < p.steps; ++step) {
    if (keeps_time) {
      p.token_ns[step] = ptx::global_ns();
      ptx::store_system(&p.status->progress_position, p.position + step);
    }
#pragma unroll 1
    for (int layer = 0; layer < p.layers; ++layer) {
      epoch = next_epoch(epoch);
      warp_publish_layer<L, kAblation>(p, s, block, lane, layer, p.position + step, epoch, turn,
                                       track);
    }
    const int token = warp_choose_token<L, kAblation>(p, s, block, lane, step, turn, track);
    if (lane == 0) {
      s.token = token;
      if (token < 0) s.ended = 1;
    }
    ptx::named_arrive<kOneMore>(kTokenDone);
    ptx::named_arrive<kTwoRoles>(kTokenSeen);
    if (token < 0) break;
  }
  track.end(number);
  if (keeps_time) {
    p.token_ns[p.steps] = ptx::global_ns();
    p.cycles[1] = ptx::sm_cycles();
  }
}

}  // namespace mkbench::ring
