// Events of a case, sent as they happen: one struct for each kind. The flow of a case sends them to
// an EventSink; the parent's collector makes the report from them.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "harness/report/report.h"
#include "references/config.h"

namespace mkbench {

// What is being done now; a number that is not known is absent.
struct StageProgress {
  std::string stage, engine;  // engine may be empty
  std::optional<int> done{}, total{};
  std::optional<int> position{}, layer{};
  std::string phase{};
};

// Memory that the case needs and that the job's device has free, before anything is loaded.
struct MemoryStated {
  int64_t bytes_needed = 0, bytes_free = 0;
};

// Memory of the job's device that is taken now: CaseServices::held_bytes().
struct MemoryHeld {
  int64_t bytes = 0;
};

struct ModelLoaded {
  std::string model_id, weights_sha256, lagset;
  uint64_t salt = 0;
  std::string head;
  ModelConfig config;
  std::string kind;
  std::vector<std::string> not_covered, notes;
  std::string rounded;
};

// True if `name`, a report's field `reference`, says that its run computed the reference itself.
inline bool is_live_reference(std::string_view name) { return name.starts_with("live"); }

// The references that judge the case, as the report names them.
struct ReferencesFound {
  std::string reference, reference_sha256, reference_versions;
  std::string live_check;  // live_check_text(); empty if no check was made yet or none is needed

  bool is_live() const { return is_live_reference(reference); }
};

// What the timed ids are compared with.
struct TimedCheckChosen {
  std::string timed_check, ids_sha256;
};

struct EngineMade {
  std::string engine;
  EngineFacts facts;
};

// An engine was opened in another process, in which it is going to be timed.
struct ProcessBegun {
  std::string engine;
  int process = 0;  // Sample::process
  ProcessFacts facts;
};

struct WarmedUp {
  std::string engine;
  WarmUp warm_up;
};

struct ParityJudged {
  std::string engine;
  ParityReport parity;
};

// A step of an engine's timed runs that is wrong.
struct StepFailed {
  std::string engine;
  FailureDetails details;
};

// The ablations of an engine, or why there are none.
struct AblationsTaken {
  std::string engine, reason;  // reason: empty if there is a profile
  ProfileReport profile;
};

struct SampleTaken {
  std::string engine;
  Sample sample;
  int64_t launches = 0;  // in timed decodes so far; for the ceiling, all of its process
};

// A block whose samples do not count, because of the card's state while `engine` was timed.
struct BlockDropped {
  int block = 0;
  std::string engine, reason;
};

// How far an engine's clocks lie apart, measured by decodes of one token.
struct ClocksCompared {
  std::string engine;
  ClockOverhead overhead;
};

// What an untimed decode of an engine handed to the card.
struct LaunchesTraced {
  std::string engine;
  LaunchTrace trace;
};

// A sample that was sent before, now with its ids scored by the truth.
struct SampleScored {
  Sample sample;
};

// How much of what a decode must read an engine reads, or why that is not known.
struct EngineAudited {
  std::string engine, text;
};

// One measurement of what an engine takes when it is asked for logits as well, or why there is none.
struct EngineObserved {
  std::string engine, reason{};
  std::optional<HandoverTimes> handover{};
  std::optional<ObservedDecode> decode{};
};

// What the format of the case's model costs.
struct FormatCostFound {
  FormatCost cost;
};

// The verdict on one engine, or on the whole case if `engine` is empty.
struct VerdictGiven {
  std::string engine;
  Verdict verdict = Verdict::kSkipped;
  std::string reason;
};

// The last event of a case that ended by itself.
struct Done {};

// The case ended early because of Ctrl-C.
struct CaseInterrupted {};

using CaseEvent =
    std::variant<StageProgress, MemoryStated, MemoryHeld, ModelLoaded, ReferencesFound,
                 TimedCheckChosen, EngineMade, ProcessBegun, WarmedUp, ParityJudged, StepFailed,
                 AblationsTaken, SampleTaken, SampleScored, BlockDropped, ClocksCompared,
                 LaunchesTraced, EngineAudited, EngineObserved, FormatCostFound, VerdictGiven, Done,
                 CaseInterrupted>;

// Passes events to a function. send() may be called from several threads; the function runs in one
// of them at a time.
class EventSink {
 public:
  explicit EventSink(std::function<void(const CaseEvent&)> take) : take_(std::move(take)) {}
  void send(const CaseEvent& event) {
    const std::lock_guard lock(mutex_);
    take_(event);
  }

 private:
  std::function<void(const CaseEvent&)> take_;
  std::mutex mutex_;
};

}  // namespace mkbench
