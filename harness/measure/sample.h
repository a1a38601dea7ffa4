// One timed sample (an engine's share of one block) and the checks that make it valid.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "references/base/fields.h"
#include "references/engine.h"
#include "references/model_shape.h"

namespace mkbench {

struct Sample {
  std::string engine;
  int block = 0;
  int order = 0;  // place inside the block
  int tokens = 0;
  double start_ms = 0;  // host clock, since the first timed call of the case
  DecodeTimes times;    // of a prefill test: host_ms alone, prefill and first token (TTFT)
  double prefill_ms = 0;
  // The last id of the prompt, which the engine got with the timed call. Absent where the engine
  // takes no late id: its prefill has told it the id.
  std::optional<int32_t> late_id;
  std::vector<int32_t> ids;  // the receipt; compared after the clock has stopped
  int receipts_checked = 0, receipts_wrong = 0;
  int repeats = 0;  // runs before this one that were dropped: clocks disagreed, or a busy card
  std::string state_checked;
  bool valid = false;
  std::string invalid_reason;  // "clocks disagree: host 12.1 ms, events 10.0 ms", "receipt: token
                               // 17 is 5, wanted 9"
  double ms_per_token() const { return tokens > 0 ? times.host_ms / tokens : 0; }
};

// invalid_reason of a sample whose ids the truth has not scored yet.
inline constexpr char kUnscored[] = "the truth has not scored its ids";

constexpr std::string_view struct_name(Tag<DecodeTimes>) { return "decode_times"; }
template <typename V>
void describe_fields(V& v, Tag<DecodeTimes>) {
  v.field("host_ms", &DecodeTimes::host_ms,
          "steady clock around the synchronised call; in a prefill test prefill and first token");
  v.field("event_ms", &DecodeTimes::event_ms, "CUDA events; 0 where the engine has none");
  v.field("device_ms", &DecodeTimes::device_ms,
          "%globaltimer in the kernel; 0 where there is none");
  v.field("sm_ghz", &DecodeTimes::sm_ghz, "mean SM clock seen by the kernel; 0 where not taken");
  v.field("per_token_ms", &DecodeTimes::per_token_ms, "device time of each token, where taken");
}

constexpr std::string_view struct_name(Tag<Sample>) { return "sample"; }
template <typename V>
void describe_fields(V& v, Tag<Sample>) {
  v.field("engine", &Sample::engine, "name of the engine");
  v.field("block", &Sample::block, "paired block that the sample belongs to");
  v.field("order", &Sample::order, "place inside the block");
  v.field("tokens", &Sample::tokens, "tokens decoded");
  v.field("start_ms", &Sample::start_ms,
          "start since the first timed call of the case, host clock");
  v.field("times", &Sample::times, "the decode by three clocks");
  v.field("prefill_ms", &Sample::prefill_ms, "prefill tests: the prefill alone; else 0");
  v.field("late_id", &Sample::late_id,
          "random last id of the prompt, told with the timed call; null: told before the clock");
  v.field("ids", &Sample::ids, "token receipts");
  v.field("receipts_checked", &Sample::receipts_checked, "receipts compared with the reference");
  v.field("receipts_wrong", &Sample::receipts_wrong, "receipts that differ from it");
  v.field("state_checked", &Sample::state_checked,
          "what of a run that shows its logits was compared; empty: no state receipt was taken");
  v.field("valid", &Sample::valid, "counts for the statistics");
  v.field("repeats", &Sample::repeats,
          "runs dropped before this one: clocks disagreed, or the card was busy after them");
  v.field("invalid_reason", &Sample::invalid_reason, "why not, else empty");
}

// By how much the event and device clocks of an engine run short of the host's clock around the
// call: launch, synchronisation and the copy of ids. Measured, because it is 30-180 us and differs
// between hosts (H100, H200; 2026-11).
struct ClockOverhead {
  double event_ms = 0, event_sd_ms = 0;
  double device_ms = 0, device_sd_ms = 0;
};

// From decodes of one token: medians, and standard deviations that one outlier does not change.
ClockOverhead clock_overhead(std::span<const DecodeTimes> one_token);

// Two clocks around one decode may differ, beside the overhead of the call, by such a share and time.
inline constexpr double kClockShare = 0.01, kClockFloorMs = 0.020;

// Host, event and device clocks must agree, less the overhead, within 1 % + 4 standard deviations
// + 20 us (clocks that an engine lacks are 0 and left out). Returns the reason for disagreement, or
// an empty string.
std::string clock_disagreement(const DecodeTimes& times, const ClockOverhead& overhead = {});

// Share of the roofline that a sample set reached: bytes per token at the mean context depth + (n -
// 1) / 2, over the measured ceiling.
struct RooflineShare {
  double bytes_per_token = 0;
  double ceiling_gb_per_s = 0;  // measured in the same run
  double floor_ms = 0;          // bytes / ceiling
  double fraction = 0;          // floor / median ms per token
  bool applies = false;
  std::string reason;  // why not, when it does not apply ("weights and KV are under 4 x L2")
};

constexpr std::string_view struct_name(Tag<RooflineShare>) { return "roofline"; }
template <typename V>
void describe_fields(V& v, Tag<RooflineShare>) {
  using R = RooflineShare;
  v.field("bytes_per_token", &R::bytes_per_token, "weights and KV read at the mean context");
  v.field("ceiling_gb_per_s", &R::ceiling_gb_per_s, "read bandwidth measured in the same run");
  v.field("floor_ms", &R::floor_ms, "bytes over ceiling");
  v.field("fraction", &R::fraction, "floor over median ms per token; 0 where unknown");
  v.field("applies", &R::applies, "whether the roofline binds here");
  v.field("reason", &R::reason, "why it does not");
}

// Bytes per token and floor of n decode steps from `depth` KV rows on, over a measured ceiling; the
// fraction stays 0 until a median is known. Does not apply without a GPU, without a ceiling, or
// where weights and KV are under 4 x L2.
RooflineShare roofline_share(const ModelShape& shape, int depth, int n, bool gpu,
                             double ceiling_gb_per_s, int64_t l2_bytes);

}  // namespace mkbench
