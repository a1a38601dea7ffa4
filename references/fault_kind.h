// The faults that tests plant, as one enum without includes, because device code includes it too.
// planted_fault.h has their names and sites.
#pragma once

namespace mkbench {

enum class PlantedFault : int {
  kNone,
  // Planted in tables and parameters that every engine takes from its host side.
  kRopeTheta,
  kRopeUnscaled,
  kSwapGateUp,
  kCacheLength,
  kAnglesBf16,
  kPositionOffset,  // a control: RoPE depends on distances only
  // Planted in weights and config before an engine gets them: with_planted_fault().
  kRopeInterleaved,
  kRotateSign,
  kRopePairsShifted,
  kNormPlusOne,
  kFinalNormDropped,
  kEps1e5,
  kEpsZero,
  kGqaMap,
  kNextValueHead,
  kScaleMissing,
  kScaleTwice,
  kLayerSkipped,
  kLayerTwice,
  kTensorZero,
  kTailDropped,
  kWeightBitFlip,
  kWrongHead,
  kNanWeight,
  kBiasDropped,
  // Planted inside the kernel: the host twin has all; plain::has_hook() says which ones plain has.
  kCacheLengthPlus,
  kQueryPosition,
  kDecodePositions,
  kSkipQNorm,
  kSkipKNorm,
  kNormAfterRope,
  kValueNormed,
  kSlotUnwritten,
  kEvery16thSkipped,
  kKvThreeBits,
  kKvRowBefore,
  kMlpResidualDropped,
  kGelu,
  kRowsLate,
  kBf16Sums,
  kBf16Softmax,
  kNoSoftmaxMax,
  kTailRowsUnscored,
  kArgmaxHighest,
  kArgmaxEarly,
  kArgmaxHalving,
  kNanLogit,
  kSharedCache,
  kResetKeepsRows,
  kIdsClamped,
  kPrefixModified,
  // Hangs, planted in the exchange or in the launch: the watch over calls finds them
  // (references/standstill.h), no check of parity does.
  kBlockDelayed,
  kArrivalLost,
  kNotResident,
  kWordsReset,
  // Faults that only a soak or the sweep over cache lengths finds.
  kStopsAt2048,  // attention sees the first kLastAttended positions alone
  kCounterOverflow,
  // Controls inside the kernel: different arithmetic that is equally right.
  kFastExp,
  kHfRounding,
  kBf16Logits,
  kOtherOrder,
  kNoFusedMultiply,
  // Planted by a wrapper around any engine: harness/selftest/faulty_engine.h.
  kBypassed,
  kStaleOutput,
  kStopsEarly,
  kRepeatsDiffer,
};

inline constexpr int kLastAttended = 2048;

}  // namespace mkbench
