#include "harness/hosts/host_engine.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "harness/engines/registry.h"
#include "references/shared_snapshot.h"

namespace mkbench {
namespace {

// Limits for opening an engine, and for one that may compile or import its code first.
constexpr double kOpenLimitS = 120, kCompilingOpenLimitS = 900;
// CallLimit::expected_s of a prefill or decode: 10 x what its pace predicts, and at least 20 s.
constexpr double kPaceFactor = 10, kLeastLimitS = 20;
// Before a pace is known: a hundredth of 1 TB/s for the bytes that the call must move.
constexpr double kSlowestBytesPerS = 1e10;

WeightsPlace place_of(const ModelWeights& weights) {
  return {weights.folder.string(), weights.name, weights.lagset, weights.sha256,
          snapshot_stamp(weights.folder)};
}

double open_limit_s(const std::string& engine) {
  const EngineRow* row = find_engine(engine);
  const bool compiles = row != nullptr && row->compiles;
  return compiles || host_kind(engine) == HostKind::kPython ? kCompilingOpenLimitS : kOpenLimitS;
}

}  // namespace

CallLimit HostEngine::limit_of(const Pace& pace, int units) const {
  if (profiled_) return {timeout_s_, timeout_s_};
  const bool known = pace.seconds >= 0;
  const double predicted = units * (known ? kPaceFactor * pace.seconds
                                          : static_cast<double>(bytes_) / kSlowestBytesPerS);
  return {std::min(timeout_s_, std::max(kLeastLimitS, predicted)), timeout_s_,
          known    ? Compiling::kNo
          : first_ ? Compiling::kFirstCall
                   : Compiling::kLaterCall};
}

void HostEngine::learn(Pace& pace, int units) {
  first_ = false;
  if (units > 0) pace.seconds = std::max(pace.seconds, interval_.ms() / 1e3 / units);
}

HostEngine::HostEngine(std::shared_ptr<HostLink> link, const EngineRequest& request,
                       const ModelWeights& weights, double timeout_s)
    : link_(std::move(link)),
      name_(request.name),
      vocab_(weights.config.shape.vocab),
      timeout_s_(timeout_s),
      bytes_(weights.config.weight_bytes()),
      holdings_(bytes_) {
  const ModelWeights shared = share_weights(weights);
  const auto begin = std::chrono::steady_clock::now();
  const double limit = open_limit_s(request.name);
  const OpenCall call{in_host(request), place_of(shared)};
  opened_ = ask<Opened>(*link_, call, {limit, std::max(limit, timeout_s)});
  if (call.request.name != name_) opened_.capabilities.name = name_;
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
  open_ms_ = ms.count();
  state_ = opened_.state;
}

HostEngine::~HostEngine() {
  if (!link_->alive()) return;
  try {
    ask<Answered>(*link_, PlainCall{opened_.engine, Verb::kClose}, {kLeastLimitS, kLeastLimitS});
  } catch (...) {
    // The link is dead now; the next call over it reports why.
  }
}

void HostEngine::plain(Verb verb) {
  ask_host<Answered>(PlainCall{opened_.engine, verb}, {kSmallCallS, timeout_s_});
}

void HostEngine::reset() {
  const int ended_at = state_.position;
  plain(Verb::kReset);
  Holding now = holding_of(link_->facts().pid);
  now.bytes += state_.device_bytes;
  const std::string grows = holdings_.look(now, ended_at);
  if (!grows.empty()) throw Error(ErrorKind::kIntegrity, "engine " + name_ + ": " + grows);
}

void HostEngine::prefill(std::span<const int32_t> ids) {
  std::memcpy(link_->arena().at_least(ids.size_bytes()), ids.data(), ids.size_bytes());
  const int count = static_cast<int>(ids.size());
  const auto done =
      ask_host<Prefilled>(PrefillCall{opened_.engine, count}, limit_of(prefill_pace_, count));
  interval_ = done.interval;
  learn(prefill_pace_, count);
}

std::vector<int32_t> HostEngine::decode(int n, const int32_t* forced, float* logits_out) {
  return decode({opened_.engine, n, forced != nullptr, logits_out != nullptr}, forced, logits_out);
}

std::vector<int32_t> HostEngine::decode_late(int32_t id, int n) {
  return decode({.engine = opened_.engine, .n = n, .late = id}, nullptr, nullptr);
}

std::vector<int32_t> HostEngine::decode(DecodeCall call, const int32_t* forced, float* logits_out) {
  const int steps = std::max(call.n, 0);  // the host refuses a negative n
  call.label = std::exchange(next_label_, std::nullopt);
  const DecodeArena layout(steps, logits_out != nullptr, vocab_);
  char* const memory = link_->arena().at_least(layout.bytes);
  const size_t bytes = static_cast<size_t>(steps) * sizeof(int32_t);
  const size_t logit_bytes =
      static_cast<size_t>(steps) * static_cast<size_t>(vocab_) * sizeof(float);
  if (forced != nullptr) std::memcpy(memory, forced, bytes);
  // The caller's values are copied to the arena and back, so that they survive if the engine writes
  // no logits.
  if (logits_out != nullptr) std::memcpy(memory + layout.logits, logits_out, logit_bytes);
  const auto done = ask_host<Decoded>(call, limit_of(decode_pace_, steps));
  interval_ = done.interval;
  times_ = done.times;
  learn(decode_pace_, steps);
  if (logits_out != nullptr) std::memcpy(logits_out, memory + layout.logits, logit_bytes);
  // Ids beyond the n-th are not in the arena, and are returned as -1.
  std::vector<int32_t> ids(static_cast<size_t>(std::max(done.ids, 0)), -1);
  std::memcpy(ids.data(), memory + layout.ids, std::min(bytes, ids.size() * sizeof(int32_t)));
  return ids;
}

void HostEngine::label_next(const RangeLabel& label, bool under_profiler) {
  next_label_ = label;
  profiled_ = under_profiler;
}

void HostEngine::set_pending(int32_t id) {
  ask_host<Answered>(SetPendingCall{opened_.engine, id}, {kSmallCallS, timeout_s_});
}

void HostEngine::rewind(int position) {
  ask_host<Answered>(RewindCall{opened_.engine, position}, {kSmallCallS, timeout_s_});
}

LaunchTrace HostEngine::trace(int n) {
  // Starting the recorder takes seconds.
  return ask_host<Traced>(TraceCall{opened_.engine, n}, {timeout_s_, timeout_s_}).trace;
}

Snapshot HostEngine::save() {
  return ask_host<Saved>(SaveCall{opened_.engine}, {kSmallCallS, timeout_s_}).snapshot;
}

void HostEngine::restore(const Snapshot& snapshot) {
  ask_host<Answered>(RestoreCall{opened_.engine, snapshot}, {kSmallCallS, timeout_s_});
}

Progress HostEngine::progress() const {
  ProgressTold told = link_->progress();
  phase_ = std::move(told.phase);
  return {told.position, told.layer, phase_};
}

std::optional<BugFits> HostEngine::explain(const BugQuestion& question) {
  if (host_kind(name_) == HostKind::kPython) return std::nullopt;
  const bool logits = std::any_of(question.runs.begin(), question.runs.end(),
                                  [](const ObservedRun& run) { return !run.logits.empty(); });
  size_t floats = 0;
  for (const ObservedRun& run : question.runs) floats += run.logits.size();
  auto* to = reinterpret_cast<float*>(link_->arena().at_least(floats * sizeof(float)));
  for (const ObservedRun& run : question.runs)
    to = std::copy(run.logits.begin(), run.logits.end(), to);
  // The bug that is being tried when the time ends is tried to its end.
  const double limit_s = question.seconds + kSmallCallS;
  return ask_host<Explained>(ExplainCall{opened_.engine, question, logits}, {limit_s, limit_s})
      .fits;
}

bool HostEngine::skip_to(int position) {
  return ask_host<Able>(SkipToCall{opened_.engine, position}, {kSmallCallS, timeout_s_}).able;
}

std::optional<std::string> HostEngine::stress(const Stress& stress) {
  Able told = ask_host<Able>(StressCall{opened_.engine, stress}, {kSmallCallS, timeout_s_});
  return told.able ? std::optional(std::move(told.why)) : std::nullopt;
}

bool HostEngine::set_timeline(bool on) {
  return ask_host<Able>(SetTimelineCall{opened_.engine, on}, {kSmallCallS, timeout_s_}).able;
}

Timeline HostEngine::timeline() {
  // 512 MB of addresses; only the pages to which the host writes spans take memory.
  constexpr int64_t kRoom = int64_t{1} << 24;
  constexpr size_t kBytes = static_cast<size_t>(kRoom) * sizeof(TimelineSpan);
  link_->arena().at_least(kBytes);
  TimelineTold told =
      ask_host<TimelineTold>(TimelineCall{opened_.engine, kRoom}, {kSmallCallS, timeout_s_});
  if (told.spans < 0 || told.spans > kRoom) {
    throw Error(ErrorKind::kRuntime, name_ + ": timeline: found " + std::to_string(told.spans) +
                                         " spans, wanted 0 to " + std::to_string(kRoom));
  }
  Timeline timeline = std::move(told.timeline);
  const auto* sent = reinterpret_cast<const TimelineSpan*>(link_->arena().at_least(kBytes));
  timeline.spans.assign(sent, sent + told.spans);
  return timeline;
}

std::optional<std::vector<float>> HostEngine::floats(int layer, std::optional<int> position) {
  // Enough for the longest row of any known model.
  constexpr size_t kMostFloats = size_t{1} << 18;
  link_->arena().at_least(kMostFloats * sizeof(float));
  const auto answer =
      ask_host<Floats>(StateCall{opened_.engine, layer, position}, {kSmallCallS, timeout_s_});
  if (!answer.floats) return std::nullopt;
  const size_t count = std::min(kMostFloats, static_cast<size_t>(std::max(*answer.floats, 0)));
  std::vector<float> row(count);
  // With --in-process the server of this call may have moved the arena.
  std::memcpy(row.data(), link_->arena().at_least(count * sizeof(float)), count * sizeof(float));
  return row;
}

WeightTaken HostEngine::write_dequantised(const WeightShape& weight, const std::string& file) {
  return ask_host<WeightTaken>(DequantisedCall{opened_.engine, weight, file},
                               {kSmallCallS, timeout_s_});
}

std::string HostEngine::ablate(Ablation ablation) {
  return ask_host<Able>(AblateCall{opened_.engine, ablation}, {kSmallCallS, timeout_s_}).why;
}

}  // namespace mkbench
