#include "harness/host/server.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <new>
#include <numeric>
#include <utility>

#include "references/base/error.h"
#include "references/shared_snapshot.h"

namespace mkbench {
namespace {

// Gives freed memory back to the system, for other hosts: once a block of several megabytes was
// freed, glibc keeps such blocks. The process of `compiled` on Qwen3-0.6B kept 560 MB.
void give_back_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

EngineState state_of(const Engine& engine) {
  return {.position = engine.position(), .launches = engine.launch_count()};
}

}  // namespace

FromHost Server::answer(const ToHost& call) {
  called_.clear();
  try {
    return std::visit([this](const auto& one) { return take(one); }, call);
  } catch (const Error& error) {
    return Failed{error.kind(), error.what()};
  } catch (const std::bad_alloc&) {
    return Failed{ErrorKind::kEnvUnfit, called_ + "out of host memory"};
  } catch (const std::exception& error) {
    return Failed{ErrorKind::kRuntime, called_ + error.what()};
  }
}

ProgressTold Server::progress() {
  const std::lock_guard lock(mutex_);
  if (running_ == nullptr) return {};
  const Progress now = running_->engine->progress();
  return {now.position, now.layer, std::string(now.phase)};
}

HangTold Server::hang() {
  const std::lock_guard lock(mutex_);
  if (running_ == nullptr) return {};
  const Progress now = running_->engine->progress();
  return {.launches = running_->counted ? launches_ : -1,
          .decodes = running_->counted ? -1 : launches_,
          .position = now.position,
          .layer = now.layer,
          .phase = std::string(now.phase),
          .launch = running_->engine->standstill()};
}

void Server::watch(const HeldEngine* held) {
  const std::lock_guard lock(mutex_);
  if (held != nullptr) launches_ = held->engine->launch_count();
  running_ = held;
}

Server::HeldEngine& Server::engine(int number) {
  const auto found = engines_.find(number);
  if (found == engines_.end())
    throw Error(ErrorKind::kRuntime, fmt::format("no engine has the number {}", number));
  watch(&found->second);
  called_ = found->second.name + ": ";
  return found->second;
}

// A call's time ends when all device work of the process is over, whichever library began it.
void Server::finish(const HeldEngine& held) const {
  if (held.cuda && program_.finish) program_.finish();
}

// Loads the weights once for all engines of a host.
const ModelWeights& Server::weights_at(const WeightsPlace& place) {
  const auto key = std::pair(place.folder, place.stamp);
  if (key != loaded_) {
    weights_ = load_shared(place.folder, place.name, place.lagset, place.sha256, place.stamp);
    loaded_ = key;
  }
  return weights_;
}

template <typename Function>
const Function& Server::offered(const Function& function, const char* what) const {
  if (!function)
    throw Error(ErrorKind::kRuntime, fmt::format("{} has no call '{}'", program_.name, what));
  return function;
}

FromHost Server::take(const OpenCall& call) {
  called_ = call.request.name + ": ";
  const ModelWeights& weights = weights_at(call.weights);
  HeldEngine held{program_.factory.make(call.request, weights), call.request.name,
                  weights.config.shape.vocab, call.request.cuda};
  const int number = ++last_number_;
  const std::string chosen = held.engine->settings();
  const Opened opened{number, held.engine->capabilities(),
                      chosen.empty() ? program_.factory.settings(call.request.name) : chosen,
                      state_of(*held.engine)};
  held.counted = opened.capabilities.counted;
  engines_[number] = std::move(held);
  return opened;
}

FromHost Server::take(const PlainCall& call) {
  HeldEngine& held = engine(call.engine);
  if (call.verb == Verb::kClose) {
    watch(nullptr);
    engines_.erase(call.engine);
    // Frees the weights with the last engine, because the parent may now load another model.
    if (engines_.empty()) {
      weights_ = {};
      loaded_ = {};
    }
    give_back_memory();
    return Answered{};
  }
  if (call.verb == Verb::kReset) held.engine->reset();
  if (call.verb == Verb::kPoison) held.engine->poison();
  if (call.verb == Verb::kAudit) held.engine->audit();
  Answered answered{state_of(*held.engine)};
  if (call.verb == Verb::kReset && held.cuda && program_.device_bytes)
    answered.state.device_bytes = program_.device_bytes();
  return answered;
}

FromHost Server::take(const PrefillCall& call) {
  HeldEngine& held = engine(call.engine);
  const auto count = static_cast<size_t>(call.ids);
  const auto* from = reinterpret_cast<const int32_t*>(arena_.at_least(count * sizeof(int32_t)));
  const std::vector<int32_t> ids(from, from + count);
  const NvtxRange range("prefill");
  HostInterval interval{now_ns(), 0};
  held.engine->prefill(ids);
  finish(held);
  interval.end = now_ns();
  return Prefilled{state_of(*held.engine), interval};
}

// Runs one decode, or one for each token if the label asks for that.
std::vector<int32_t> Server::decode(Engine& engine, const DecodeCall& call, const int32_t* forced,
                                    float* logits) {
  if (!call.label || !call.label->tokens) {
    return call.late ? engine.decode_late(*call.late, call.n)
                     : engine.decode(call.n, forced, logits);
  }
  if (forced != nullptr || logits != nullptr)
    throw Error(ErrorKind::kBadInput,
                "a range for each token: found forced ids or logits, wanted none");
  std::vector<int32_t> ids;
  for (int token = 0; token < call.n; ++token) {
    const NvtxRange range(RangeLabel{.message = fmt::format("token {}", token),
                                     .category = call.label->category,
                                     .payload = token});
    const std::vector<int32_t> one =
        call.late && token == 0 ? engine.decode_late(*call.late, 1) : engine.decode(1);
    ids.insert(ids.end(), one.begin(), one.end());
  }
  return ids;
}

FromHost Server::take(const DecodeCall& call) {
  HeldEngine& held = engine(call.engine);
  const int steps = std::max(call.n, 0);  // the engine refuses a negative n
  const DecodeArena layout(steps, call.logits, held.vocab);
  char* const memory = arena_.at_least(layout.bytes);
  const auto* forced = call.forced ? reinterpret_cast<const int32_t*>(memory) : nullptr;
  auto* logits = call.logits ? reinterpret_cast<float*>(memory + layout.logits) : nullptr;
  HostInterval interval;
  std::vector<int32_t> ids;
  if (call.label && !call.label->opens.empty()) shared_range_.emplace(call.label->opens.c_str());
  {
    const NvtxRange range = call.label ? NvtxRange(*call.label) : NvtxRange(kDecodeRange);
    interval.begin = now_ns();
    ids = decode(*held.engine, call, forced, logits);
    finish(held);
    interval.end = now_ns();
  }
  if (call.label && call.label->closes) shared_range_.reset();
  // Ids beyond those asked for are counted in the answer, but not sent.
  const size_t sent = std::min(ids.size(), static_cast<size_t>(steps));
  std::memcpy(memory + layout.ids, ids.data(), sent * sizeof(int32_t));
  return Decoded{state_of(*held.engine), static_cast<int>(ids.size()), interval,
                 held.engine->last_times()};
}

FromHost Server::take(const SetPendingCall& call) {
  Engine& e = *engine(call.engine).engine;
  e.set_pending(call.id);
  return Answered{state_of(e)};
}

FromHost Server::take(const RewindCall& call) {
  Engine& e = *engine(call.engine).engine;
  e.rewind(call.position);
  return Answered{state_of(e)};
}

FromHost Server::take(const TraceCall& call) {
  HeldEngine& held = engine(call.engine);
  LaunchTrace trace;
  if (!program_.trace) {
    trace.problem = fmt::format("{} has no launch recorder", program_.name);
  } else {
    // The recorder waits for the card itself, so that the wait does not count as the engine's.
    trace = program_.trace([&] { held.engine->decode(call.n); });
    if (trace.problem.empty()) trace.tokens = call.n;
  }
  return Traced{state_of(*held.engine), trace};
}

FromHost Server::take(const SaveCall& call) { return Saved{engine(call.engine).engine->save()}; }

FromHost Server::take(const RestoreCall& call) {
  Engine& e = *engine(call.engine).engine;
  e.restore(call.snapshot);
  return Answered{state_of(e)};
}

FromHost Server::take(const StressCall& call) {
  Engine& e = *engine(call.engine).engine;
  const std::optional<std::string> left_out = e.stress(call.stress);
  return Able{left_out.has_value(), left_out.value_or(""), state_of(e)};
}

FromHost Server::take(const SetTimelineCall& call) {
  Engine& e = *engine(call.engine).engine;
  const bool able = e.set_timeline(call.on);
  return Able{able, "", state_of(e)};
}

FromHost Server::take(const TimelineCall& call) {
  Timeline timeline = engine(call.engine).engine->timeline();
  keep_first_steps(timeline, std::max<int64_t>(call.room, 0));
  const auto sent = static_cast<int64_t>(timeline.spans.size());
  const size_t bytes = static_cast<size_t>(sent) * sizeof(TimelineSpan);
  std::copy_n(timeline.spans.begin(), sent,
              reinterpret_cast<TimelineSpan*>(arena_.at_least(bytes)));
  timeline.spans.clear();
  return TimelineTold{sent, std::move(timeline)};
}

FromHost Server::take(const StateCall& call) {
  Engine& e = *engine(call.engine).engine;
  const auto found = call.position ? e.kv_row(call.layer, *call.position) : e.hidden(call.layer);
  if (!found) return Floats{};
  const size_t bytes = found->size() * sizeof(float);
  std::memcpy(arena_.at_least(bytes), found->data(), bytes);
  return Floats{static_cast<int>(found->size())};
}

FromHost Server::take(const ExplainCall& call) {
  const HeldEngine& held = engine(call.engine);
  BugQuestion question = call.question;
  if (call.logits) {
    size_t floats = 0;
    const auto vocab = static_cast<size_t>(held.vocab);
    for (const ObservedRun& run : question.runs) floats += run.found.size() * vocab;
    const auto* from = reinterpret_cast<const float*>(arena_.at_least(floats * sizeof(float)));
    for (ObservedRun& run : question.runs) {
      run.logits.assign(from, from + run.found.size() * vocab);
      from += run.logits.size();
    }
  }
  return Explained{held.engine->explain(question)};
}

FromHost Server::take(const DequantisedCall& call) {
  Engine& e = *engine(call.engine).engine;
  const auto& shape = call.weight.shape;
  const int64_t count =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  const auto values = e.dequantised(call.weight.name, count);
  if (!values) return WeightTaken{false, {}, state_of(e)};
  std::ofstream file(call.file, std::ios::binary | std::ios::app);
  file.write(reinterpret_cast<const char*>(values->data()),
             static_cast<std::streamsize>(values->size() * sizeof(float)));
  if (!file.flush()) throw Error(ErrorKind::kEnvUnfit, call.file + ": " + std::strerror(errno));
  return WeightTaken{true, e.storage(call.weight.name), state_of(e)};
}

FromHost Server::take(const SkipToCall& call) {
  Engine& e = *engine(call.engine).engine;
  const bool able = e.skip_to(call.position);
  return Able{able, "", state_of(e)};
}

FromHost Server::take(const AblateCall& call) {
  HeldEngine& held = engine(call.engine);
  const std::string why = program_.factory.ablate(held.name, *held.engine, call.ablation);
  return Able{why.empty(), why, state_of(*held.engine)};
}

FromHost Server::take(const DescribeCall& call) {
  return Described{program_.factory.bytes(call.request, call.config)};
}

FromHost Server::take(const ValuesCall&) {
  throw Error(ErrorKind::kRuntime, "values: only hf's host, in Python, is asked for them");
}

FromHost Server::take(const PingCall&) { return Answered{}; }

FromHost Server::take(const FinishCall&) {
  if (program_.finish) program_.finish();
  return Answered{};
}

FromHost Server::take(const FlushCall& call) {
  HostInterval interval{now_ns(), 0};
  if (program_.flush) program_.flush(call);
  interval.end = now_ns();
  return Flushed{interval.ms()};
}

FromHost Server::take(const CardCall& call) { return offered(program_.card, "card")(call); }

FromHost Server::take(const TorchCall& call) { return offered(program_.torch, "torch")(call); }

FromHost Server::take(const TuneCall& call) {
  return offered(program_.tune, "tune")(
      call, [this](const std::string& stage) { tell_(StageTold{stage}); });
}

}  // namespace mkbench
