// The exchange protocols, each as one round among all blocks: publish this block's share of a
// vector, wait for everybody's, leave it in shared memory. The words, stores and waits are those of
// the megakernels; only {fp32, epoch} words are this file's own.
//
// Element e of round r has a value that every reader can check: check_value(e, r).
#pragma once

#include "harness/micro/exchange_params.h"
#include "kernels/plain/exchange.cuh"
#include "kernels/ring/exchange.cuh"

namespace mkbench::micro {

struct Shared {
  unsigned expected;  // GridExchange's two
  int wait_ok;
  float2 vector[kExchangeThreads];
};

// Small integers: exact in every format, and sums of eight of them too.
__device__ __forceinline__ float check_value(unsigned element, unsigned round) {
  return static_cast<float>((element * 5 + round * 3) & 127u);
}

template <typename T>
__device__ __forceinline__ T* array_of(const ExchangeParams& p, unsigned round) {
  return reinterpret_cast<T*>(p.words + (round & 1) * kArrayBytes);
}

// 8 bits, never 0, and different from that of round - 2.
__device__ __forceinline__ unsigned epoch8(unsigned round) { return 1 + round % 255; }

__device__ __forceinline__ ring::Site site_of(unsigned round) {
  return {Phase::kEmbed, 0, static_cast<int>(round)};
}

// Keeps two elements; whether they are right.
__device__ __forceinline__ bool keep_pair(Shared& s, unsigned first, unsigned second, float2 found,
                                          unsigned round) {
  s.vector[threadIdx.x] = found;
  return found.x == check_value(first, round) && found.y == check_value(second, round);
}

// Where a block is in the ring's grid.
struct Place {
  int group = ring::group_of(static_cast<int>(blockIdx.x));
  int member = ring::member_of(static_cast<int>(blockIdx.x));
};

__device__ __forceinline__ Range share_of_vector() {
  return partition(kVectorSize, static_cast<int>(gridDim.x), static_cast<int>(blockIdx.x));
}

// The plain megakernel's: write, one arrival a block, wait for all arrivals, read.
struct CounterExchange {
  __device__ __forceinline__ bool round(const ExchangeParams& p, Shared& s, unsigned r) {
    const plain::GridExchange x{p.plain};
    float* vector = array_of<float>(p, r);
    const Range mine = share_of_vector();
    if (threadIdx.x < 32) {
      for (int e = mine.begin + static_cast<int>(threadIdx.x); e < mine.end; e += 32)
        vector[e] = check_value(static_cast<unsigned>(e), r);
      x.warp_arrive(s);
    }
    if (!x.block_wait(s, Phase::kEmbed, 0, static_cast<int>(r))) return false;
    const float2 v = ptx::load_l2(reinterpret_cast<const float2*>(vector) + threadIdx.x);
    return keep_pair(s, 2 * threadIdx.x, 2 * threadIdx.x + 1, v, r);
  }
};

// {fp32, epoch}: the load that sees the epoch has the value.
struct Epoch64Exchange {
  using Word = unsigned long long;

  __device__ __forceinline__ bool round(const ExchangeParams& p, Shared& s, unsigned r) {
    Word* words = array_of<Word>(p, r);
    const Range mine = share_of_vector();
    const unsigned epoch = r + 1;
    for (int e = mine.begin + static_cast<int>(threadIdx.x); e < mine.end; e += kExchangeThreads) {
      const unsigned bits = __float_as_uint(check_value(static_cast<unsigned>(e), r));
      // Volatile: one relaxed 64-bit store.
      *const_cast<volatile Word*>(words + e) = static_cast<Word>(epoch) << 32 | bits;
    }
    ulonglong2 pair;
    ring::warp_wait_until(p.ring, site_of(r), epoch, [&](unsigned& seen) {
      pair = ptx::load_relaxed2(words + 2 * threadIdx.x);
      seen = static_cast<unsigned>(pair.x >> 32);
      return seen == epoch && static_cast<unsigned>(pair.y >> 32) == epoch;
    });
    const float2 v = make_float2(__uint_as_float(static_cast<unsigned>(pair.x)),
                                 __uint_as_float(static_cast<unsigned>(pair.y)));
    return keep_pair(s, 2 * threadIdx.x, 2 * threadIdx.x + 1, v, r);
  }
};

// The ring's q, k, v: a block publishes 32 rows, the 16 blocks of its group read the 512.
struct Epoch32Exchange {
  __device__ __forceinline__ bool round(const ExchangeParams& p, Shared& s, unsigned r) {
    const Place block;
    unsigned* group = array_of<unsigned>(p, r) + block.group * kExchangeThreads;
    if (threadIdx.x < ring::kQkvRows) {
      const unsigned e = static_cast<unsigned>(block.member) * ring::kQkvRows + threadIdx.x;
      ring::publish_word(group + e, check_value(e, r), epoch8(r));
    }
    const float v =
        ring::await_word<RingAblation::kNone>(p.ring, site_of(r), group + threadIdx.x, epoch8(r));
    s.vector[threadIdx.x].x = v;
    return v == check_value(threadIdx.x, r);
  }
};

// The ring's attention partials: a block publishes 64 words of four numerators and a denominator,
// one for each warp and lane j of the group's blocks; a lane reads and adds two members' words.
struct Partial128Exchange {
  static constexpr int kWordsOfMember = 4;  // for one warp

  __device__ __forceinline__ bool round(const ExchangeParams& p, Shared& s, unsigned r) {
    const Place block;
    const int t = static_cast<int>(threadIdx.x);
    unsigned* group = array_of<unsigned>(p, r) + 4 * word_index(block.group * 16, 0, 0);
    if (t < ring::kConsumerWarps * kWordsOfMember) {
      const float v = check_value(static_cast<unsigned>(t), r);
      unsigned* to = group + 4 * word_index(t / kWordsOfMember, block.member, t % kWordsOfMember);
      ring::publish_partial(to, {{v, v + 1, v + 2, v + 3}, v + 4}, epoch8(r));
    }
    const int warp = t / 32, row = t % 32 / 4, j = t % 4;
    const ring::Partial sum = ring::await_partials<RingAblation::kNone>(
        p.ring, site_of(r), group + 4 * word_index(warp, row, j),
        group + 4 * word_index(warp, row + 8, j), epoch8(r));
    const float wanted = 2 * check_value(static_cast<unsigned>(warp * kWordsOfMember + j), r);
    s.vector[t] = make_float2(sum.numerators[0], sum.denominator);
    return sum.numerators[0] == wanted && sum.numerators[1] == wanted + 2 &&
           sum.numerators[2] == wanted + 4 && sum.numerators[3] == wanted + 6 &&
           sum.denominator == wanted + 8;
  }

 private:
  static __device__ __forceinline__ int word_index(int warp, int member, int j) {
    return (warp * ring::kMembers + member) * kWordsOfMember + j;
  }
};

// The ring's residual stream: 8 groups add to each of 1,024 words, all blocks read them all. The
// words are never reset, so a thread keeps what it saw last of either array.
template <int kCopies>
struct FixedPointExchange {
  ulonglong2 before{0, 0}, before_of_other{0, 0};

  __device__ __forceinline__ bool round(const ExchangeParams& p, Shared& s, unsigned r) {
    const Place block;
    ring::FixedWord* words = array_of<ring::FixedWord>(p, r);
    if (threadIdx.x < 32) publish(p, words, block, r);
    const ring::FixedWord* mine = words + block.member % kCopies * kVectorSize + 2 * threadIdx.x;
    ulonglong2 now;
    ring::warp_wait_until(p.ring, site_of(r), ring::kGroups, [&](unsigned& seen) {
      now = ptx::load_relaxed2(mine);
      seen = ring::fixed_arrivals(now.x - before.x);
      return seen == ring::kGroups && ring::fixed_arrivals(now.y - before.y) == ring::kGroups;
    });
    const float2 sums =
        make_float2(ring::fixed_sum(now.x - before.x), ring::fixed_sum(now.y - before.y));
    before = before_of_other;
    before_of_other = now;
    s.vector[threadIdx.x] = sums;
    return sums.x == ring::kGroups * check_value(2 * threadIdx.x, r) &&
           sums.y == ring::kGroups * check_value(2 * threadIdx.x + 1, r);
  }

 private:
  // A lane's two of the block's 64 rows.
  static __device__ __forceinline__ void publish(const ExchangeParams& p, ring::FixedWord* words,
                                                 const Place& block, unsigned r) {
    const int row0 = block.member * ring::kOutRows + static_cast<int>(threadIdx.x);
    const int row1 = row0 + 32;
    const float x0 = check_value(static_cast<unsigned>(row0), r);
    const float x1 = check_value(static_cast<unsigned>(row1), r);
    if (kCopies == ring::kReplicas) {
      ring::publish_contribution<RingAblation::kNone>(p.ring, site_of(r), words, row0, x0, row1,
                                                      x1);
      return;
    }
    const auto contribution = [](float x) {
      return ring::fixed_contribution(__float2ll_rn(x * ring::kFixedScale));
    };
#pragma unroll
    for (int copy = 0; copy < kCopies; ++copy) {
      ptx::add_relaxed(words + copy * kVectorSize + row0, contribution(x0));
      ptx::add_relaxed(words + copy * kVectorSize + row1, contribution(x1));
    }
  }
};

}  // namespace mkbench::micro
