// Answers calls: holds engines and weights, and does what is asked. Independent of sockets.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/device/nvtx.h"
#include "harness/host/factory.h"
#include "harness/wire/arena.h"
#include "harness/wire/calls.h"

namespace mkbench {

// What a program can do besides calling engines. An empty function is not offered.
struct HostProgram {
  std::string name;  // "mkbench-host-cuda"
  EngineFactory factory;
  std::function<void()> finish;  // waits until the device work of this process is over
  std::function<void(const FlushCall&)> flush;
  // Runs `work`, waits for the card, and returns what `work` handed to the card. Nothing may be
  // timed in this process afterwards.
  std::function<LaunchTrace(const std::function<void()>& work)> trace;
  std::function<CardFacts(const CardCall&)> card;
  std::function<TorchTold(const TorchCall&)> torch;
  std::function<Tuned(const TuneCall&, const std::function<void(const std::string&)>& say)> tune;
  std::function<int64_t()> device_bytes = {};  // taken on the current device by all programs
};

class Server {
 public:
  // `tell` is called with each stage of a running call.
  Server(const HostProgram& program, Arena& arena, std::function<void(const FromHost&)> tell)
      : program_(program), arena_(arena), tell_(std::move(tell)) {}

  // Does what the call asks; whatever is thrown becomes Failed.
  FromHost answer(const ToHost& call);
  // Position, layer and phase of the running call's engine. May be called from another thread.
  ProgressTold progress();
  // What the engine of the running or last call reports about its standstill. May be called from
  // another thread.
  HangTold hang();

 private:
  struct HeldEngine {
    std::unique_ptr<Engine> engine;
    std::string name;
    int vocab = 0;
    bool cuda = false, counted = true;
  };

  void finish(const HeldEngine& held) const;

  FromHost take(const OpenCall& call);
  FromHost take(const PlainCall& call);
  FromHost take(const PrefillCall& call);
  FromHost take(const DecodeCall& call);
  FromHost take(const SetPendingCall& call);
  FromHost take(const RewindCall& call);
  FromHost take(const TraceCall& call);
  FromHost take(const SaveCall& call);
  FromHost take(const RestoreCall& call);
  FromHost take(const StressCall& call);
  FromHost take(const SetTimelineCall& call);
  FromHost take(const TimelineCall& call);
  FromHost take(const StateCall& call);
  FromHost take(const ExplainCall& call);
  FromHost take(const DequantisedCall& call);
  FromHost take(const SkipToCall& call);
  FromHost take(const AblateCall& call);
  FromHost take(const DescribeCall& call);
  FromHost take(const ValuesCall& call);
  FromHost take(const PingCall& call);
  FromHost take(const FinishCall& call);
  FromHost take(const FlushCall& call);
  FromHost take(const CardCall& call);
  FromHost take(const TorchCall& call);
  FromHost take(const TuneCall& call);

  template <typename Function>
  const Function& offered(const Function& function, const char* what) const;
  void watch(const HeldEngine* held);
  HeldEngine& engine(int number);
  std::vector<int32_t> decode(Engine& engine, const DecodeCall& call, const int32_t* forced,
                              float* logits);
  const ModelWeights& weights_at(const WeightsPlace& place);

  const HostProgram& program_;
  Arena& arena_;
  const std::function<void(const FromHost&)> tell_;
  ModelWeights weights_;
  std::pair<std::string, std::string> loaded_;  // folder and stamp of weights_
  std::map<int, HeldEngine> engines_;
  int last_number_ = 0;
  std::optional<NvtxRange> shared_range_;  // around several decodes
  std::mutex mutex_;                       // guards running_ and its use by progress() and hang()
  const HeldEngine* running_ = nullptr;
  int64_t launches_ = 0;  // launch count of running_ before the running call
  std::string called_;    // "NAME: " of the engine of the running call; empty without one
};

}  // namespace mkbench
