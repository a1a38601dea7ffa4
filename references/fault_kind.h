// The faults that tests plant, as one enum without includes: device code knows it too. Names and
// sites are in planted_fault.h.
#pragma once

namespace mkbench {

enum class PlantedFault : int {
  kNone,
  // Through tables and parameters that every engine takes from its host side.
  kRopeTheta,
  kSwapGateUp,
  kCacheLength,
  kAnglesBf16,
  kPositionOffset,  // a control: RoPE is relative
  // In weights and config before an engine sees them: with_planted_fault().
  kRopeInterleaved,
  kRotateSign,
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
  // Inside the kernel: the host twin has them all, plain those of plain::has_hook().
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
  // Controls inside the kernel: arithmetic of another kind, and as right.
  kFastExp,
  kHfRounding,
  kBf16Logits,
  kOtherOrder,
  kNoFusedMultiply,
  // Around an engine, whichever it is: harness/selftest/faulty_engine.h.
  kBypassed,
  kStaleOutput,
  kStopsEarly,
  kRepeatsDiffer,
};

}  // namespace mkbench
