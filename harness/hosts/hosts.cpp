#include "harness/hosts/hosts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <set>
#include <thread>

#include "harness/device/host_machine.h"
#include "harness/device/program_output.h"
#include "harness/hosts/host_process.h"
#include "harness/wire/build_id.h"
#include "references/base/data_root.h"
#include "references/base/error.h"
#include "references/shared_snapshot.h"
#include "references/snapshot.h"

namespace mkbench {
namespace {

constexpr char kJudgesRuns[] = "the judge's runs", kCard[] = "the card";
// Device work that is still running kLeftBehindS after its call has returned counts as left behind;
// the wait for its end takes at most kLeftBehindLimitS.
constexpr double kLeftBehindS = 0.25, kLeftBehindLimitS = 5;
// The card is busy if most of kCardTries flushes exceed kBusyFactor x the quiet time + kBusyMs: a
// kernel of another context keeps the card for a time slice of about 2 ms before a flush runs.
constexpr int kCardTries = 5, kQuietTries = 16;
constexpr double kBusyFactor = 2, kBusyMs = 1;
// If this many consecutive looks find work on the card, the engine has left it behind, even if each
// piece of work had ended at the second look.
constexpr int kMostDoubts = 3;
// How long the card may take to become quiet, unless --timeout is shorter. A kernel that shares
// the card by time slices lets some flushes pass, so quiet means that none of kQuietTries waits.
constexpr double kQuietWaitS = 10;

// A host that cannot be stopped is dead afterwards; the next call to it reports why.
void stop_other(HostLink& link) {
  try {
    link.stop();
  } catch (const Error&) {
    if (link.alive()) throw;
  }
}

// The file that a shell would run for `name`; `name` itself where it is a path, or is not found.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const std::string found = find_in(path_folders(), name);
  return found.empty() ? name : found;
}

}  // namespace

HostEngine& host_engine(Engine& engine) {
  if (auto* held = dynamic_cast<HostEngine*>(&engine)) return *held;
  throw Error(ErrorKind::kRuntime, "no host holds this engine");
}

HostCommand host_command(HostKind kind, const std::string& holds, const std::string& python) {
  const std::filesystem::path here = program_folder();
  HostCommand command{.argv = {}, .build = build_id(), .holds = holds};
  if (kind == HostKind::kPython) {
    command.argv = {python.empty() ? own_python() : find_program(python),
                    (data_root() / "scripts" / "host.py").string(),
                    (here / "libmkbench_python_recorder.so").string()};
    command.greeting = {{"build", command.build}, {"fields", wire_fields()}};
  } else {
    const char* name = kind == HostKind::kTorch ? "mkbench-host-torch" : "mkbench-host-cuda";
    command.argv = {(here / name).string()};
  }
  return command;
}

StartHost start_processes(const std::string& python) {
  return [python](HostKind kind, const std::string& holds) -> std::shared_ptr<HostLink> {
    return std::make_shared<HostProcess>(host_command(kind, holds, python));
  };
}

std::shared_ptr<HostLink> Hosts::shared_link(const std::string& holds, HostKind kind) {
  std::shared_ptr<HostLink>& link = links_[holds];
  if (link == nullptr || !link->alive()) {
    link = start_(kind, holds);
    link->on_traceback = [this, holds](const Failed& failed) { tracebacks_[holds] = failed; };
    link->on_hang = on_hang_;
    link->on_wait = [this](const std::string& text) { on_wait(text); };
    link->card_busy = [this] { return card_busy && card_busy(); };
  }
  return link;
}

std::string Hosts::holder_of(const std::string& engine) const {
  if (engine != kTruthName && engine != kHeadFp32Name) return engine;
  return one_ ? kJudgeName : kJudgesRuns;
}

void Hosts::end_idle(const std::string& but) {
  for (auto it = links_.begin(); it != links_.end();) {
    it = it->first != but && it->second.use_count() == 1 ? links_.erase(it) : std::next(it);
  }
}

void Hosts::end_process(const std::string& engine) {
  const std::string holds = holder_of(engine);
  links_.erase(holds);
  doubts_after_.erase(holds);
  doubts_between_.erase(holds);
  if (last_turn_ == holds) last_turn_.clear();
}

void Hosts::expect(const std::string& engine) {
  if (!one_) shared_link(holder_of(engine), host_kind(engine));
}

ModelWeights Hosts::load(const Model& model, int depth) {
  const Model found = model_at_depth(model, depth);
  const auto key = [&] { return found.name + " " + snapshot_stamp(weights_.folder); };
  if (!weights_.folder.empty() && loaded_ == key()) return weights_;
  weights_ = ModelWeights{};  // freed before the next ones are made
  weights_ = share_weights(load_model(found, {.sha256 = "", .share = true}));
  loaded_ = key();
  return weights_;
}

std::unique_ptr<Engine> Hosts::open(const EngineRequest& request, const ModelWeights& weights) {
  if (one_) end_idle(holder_of(request.name));
  // Before the first engine of the run the card is as quiet as it will ever be.
  if (request.cuda && !one_ && quiet_card_ms_ == 0) {
    const FlushCall flush{true, request.gpu};
    for (int i = 0; i < 2; ++i) try_card(flush);  // the first flush allocates the buffer
    for (int i = 0; i < kQuietTries; ++i)
      quiet_card_ms_ = std::max(quiet_card_ms_, try_card(flush));
  }
  const std::string holds = holder_of(request.name);
  const HostKind kind = host_kind(request.name);
  auto engine =
      std::make_unique<HostEngine>(shared_link(holds, kind), request, weights, timeout_s_);
  if (request.cuda && !one_ && kind == HostKind::kPython)
    context_bytes_.try_emplace(holds, largest_context());
  return engine;
}

int64_t Hosts::bytes(const EngineRequest& request, const ModelConfig& config) {
  DescribeCall call{request, config};
  call.request.name = name_in_host(request.name);
  return ask<Described>(link(holder_of(request.name), host_kind(request.name)), call, kQuestion)
      .bytes;
}

int64_t Hosts::idle_bytes(const std::string& engine) {
  const std::string holds = holder_of(engine);
  const auto [found, is_new] = idle_bytes_.try_emplace(holds, 0);
  if (is_new) {
    ask<Answered>(link(holds, host_kind(engine)), PingCall{},
                  kQuestion);  // its libraries are loaded when it answers
    found->second = mkbench::resident_bytes(link(holds, host_kind(engine)).facts().pid);
  }
  return found->second;
}

int64_t Hosts::resident_bytes() {
  std::set<int> pids = {getpid()};
  for (const auto& [holds, link] : links_) {
    if (link->alive()) pids.insert(link->facts().pid);
  }
  return std::accumulate(pids.begin(), pids.end(), int64_t{0},
                         [](int64_t sum, int pid) { return sum + mkbench::resident_bytes(pid); });
}

int64_t Hosts::context_bytes(const std::string& engine, const FlushCall& flush,
                             const std::function<int64_t()>& free_bytes) {
  if (one_ || !flush.cuda) return 0;
  const std::string holds = holder_of(engine);
  if (const auto found = context_bytes_.find(holds); found != context_bytes_.end())
    return found->second;
  if (host_kind(engine) == HostKind::kPython) return largest_context();
  const int64_t before = free_bytes();
  ask<Flushed>(link(holds, host_kind(engine)), flush, kQuestion);
  return context_bytes_[holds] = std::max(int64_t{0}, before - free_bytes());
}

int64_t Hosts::largest_context() const {
  int64_t largest = 0;
  for (const auto& [holds, of_one] : context_bytes_) largest = std::max(largest, of_one);
  return largest;
}

int64_t Hosts::held_context_bytes() const {
  int64_t bytes = 0;
  for (const auto& [holds, of_one] : context_bytes_) {
    const auto found = links_.find(holds);
    if (found != links_.end() && found->second->alive()) bytes += of_one;
  }
  return bytes;
}

HostLink& Hosts::about_card() { return link(kCard, HostKind::kCuda); }

void Hosts::end_judges_runs() { links_.erase(kJudgesRuns); }

void Hosts::take_turn(Engine& engine, const FlushCall& flush) {
  HostLink& own = host_engine(engine).link();
  for (auto& [holds, link] : links_) {
    if (link.get() != &own) stop_other(*link);
  }
  // FinishCall waits for the work that prepared this turn, so work that is found afterwards belongs
  // to another engine or program.
  ask<Answered>(own, FinishCall{}, kQuestion);
  if (last_turn_ != holder_of(host_engine(engine).name())) need_quiet_card(flush);
  last_turn_ = holder_of(host_engine(engine).name());
  ask<Flushed>(own, flush, kQuestion);
}

LaunchTrace Hosts::trace(Engine& engine, int n) {
  HostEngine& traced = host_engine(engine);
  links_.erase(holder_of(traced.name()));
  try {
    return traced.trace(n);
  } catch (const Error& error) {
    if (!traced.link().alive()) throw;
    return {.problem = error.what()};
  }
}

double Hosts::try_card(const FlushCall& flush) {
  return ask<Flushed>(about_card(), flush, kQuestion).ms;
}

// Describes other work on the card, which shows if more than `most_slow` of `tries` flushes wait.
// Empty if the card is quiet, on a CPU, and after hold_one(true), as only one process may use it.
std::string Hosts::card_work(const FlushCall& flush, int tries, int most_slow) {
  if (!flush.cuda || one_ || quiet_card_ms_ == 0) return "";
  int slow = 0;
  double slowest_ms = 0;
  for (int i = 0; i < tries; ++i) {
    const double ms = try_card(flush);
    slow += ms > kBusyFactor * quiet_card_ms_ + kBusyMs;
    slowest_ms = std::max(slowest_ms, ms);
  }
  if (slow <= most_slow) return "";
  return fmt::format(
      "after the call had returned, {} of {} flushes of L2 by another process waited and took up "
      "to {:.2f} ms; on the quiet card {:.2f} ms",
      slow, tries, slowest_ms, quiet_card_ms_);
}

Hosts::CardLook Hosts::look_for_work(int& doubts, const FlushCall& flush) {
  CardLook look{card_work(flush, kCardTries, kCardTries / 2), false};
  if (look.found.empty()) {
    doubts = 0;
  } else {
    look.stays = !card_work(flush, kCardTries, kCardTries / 2).empty() || ++doubts == kMostDoubts;
  }
  return look;
}

// Ends the host of an engine: what it has left on the card ends with its contexts. Returns the
// reason for the engine's verdict.
std::string Hosts::end_for_work(const std::string& holds, const std::string& name,
                                const std::string& found) {
  const std::string why = fmt::format("{} left work on its device: {}", name, found);
  if (const auto link = links_.find(holds); link != links_.end()) {
    link->second->end(ErrorKind::kIntegrity, why);
    links_.erase(link);
  }
  return why;
}

// Waits for a quiet card. Work that stays after the host of `name` has ended is another program's.
void Hosts::wait_for_quiet_card(const std::string& name, const FlushCall& flush) {
  const double limit_s = std::min(kQuietWaitS, timeout_s_);
  const auto begin = std::chrono::steady_clock::now();
  const auto waited = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin);
  };
  std::string found;
  do {
    found = card_work(flush, kQuietTries, 0);
    if (found.empty()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  } while (waited().count() < limit_s);
  throw Error(ErrorKind::kEnvUnfit,
              fmt::format("another program uses the card: {}, also {:g} s after the process of {} "
                          "had ended",
                          found, limit_s, name));
}

// Work that appears between two turns was begun by the engine that ran last: all others were
// stopped. The next call of that engine reports it.
void Hosts::need_quiet_card(const FlushCall& flush) {
  const CardLook look = look_for_work(doubts_between_[last_turn_], flush);
  if (look.stays) {
    if (!last_turn_.empty()) end_for_work(last_turn_, last_turn_, look.found);
    wait_for_quiet_card(last_turn_, flush);
  }
  if (flush.cuda && links_.contains(kCard)) stop_other(*links_.at(kCard));
}

std::string Hosts::end_turn(Engine& engine, const FlushCall& flush) {
  const std::string holds = holder_of(host_engine(engine).name()),
                    name = engine.capabilities().name;
  const auto blame = [&](const std::string& found) {
    const std::string why = end_for_work(holds, name, found);
    wait_for_quiet_card(name, flush);
    throw Error(ErrorKind::kIntegrity, why);
  };
  const auto begin = std::chrono::steady_clock::now();
  try {
    ask<Answered>(host_engine(engine).link(), FinishCall{}, {kLeftBehindLimitS, kLeftBehindLimitS});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kHang && error.kind() != ErrorKind::kTimeout) throw;
    blame(fmt::format("it was still busy {:g} s after the call had returned", kLeftBehindLimitS));
  }
  const std::chrono::duration<double> s = std::chrono::steady_clock::now() - begin;
  if (s.count() > kLeftBehindS)
    blame(fmt::format("it was busy for {:.2f} s after the call had returned", s.count()));
  const CardLook look = look_for_work(doubts_after_[holds], flush);
  if (look.stays) blame(look.found);
  return look.found;
}

}  // namespace mkbench
