// The hosts of a run: which process holds which engine, and whose turn it is.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/engines/registry.h"
#include "harness/hosts/host_engine.h"
#include "harness/hosts/host_process.h"
#include "harness/hosts/stated_values.h"
#include "harness/wire/host_link.h"
#include "references/snapshot.h"

namespace mkbench {

// Starts a host of a kind; `holds` is what messages call it.
using StartHost = std::function<std::shared_ptr<HostLink>(HostKind kind, const std::string& holds)>;

// The proxy behind an engine that Hosts::open() has made. Throws Error for any other engine.
HostEngine& host_engine(Engine& engine);
// The program of a host: one in this program's folder, or `python` as start_processes() takes it.
HostCommand host_command(HostKind kind, const std::string& holds, const std::string& python);

// Returns a function that starts the host programs in this program's folder, and engines in Python
// with `python`: a path, a name on PATH, or empty for the build's interpreter.
StartHost start_processes(const std::string& python = {});

// Each engine has its own host, which lives from its first use to the end of the run; engines of
// the same name share it. The judge's two other runs (truth, fp32 head) share a host, which is
// closed while anything is timed.
class Hosts {
 public:
  // `on_hang` is called for every call that hung.
  Hosts(
      StartHost start, double timeout_s, OnHang on_hang = [](const HangReport&) {})
      : start_(std::move(start)), timeout_s_(timeout_s), on_hang_(std::move(on_hang)) {}

  // Set before the first call of a host: HostLink::on_wait and HostLink::card_busy of all hosts.
  std::function<void(const std::string&)> on_wait = [](const std::string&) {};
  std::function<bool()> card_busy;  // may be unset

  // Starts the host of an engine without waiting for it.
  void expect(const std::string& engine);
  // Loads a model and shares its weights with the hosts. The last model's weights are kept, and
  // reused if their files have not changed. Throws what load_model() throws.
  ModelWeights load(const Model& model, int depth);
  double timeout_s() const { return timeout_s_; }
  // Opens an engine. Throws what HostLink::call() throws.
  std::unique_ptr<Engine> open(const EngineRequest& request, const ModelWeights& weights);
  int64_t bytes(const EngineRequest& request, const ModelConfig& config);
  // What a step of the model in `folder` reads, found in the host of `truth`, an engine in Python, once.
  // Throws Error(kHang) or Error(kTimeout).
  // With a file of StatedValues, of the weights as their engine says that it keeps them.
  StepReads step_reads(const std::string& truth, const std::filesystem::path& folder,
                       const std::string& values = {});
  // What an engine says that the weights of the last such model stand for. The host of `truth` is asked
  // which weights there are, then the engine for their values, then that host what is wrong with them.
  void begin_values(const std::string& truth, const std::filesystem::path& folder);
  void take_values(Engine& engine);
  void judge_values(const std::string& truth);
  struct Stated {
    std::filesystem::path folder;
    std::string stamp;
    std::vector<WeightShape> weights{};
    std::vector<StatedWeight> taken{};
    // Once they are judged; declared: the engine says how it keeps each weight that it has quantised.
    std::optional<ValuesTold> told{};
    bool declared = false;
    StatedValues values{};
  };
  // Null unless the values of this model's weights were taken.
  const Stated* values_of(const std::filesystem::path& folder) const;
  // Hosts that are asked about the machine: one that holds no engine, and the judge's.
  HostLink& about_card();
  HostLink& about_torch() { return link(kJudgeName, HostKind::kTorch); }

  // From now on at most one process holds engines: a host that holds none is ended before another
  // one opens an engine, and the judge and its two other runs share a host.
  void hold_one(bool one) { one_ = one; }
  // Ends the hosts that hold no engine, except the one of `but`.
  void end_idle(const std::string& but);
  // Ends the host of an engine that is closed, and with it all that it may have left on the card.
  void end_process(const std::string& engine);
  // idle_bytes(): memory of an engine's process before it opened an engine. resident_bytes():
  // memory of this process and all hosts now; pages that they share count once.
  int64_t idle_bytes(const std::string& engine);
  int64_t resident_bytes();
  // Card memory of the context and the flush buffer of an engine's process, measured by a first
  // flush there; 0 if one process at a time may use the card. A Python process has none before its
  // engine's file is loaded, which may take minutes; for it, returns the largest known value.
  int64_t context_bytes(const std::string& engine, const FlushCall& flush,
                        const std::function<int64_t()>& free_bytes);
  // Sum of what context_bytes() has found for the processes that still live.
  int64_t held_context_bytes() const;
  // What the hosts have started in sessions of their own, a sentence each. A process is told once.
  std::vector<std::string> take_strays();
  // For each host, the last failure with a traceback; the key is what the host holds.
  const std::map<std::string, Failed>& tracebacks() const { return tracebacks_; }
  // Ends the host of the judge's two other runs.
  void end_judges_runs();
  // Prepares a timed part of `engine`: stops all other hosts and flushes L2 from the engine's own
  // host, which also brings its context onto the card.
  void take_turn(Engine& engine, const FlushCall& flush);
  // Waits until the engine's work on its device is over. On a GPU a host that holds no engine then
  // times flushes of L2, because the wait misses work in other contexts of the engine's process.
  // Throws Error(kIntegrity) for an engine that has left work behind, and ends its host; if work
  // goes on then, it is another process's, and the error is of kind kEnvUnfit. If only the first of
  // two looks finds work, returns what it found: the turn's times then do not count, and an engine
  // with several such turns in a row has left work behind.
  std::string end_turn(Engine& engine, const FlushCall& flush);
  // Records what reaches the card while the engine decodes n tokens. The recorder stays in the
  // engine's process, so no other engine gets this process. Throws Error if the process has died.
  LaunchTrace trace(Engine& engine, int n);

 private:
  static constexpr char kCard[] = "the card";

  std::shared_ptr<HostLink> shared_link(const std::string& holds, HostKind kind);
  HostLink& link(const std::string& holds, HostKind kind) { return *shared_link(holds, kind); }

  // The rest of this part is in hosts_card.cpp.
  // Milliseconds of a flush of L2 by the host that holds no engine: 0.2 on a quiet H100, several
  // if another process has work on the card.
  double try_card(const FlushCall& flush);
  void learn_quiet_card(const FlushCall& flush);
  std::string card_work(const FlushCall& flush, int tries, int most_slow);
  // found: what shows that work is on the card; empty if the card is quiet. stays: a second look
  // finds work too, or the last kMostDoubts looks all found some.
  struct CardLook {
    std::string found;
    bool stays = false;
  };
  // doubts: number of consecutive looks, up to this one, that have found work.
  CardLook look_for_work(int& doubts, const FlushCall& flush);
  // Who has a context on the card, as the driver lists them.
  struct CardUsers {
    std::vector<std::string> with_helpers;  // hosts below which another process has one
    std::string foreign;  // ", process 123 (name)": no host's; empty where that is not known
  };
  CardUsers card_users(const FlushCall& flush);
  std::string wait_for_quiet_card(const FlushCall& flush);
  void need_quiet_card(HostLink& own, const std::string& next, const FlushCall& flush);
  void end_who_works(const std::string& next, const std::string& found, const FlushCall& flush);
  std::string end_for_work(const std::vector<std::string>& suspects, const std::string& found,
                           const FlushCall& flush);
  // A host that cannot be stopped is dead afterwards; the next call to it reports why.
  static void stop_other(HostLink& link);

  void note_strays(const std::string& holds);
  std::string holder_of(const std::string& engine) const;
  int64_t largest_context() const;

  const StartHost start_;
  const double timeout_s_;
  const OnHang on_hang_;
  std::map<std::string, std::shared_ptr<HostLink>> links_;  // key: what the host holds
  std::map<std::string, Failed> tracebacks_;
  std::map<int, std::string> strays_;            // key: process id; empty: told
  std::map<std::string, int64_t> idle_bytes_;    // key: as links_
  std::map<std::string, StepReads> step_reads_;  // key: the folder's stamp
  std::unique_ptr<Stated> values_;
  std::map<std::string, int64_t> context_bytes_;  // key: as links_
  bool one_ = false;
  // Numbers of consecutive looks after a host's turns that found the card busy; key: as links_.
  std::map<std::string, int> doubts_after_;
  std::string last_turn_;  // what the host of the last turn holds
  std::string loaded_;     // model, lag set and salt of weights_, and the stamp of their files
  ModelWeights weights_;
  double quiet_card_ms_ = 0;  // the longest try_card() while nothing ran; 0: not known yet
};

}  // namespace mkbench
