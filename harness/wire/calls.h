// What a parent asks a host, and what hosts answer: one struct per message, with one list of fields
// (references/base/fields.h). arena.h holds ids and logits.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "harness/measure/launch_trace.h"
#include "harness/measure/range_label.h"
#include "harness/measure/sample.h"
#include "harness/wire/value_calls.h"
#include "references/base/error.h"

namespace mkbench {

// ---- to a host: calls of an engine, by the number that Opened gave; some answer with Answered ----

// Opens an engine. Answer: Opened.
struct OpenCall {
  static constexpr char kType[] = "open";
  EngineRequest request;
  WeightsPlace weights;
  static void fields(auto& v) {
    list_fields(v, "request", &OpenCall::request, "weights", &OpenCall::weights);
  }
};

// Calls without arguments. Answer: Answered.
struct PlainCall {
  static constexpr char kType[] = "do";
  int engine = 0;
  Verb verb = Verb::kReset;
  static void fields(auto& v) {
    list_fields(v, "engine", &PlainCall::engine, "verb", &PlainCall::verb);
  }
};

// The arena holds `ids` ids. Answer: Prefilled.
struct PrefillCall {
  static constexpr char kType[] = "prefill";
  int engine = 0, ids = 0;
  static void fields(auto& v) {
    list_fields(v, "engine", &PrefillCall::engine, "ids", &PrefillCall::ids);
  }
};

// With `forced` the arena holds the forced ids, with `logits` it has room for the logits
// (DecodeArena). Answer: Decoded.
struct DecodeCall {
  static constexpr char kType[] = "decode";
  int engine = 0, n = 0;
  bool forced = false, logits = false;
  std::optional<int32_t> late{};      // replaces the pending id, inside the timed part
  std::optional<RangeLabel> label{};  // of the decode's NVTX range; absent: "decode"
  static void fields(auto& v) {
    list_fields(v, "engine", &DecodeCall::engine, "n", &DecodeCall::n, "forced",
                &DecodeCall::forced, "logits", &DecodeCall::logits, "late", &DecodeCall::late,
                "label", &DecodeCall::label);
  }
};

struct SetPendingCall {
  static constexpr char kType[] = "set_pending";
  int engine = 0;
  int32_t id = 0;
  static void fields(auto& v) {
    list_fields(v, "engine", &SetPendingCall::engine, "id", &SetPendingCall::id);
  }
};

struct PositionCall {
  int engine = 0, position = 0;
  static void fields(auto& v) {
    list_fields(v, "engine", &PositionCall::engine, "position", &PositionCall::position);
  }
};

struct RewindCall : PositionCall {
  static constexpr char kType[] = "rewind";
};

// Decodes n tokens and records everything that reaches the card. Answer: Traced.
struct TraceCall {
  static constexpr char kType[] = "trace";
  int engine = 0, n = 0;
  static void fields(auto& v) { list_fields(v, "engine", &TraceCall::engine, "n", &TraceCall::n); }
};

// Answer: Saved. The KV rows stay in the host; a Snapshot holds about a thousand numbers at most.
struct SaveCall {
  static constexpr char kType[] = "save";
  int engine = 0;
  static void fields(auto& v) { list_fields(v, "engine", &SaveCall::engine); }
};

struct RestoreCall {
  static constexpr char kType[] = "restore";
  int engine = 0;
  Snapshot snapshot;
  static void fields(auto& v) {
    list_fields(v, "engine", &RestoreCall::engine, "snapshot", &RestoreCall::snapshot);
  }
};

// Answer: Able; `why` says which part of the stress the engine leaves out.
struct StressCall {
  static constexpr char kType[] = "stress";
  int engine = 0;
  Stress stress;
  static void fields(auto& v) {
    list_fields(v, "engine", &StressCall::engine, "stress", &StressCall::stress);
  }
};

// Switches the recording of timelines on or off for later decodes. Answer: Able.
struct SetTimelineCall {
  static constexpr char kType[] = "set_timeline";
  int engine = 0;
  bool on = false;
  static void fields(auto& v) {
    list_fields(v, "engine", &SetTimelineCall::engine, "on", &SetTimelineCall::on);
  }
};

// The timeline of the last decode. The arena has room for `room` spans. Answer: TimelineTold.
struct TimelineCall {
  static constexpr char kType[] = "timeline";
  int engine = 0;
  int64_t room = 0;
  static void fields(auto& v) {
    list_fields(v, "engine", &TimelineCall::engine, "room", &TimelineCall::room);
  }
};

// hidden(layer) if `position` is absent, else kv_row(layer, position). Answer: Floats.
struct StateCall {
  static constexpr char kType[] = "state";
  int engine = 0, layer = 0;
  std::optional<int> position;
  static void fields(auto& v) {
    list_fields(v, "engine", &StateCall::engine, "layer", &StateCall::layer, "position",
                &StateCall::position);
  }
};

// The arena holds the logits of all runs in turn if `logits` is set. Answer: Explained.
struct ExplainCall {
  static constexpr char kType[] = "explain";
  int engine = 0;
  BugQuestion question;
  bool logits = false;
  static void fields(auto& v) {
    list_fields(v, "engine", &ExplainCall::engine, "question", &ExplainCall::question, "logits",
                &ExplainCall::logits);
  }
};

// Answer: Able.
struct SkipToCall : PositionCall {
  static constexpr char kType[] = "skip_to";
};

// Answer: Able; `why` says why the engine has no ablation.
struct AblateCall {
  static constexpr char kType[] = "ablate";
  int engine = 0;
  Ablation ablation = Ablation::kNone;
  static void fields(auto& v) {
    list_fields(v, "engine", &AblateCall::engine, "ablation", &AblateCall::ablation);
  }
};

// ---- to a host: calls of the process ----

// An engine's bytes on its device and, with `folder`, what a step of that model reads: Described.
struct DescribeCall {
  static constexpr char kType[] = "describe";
  EngineRequest request;
  ModelConfig config;
  std::string folder{}, values{};
  static void fields(auto& v) {
    list_fields(v, "request", &DescribeCall::request, "config", &DescribeCall::config, "folder",
                &DescribeCall::folder, "values", &DescribeCall::values);
  }
};

// Answered at once: the time of the round trip is the cost of a call. Answer: Answered.
struct PingCall {
  static constexpr char kType[] = "ping";
  static void fields(auto&) {}
};

// Waits until the host's work on its device is over. Answer: Answered.
struct FinishCall {
  static constexpr char kType[] = "finish";
  static void fields(auto&) {}
};

// Prepares L2 for a timed part (device/l2_flush.h); does nothing for a CPU. Answer: Flushed.
struct FlushCall {
  static constexpr char kType[] = "flush";
  bool cuda = false;
  int gpu = 0;
  static void fields(auto& v) { list_fields(v, "cuda", &FlushCall::cuda, "gpu", &FlushCall::gpu); }
};

// ---- to a host: questions about the machine ----

// Asks a host of CUDA engines for the GPUs. Answer: CardFacts.
struct CardCall {
  static constexpr char kType[] = "card";
  int gpu = 0;
  bool compute = false;               // runs one real operation on the GPU
  std::vector<std::string> models{};  // for each: asks whether ring can run it
  static void fields(auto& v) {
    list_fields(v, "gpu", &CardCall::gpu, "compute", &CardCall::compute, "models",
                &CardCall::models);
  }
};

// Asks a host of libtorch engines about its libtorch. Answer: TorchTold.
struct TorchCall {
  static constexpr char kType[] = "torch";
  std::optional<int> compute_on{};  // runs one real matrix product on that GPU
  static void fields(auto& v) { list_fields(v, "compute_on", &TorchCall::compute_on); }
};

// `mkbench tune`, and run --tune. Answers: StageTold for each stage, then Tuned.
struct TuneCall {
  static constexpr char kType[] = "tune";
  int gpu = 0;
  std::string model = "synthetic";  // whose layer shape is measured, with analytic weights
  static void fields(auto& v) { list_fields(v, "gpu", &TuneCall::gpu, "model", &TuneCall::model); }
};

using ToHost =
    std::variant<OpenCall, PlainCall, PrefillCall, DecodeCall, SetPendingCall, RewindCall,
                 TraceCall, SaveCall, RestoreCall, StressCall, SetTimelineCall, TimelineCall,
                 StateCall, ExplainCall, SkipToCall, AblateCall, DescribeCall, PingCall, FinishCall,
                 DequantisedCall, ValuesCall, FlushCall, CardCall, TorchCall, TuneCall>;

// ---- from a host; Hello comes first, and a parent takes only a host of its own build ----

struct Hello {
  static constexpr char kType[] = "hello";
  std::string build, program;
  static void fields(auto& v) {
    list_fields(v, "build", &Hello::build, "program", &Hello::program);
  }
};

struct Answered {
  static constexpr char kType[] = "ok";
  EngineState state;
  static void fields(auto& v) { list_fields(v, "state", &Answered::state); }
};

struct Opened {
  static constexpr char kType[] = "opened";
  int engine = 0;
  EngineCapabilities capabilities;
  std::string settings;  // Engine::settings(), or the library settings that the engine pins
  EngineState state;
  static void fields(auto& v) {
    list_fields(v, "engine", &Opened::engine, "capabilities", &Opened::capabilities, "settings",
                &Opened::settings, "state", &Opened::state);
  }
};

struct Prefilled {
  static constexpr char kType[] = "prefilled";
  EngineState state;
  HostInterval interval;
  static void fields(auto& v) {
    list_fields(v, "state", &Prefilled::state, "interval", &Prefilled::interval);
  }
};

// The arena holds `ids` ids.
struct Decoded {
  static constexpr char kType[] = "decoded";
  EngineState state;
  int ids = 0;
  HostInterval interval;
  DecodeTimes times;
  static void fields(auto& v) {
    list_fields(v, "state", &Decoded::state, "ids", &Decoded::ids, "interval", &Decoded::interval,
                "times", &Decoded::times);
  }
};

struct Traced {
  static constexpr char kType[] = "traced";
  EngineState state;
  LaunchTrace trace;
  static void fields(auto& v) { list_fields(v, "state", &Traced::state, "trace", &Traced::trace); }
};

// The arena holds the `spans` spans that found room; timeline.lost includes those that did not.
struct TimelineTold {
  static constexpr char kType[] = "timeline_told";
  int64_t spans = 0;
  Timeline timeline;  // without its spans
  static void fields(auto& v) {
    list_fields(v, "spans", &TimelineTold::spans, "timeline", &TimelineTold::timeline);
  }
};

// By the host's clock: the parent's would include the two processes' waits for each other.
struct Flushed {
  static constexpr char kType[] = "flushed";
  double ms = 0;
  static void fields(auto& v) { list_fields(v, "ms", &Flushed::ms); }
};

struct Saved {
  static constexpr char kType[] = "saved";
  Snapshot snapshot;
  static void fields(auto& v) { list_fields(v, "snapshot", &Saved::snapshot); }
};

// `floats`: how many numbers the arena holds; absent if the engine does not show that state.
struct Floats {
  static constexpr char kType[] = "floats";
  std::optional<int> floats;
  static void fields(auto& v) { list_fields(v, "floats", &Floats::floats); }
};

// Absent if the engine explains nothing.
struct Explained {
  static constexpr char kType[] = "explained";
  std::optional<BugFits> fits;
  static void fields(auto& v) { list_fields(v, "fits", &Explained::fits); }
};

struct Able {
  static constexpr char kType[] = "able";
  bool able = false;
  std::string why;
  EngineState state;
  static void fields(auto& v) {
    list_fields(v, "able", &Able::able, "why", &Able::why, "state", &Able::state);
  }
};

struct Described {
  static constexpr char kType[] = "described";
  int64_t bytes = 0;
  StepReads reads{};
  static void fields(auto& v) {
    list_fields(v, "bytes", &Described::bytes, "reads", &Described::reads);
  }
};

// The call failed; the host can go on. traceback: of an exception in an engine's Python code.
struct Failed {
  static constexpr char kType[] = "failed";
  ErrorKind kind = ErrorKind::kRuntime;
  std::string message, traceback{};
  static void fields(auto& v) {
    list_fields(v, "kind", &Failed::kind, "message", &Failed::message, "traceback",
                &Failed::traceback);
  }
};

struct StageTold {
  static constexpr char kType[] = "stage";
  std::string stage;  // of a call that is still running
  static void fields(auto& v) { list_fields(v, "stage", &StageTold::stage); }
};

// Where a running engine is; sent over the second channel when kAskProgress arrives on it.
struct ProgressTold {
  static constexpr char kType[] = "progress";
  int position = -1, layer = -1;
  std::string phase;
  static void fields(auto& v) {
    list_fields(v, "position", &ProgressTold::position, "layer", &ProgressTold::layer, "phase",
                &ProgressTold::phase);
  }
};

// A host's report on its call that stands still, the answer to kAskHang on the second channel.
struct HangTold {
  static constexpr char kType[] = "hang";
  int64_t launches = -1, decodes = -1;  // before the call: one of the two; -1: no engine is in one
  int position = -1, layer = -1;
  std::string phase{};
  std::optional<Standstill> launch{};  // absent if the engine cannot tell
  static void fields(auto& v) {
    list_fields(v, "launches", &HangTold::launches, "decodes", &HangTold::decodes, "position",
                &HangTold::position, "layer", &HangTold::layer, "phase", &HangTold::phase, "launch",
                &HangTold::launch);
  }
};

struct CardFacts {
  static constexpr char kType[] = "card";
  DeviceList devices;
  std::string architectures;                 // that this build has code for
  std::vector<RingObstacle> ring_obstacles;  // of the models asked for
  std::optional<DeviceCheck> check;
  static void fields(auto& v) {
    list_fields(v, "devices", &CardFacts::devices, "architectures", &CardFacts::architectures,
                "ring_obstacles", &CardFacts::ring_obstacles, "check", &CardFacts::check);
  }
};

struct TorchTold {
  static constexpr char kType[] = "torch";
  std::string version, cuda_version, architectures, settings;
  bool cuda_available = false;
  std::optional<DeviceCheck> check{};
  static void fields(auto& v) {
    list_fields(v, "version", &TorchTold::version, "cuda_version", &TorchTold::cuda_version,
                "architectures", &TorchTold::architectures, "settings", &TorchTold::settings,
                "cuda_available", &TorchTold::cuda_available, "check", &TorchTold::check);
  }
};

struct Tuned {
  static constexpr char kType[] = "tuned";
  std::string gpu, table_row;
  int tokens = 0, launches = 0, split_depth = 0, split_tokens = 0;
  std::vector<TuneSweep> sweeps;
  std::vector<TunedTime> head, splits;
  static void fields(auto& v) {
    list_fields(v, "gpu", &Tuned::gpu, "table_row", &Tuned::table_row, "tokens", &Tuned::tokens,
                "launches", &Tuned::launches, "split_depth", &Tuned::split_depth, "split_tokens",
                &Tuned::split_tokens, "sweeps", &Tuned::sweeps, "head", &Tuned::head, "splits",
                &Tuned::splits);
  }
};

using FromHost =
    std::variant<Hello, Answered, Opened, Prefilled, Decoded, Traced, TimelineTold, Flushed, Saved,
                 Floats, Explained, Able, Described, Failed, StageTold, ProgressTold, HangTold,
                 CardFacts, TorchTold, Tuned, ValuesTold, WeightTaken>;

nlohmann::json to_json(const ToHost& call);
nlohmann::json to_json(const FromHost& answer);
// Both throw Error(kBadInput) naming the field, the value found and what was wanted.
ToHost call_from_json(const nlohmann::json& j);
FromHost answer_from_json(const nlohmann::json& j);

}  // namespace mkbench
