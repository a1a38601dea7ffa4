// One step of decoding that an engine got wrong, with all that is needed to repeat it: a file of
// the report's folder, and what `mkbench parity --only` reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "references/base/fields.h"

namespace mkbench {

// EXACT: the reference's token. TIE: another at a near tie, within tau of the top. DRIFT: another
// in a free run that may be right (strict: after a first difference, if the teacher-forced token is
// right; token-only: from where the published continuations part). WRONG: anything else.
enum class StepVerdict { kExact, kTie, kDrift, kWrong };
std::string_view step_verdict_name(StepVerdict v);

constexpr std::string_view struct_name(Tag<StepVerdict>) { return "step_verdict_name"; }
inline std::string_view enum_text(StepVerdict v) { return step_verdict_name(v); }
std::vector<StepVerdict> enum_values(Tag<StepVerdict>);

struct ScoredId {
  int32_t id = -1;
  double logit = 0;
  std::string text;
};

constexpr std::string_view struct_name(Tag<ScoredId>) { return "scored_id"; }
template <typename V>
void describe_fields(V& v, Tag<ScoredId>) {
  v.field("id", &ScoredId::id, "token id");
  v.field("logit", &ScoredId::logit, "its logit");
  v.field("text", &ScoredId::text, "the token as text");
}

// An engine's error at one place beside the baseline's there.
struct ErrorAt {
  int at = 0;
  double error = 0, baseline_error = 0;
  std::optional<double> limit;
};

constexpr std::string_view struct_name(Tag<ErrorAt>) { return "error_at"; }
template <typename V>
void describe_fields(V& v, Tag<ErrorAt>) {
  v.field("at", &ErrorAt::at, "position or layer");
  v.field("error", &ErrorAt::error, "the engine's error against the truth");
  v.field("baseline_error", &ErrorAt::baseline_error, "the baseline's");
  v.field("limit", &ErrorAt::limit, "largest error in its band; null where none is set");
}

// `expected` is the choice of the truth, the fp32 run of the same weights. describe_fields() below
// explains the fields.
struct FailedStep {
  std::string engine, engine_sha256;
  std::string model, weights_sha256;
  std::string truth;  // of --truth, where the model alone does not say it
  uint64_t salt = 0;
  std::string prompt;
  int position = 0;
  std::vector<int32_t> prompt_ids, forced_ids;
  int free_tokens = 0;
  std::optional<int32_t> late_id;
  int32_t expected = -1, found = -1;
  StepVerdict verdict = StepVerdict::kExact;
  double margin = 0, pairwise_d = 0;
  std::vector<ScoredId> expected_top, found_top;
  double error_norm = 0, baseline_error_norm = 0;
  std::optional<double> error_limit;
  std::string localised;
  std::vector<ErrorAt> error_by_layer;
  std::string command;
};

constexpr std::string_view struct_name(Tag<FailedStep>) { return "failed_step"; }
template <typename V>
void describe_fields(V& v, Tag<FailedStep>) {
  using F = FailedStep;
  v.field("engine", &F::engine, "engine, as asked for");
  v.field("engine_sha256", &F::engine_sha256,
          "sha256 of the engine's file; empty for mkbench's own engines");
  v.field("model", &F::model, "model, as asked for");
  v.field("weights_sha256", &F::weights_sha256, "sha256 of the weights");
  v.field("truth", &F::truth, "--truth, where the model alone does not say it; else empty");
  v.field("salt", &F::salt, "of analytic weights, which are made with it again; else 0");
  v.field("prompt", &F::prompt, "name of the prompt");
  v.field("position", &F::position, "KV rows before the step");
  v.field("prompt_ids", &F::prompt_ids, "ids that are prefilled; the last one stays pending");
  v.field("forced_ids", &F::forced_ids, "inputs of the steps after the first");
  v.field("free_tokens", &F::free_tokens,
          "over 0: found came in a free-running call of this many tokens without logits, after "
          "the ids in forced_ids; 0: a step with logits, forced along forced_ids");
  v.field("late_id", &F::late_id,
          "late id of a timed run, which replaces the last of prompt_ids in the call; else null");
  v.field("expected", &F::expected, "the truth's token");
  v.field("found", &F::found, "the engine's token; -1: none came back");
  v.field("match", &F::verdict, "verdict of the step");
  v.field("margin", &F::margin, "the truth's top-1 minus top-2 logit");
  v.field("pairwise_d", &F::pairwise_d,
          "D of the reference: a token whose logit is at most D below the top (plus a bf16 step if "
          "the engine rounds its logits) is a near tie");
  v.field("expected_top", &F::expected_top, "the truth's best five");
  v.field("found_top", &F::found_top, "the engine's best five; empty where it shows no logits");
  v.field("error_norm", &F::error_norm,
          "2-norm of the engine's centred logits less the truth's; 0 without logits");
  v.field("baseline_error_norm", &F::baseline_error_norm, "error_norm of the baseline");
  v.field("error_limit", &F::error_limit,
          "largest error_norm that passes; 0: not judged; null: limit of R_step times "
          "baseline_error_norm");
  v.field("localised", &F::localised,
          "layer and KV row where the error begins, or why none can be named");
  v.field("error_by_layer", &F::error_by_layer,
          "|error|^2 / |truth|^2 of the hidden state after each layer; empty if none are shown");
  v.field("command", &F::command, "repeats the step");
}

}  // namespace mkbench
