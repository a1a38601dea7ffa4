// The bugs that decoders are known to have: mistakes of arithmetic that DeviantModel plants in the
// fp32 truth.
#pragma once

#include <string>
#include <vector>

#include "references/model/architecture.h"

namespace mkbench {

enum class Bug {
  // RoPE
  kRopeInterleaved,
  kRopePairsShifted,
  kRotateSign,
  kRopeTheta,  // value: theta
  kRopeUnscaled,
  kRopeScalingSwapped,
  kRopeExponent,  // value: factor on the exponents 2i / head_dim
  kRopeMissing,
  kRopeOfQueries,
  kRopeOfKeys,
  kRopeOfValues,
  kRopeHalf,
  kQueryPosition,    // value: added to the positions of queries
  kDecodePositions,  // value: added to the positions of decoded rows
  kDecodeRestarts,
  kCallPositions,
  // Norms
  kEps,       // value: eps
  kNormPlus,  // value: added to the weights
  kNormMean,
  kNormSum,
  kNormUnweighted,
  kNormsSwapped,
  kInputNormMissing,
  kPostNormMissing,
  kFinalNormMissing,
  kFinalNormUnweighted,
  kSkipQNorm,
  kSkipKNorm,
  kSkipQkNorm,
  kQkNormsSwapped,
  kQkNormWhole,
  kNormAfterRope,
  kValueNormed,
  // Attention
  kScoreFactor,  // value: factor on the scores
  kSoftmaxSum,
  kSplitMaxima,  // value: splits
  kGqaMap,
  kGqaMapOfValues,
  kGqaFirst,
  kNextValueHead,
  kNewestUnseen,
  kNewestUnseenInDecode,
  kNewestZero,
  kNextSeen,
  kNoMask,
  kZeroRowSeen,
  kRowBefore,
  kFirstUnseen,
  kWindow,  // value: rows
  kEveryNthUnseen,
  kPromptForgotten,
  kKeysLate,
  kValuesLate,
  kHeadsUnmerged,
  kKvSwapped,
  kTransposed,  // value: 0 q, 1 k, 2 v, 3 o
  kBiasAfterRope,
  kBiasDropped,  // value: 0 all, 1 q, 2 k, 3 v
  // MLP and residual stream
  kSwapGateUp,
  kUpMissing,
  kProductActivated,
  kGelu,
  kGeluTanh,
  kRelu,
  kSigmoid,
  kNoActivation,
  kAttentionResidualMissing,
  kMlpResidualMissing,
  kResidualTwice,
  kParallelMlp,
  kStaleResidual,
  kResidualNormed,
  kAttentionMissing,
  kMlpMissing,
  // Layers
  kLayerSkipped,
  kLayerTwice,
  kLayerBefore,
  kFirstLayerAlone,
  // Embedding and head
  kEmbeddingFactor,  // value
  kEmbeddingOfHead,
  kIdLate,
  kHeadOfEmbedding,
  kHeadShifted,  // value: rows
  kHeadTransposed,
  kHeadTail,  // value: how many of the last rows are never scored
};

struct Deviation {
  Bug bug;
  double value = 0;
  int layer = -1;  // -1: every layer
};

struct KnownBug {
  Deviation deviation;
  std::string name, text;  // as in BugFit
};

// The bugs that a model of this config can have and `rows` rows of it can show, frequent ones
// first. Those of single layers come behind all others.
std::vector<KnownBug> known_bugs(const ModelConfig& config, int rows);

}  // namespace mkbench
