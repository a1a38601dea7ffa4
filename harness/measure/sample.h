// One timed sample (an engine's share of one block) and the checks that make it valid.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/measure/telemetry.h"
#include "references/base/fields.h"
#include "references/engine.h"
#include "references/model/architecture.h"

namespace mkbench {

struct Sample {
  std::string engine;
  int process = 0;  // which of the engine's processes, from 0
  int block = 0;    // counted over all processes
  int order = 0;    // place inside the block
  int tokens = 0;
  double start_ms = 0;  // host clock, since the first timed call of the case
  DecodeTimes times;    // of a prefill test: host_ms alone, prefill and first token (TTFT)
  double prefill_ms = 0;
  // The last id of the prompt, which the engine got with the timed call. Absent if the engine takes
  // no late id and got this id with its prefill.
  std::optional<int32_t> late_id;
  std::vector<int32_t> ids;  // the receipt; compared after the clock has stopped
  int receipts_checked = 0, receipts_wrong = 0;
  int repeats = 0;  // runs dropped before this one: clocks disagreed, or the card was busy
  std::string state_checked;
  std::optional<Telemetry> card;  // absent if the card was not read
  // Why the sample's block was dropped. Empty: the sample stands.
  std::string dropped_for;
  bool valid = false;
  std::string invalid_reason;  // "clocks disagree: host 12.1 ms, events 10.0 ms", "receipt: token
                               // 17 is 5, wanted 9"
  double ms_per_token() const { return tokens > 0 ? times.host_ms / tokens : 0; }
};

// invalid_reason of a sample whose ids the truth has not scored yet.
inline constexpr char kUnscored[] = "the truth has not scored its ids";

// dropped_for of the samples that were dropped because of another engine's sample in their block.
inline constexpr char kOtherEngine[] = "another engine";

// Whether a sample fails its engine. It is then the proof, and stays even if its block is dropped.
inline bool has_failed(const Sample& sample) {
  return !sample.valid && sample.invalid_reason != kUnscored;
}

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
  v.field("process", &Sample::process, "which of the engine's processes took it, from 0");
  v.field("block", &Sample::block,
          "paired block that the sample belongs to, counted over all processes");
  v.field("order", &Sample::order, "place inside the block");
  v.field("tokens", &Sample::tokens, "tokens decoded; in a prefill test KV rows prefilled");
  v.field("start_ms", &Sample::start_ms,
          "start since the first timed call of the case, host clock");
  v.field("times", &Sample::times, "the decode by three clocks");
  v.field("prefill_ms", &Sample::prefill_ms, "prefill tests: the prefill alone; else 0");
  v.field("late_id", &Sample::late_id,
          "random last id of the prompt, sent inside the timed call; null: sent before the clock "
          "started");
  v.field("ids", &Sample::ids, "token receipts");
  v.field("receipts_checked", &Sample::receipts_checked, "receipts compared with the reference");
  v.field("receipts_wrong", &Sample::receipts_wrong, "receipts that differ from the reference");
  v.field("state_checked", &Sample::state_checked,
          "what the state receipt compared; empty: no state receipt was taken");
  v.field("card", &Sample::card, "the card while the clock ran; null where it was not read");
  v.field("dropped_for", &Sample::dropped_for,
          "a throttle reason, 'slow clock' or 'another engine'; empty: the sample stands");
  v.field("valid", &Sample::valid, "whether the sample counts for the statistics");
  v.field("repeats", &Sample::repeats,
          "runs dropped before this one: clocks disagreed, or the card was busy after them");
  v.field("invalid_reason", &Sample::invalid_reason, "why the sample is not valid; else empty");
}

// How much less time the engine's event and device clocks show than the host's clock around the
// call: launch, synchronisation and the copy of ids. Measured, because it is 30-180 us and differs
// between hosts (H100, H200; 2026-11).
struct ClockOverhead {
  int runs = 0;  // decodes of one token in the measurement; 0: not measured
  double event_ms = 0, event_sd_ms = 0;
  double device_ms = 0, device_sd_ms = 0;
};

constexpr std::string_view struct_name(Tag<ClockOverhead>) { return "clock_overhead"; }
template <typename V>
void describe_fields(V& v, Tag<ClockOverhead>) {
  using O = ClockOverhead;
  v.field("runs", &O::runs, "decodes of one token in the measurement; 0: not measured");
  v.field("event_ms", &O::event_ms, "host's clock less CUDA events; 0 without events");
  v.field("event_sd_ms", &O::event_sd_ms, "standard deviation of event_ms");
  v.field("device_ms", &O::device_ms, "host's clock less the device's clock; 0 without one");
  v.field("device_sd_ms", &O::device_sd_ms, "standard deviation of device_ms");
}

// Number of consecutive decodes of one token that measure the clocks' differences.
inline constexpr int kOverheadRuns = 20;

// From decodes of one token: means of the middle 80 %, and standard deviations that one outlier
// changes little. With few runs the deviation may come out too small, so it is at least
// crossing_sd_ms, the deviation of an empty call to the engine's process. (A timed sample of one
// token is compared with runs of its own length, which hides clock errors that grow with time.)
ClockOverhead clock_overhead(std::span<const DecodeTimes> one_token, double crossing_sd_ms = 0);

// Besides the overhead of the call, two clocks around one decode may differ by kClockShare of the
// time plus kClockSds standard deviations of the overhead.
inline constexpr double kClockShare = 0.01, kClockSds = 4;

// Host, event and device clocks must agree, less the overhead, within 1 % + 4 standard deviations.
// A clock that the engine lacks is 0 and left out. Returns the reason for disagreement, or an empty
// string.
std::string clock_disagreement(const DecodeTimes& times, const ClockOverhead& overhead = {});

// clock_disagreement() for the mean of all samples of an engine: within 1 % + 4 standard errors. A
// clock wrong by 3 % shows in one sample if 3 % of its time exceeds about 7 standard deviations of
// the overhead, in ten samples if it exceeds about 5. Below 3.5 deviations nothing is judged. In
// simulation an honest engine fails this or clock_disagreement(), repeats included, in fewer than 1
// of 10,000 cases. Returns the reason for disagreement, or an empty string.
std::string lasting_disagreement(std::span<const Sample> samples, const ClockOverhead& overhead);

// What a sample must read, and the least time that the pins of the card's memory allow for it.
struct MemoryBound {
  double bytes_per_token = 0;  // at the mean context depth + (n - 1) / 2; in a prefill a row's
                               // share of one reading of the weights
  double cached_bytes = 0;     // the part that L2 can hold
  double pin_gb_per_s = 0;     // 2 x memory clock x bus width; 0: not known
  double least_ms = 0;         // per token; 0: not known, or all bytes fit into L2
};

constexpr std::string_view struct_name(Tag<StepReads::Rows>) { return "rows_read"; }
template <typename V>
void describe_fields(V& v, Tag<StepReads::Rows>) {
  v.field("bytes", &StepReads::Rows::bytes, "of one position's keys and values in some layers");
  v.field("most", &StepReads::Rows::most, "positions that these layers read; 0: all");
}
constexpr std::string_view struct_name(Tag<StepReads>) { return "step_reads"; }
template <typename V>
void describe_fields(V& v, Tag<StepReads>) {
  v.field("fixed", &StepReads::fixed, "bytes of parameters and recurrent states; 0: not known");
  v.field("rows", &StepReads::rows, "what the KV rows before the step add");
  v.field("unknown", &StepReads::unknown, "why it is not known");
}

constexpr std::string_view struct_name(Tag<MemoryBound>) { return "memory_bound"; }
template <typename V>
void describe_fields(V& v, Tag<MemoryBound>) {
  using M = MemoryBound;
  v.field("bytes_per_token", &M::bytes_per_token,
          "weights and KV rows at mean context; in a prefill test a row's share of the weights");
  v.field("cached_bytes", &M::cached_bytes, "the part of bytes_per_token that L2 can keep");
  v.field("pin_gb_per_s", &M::pin_gb_per_s,
          "pin rate: 2 x memory clock x bus width; 0 where it is not known");
  v.field("least_ms", &M::least_ms,
          "least ms a token: bytes_per_token less cached_bytes, at the pin rate; 0: no bound");
}

// The bound of n decode steps from `depth` KV rows on or, with n_prompt > 0, of a prefill of
// n_prompt rows, which must read the weights once.
MemoryBound memory_bound(const ModelConfig& config, int depth, int n, int n_prompt,
                         double pin_gb_per_s, int64_t l2_bytes);

// A step of fewer bytes than this multiple of L2 may be served from L2: its ceiling means nothing.
inline constexpr double kL2Multiple = 4;
// Says so of such a step; empty for one of more bytes.
std::string served_from_l2(double bytes, double l2_bytes);

}  // namespace mkbench
