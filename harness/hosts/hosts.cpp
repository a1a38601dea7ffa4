#include "harness/hosts/hosts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>
#include <utility>

#include "harness/device/host_machine.h"
#include "harness/device/process_tree.h"
#include "harness/device/program_output.h"
#include "harness/hosts/host_process.h"
#include "harness/wire/build_id.h"
#include "references/base/data_root.h"
#include "references/base/error.h"
#include "references/base/one_line.h"
#include "references/shared_snapshot.h"
#include "references/snapshot.h"

namespace mkbench {
namespace {

constexpr char kJudgesRuns[] = "the judge's runs";

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

void Hosts::stop_other(HostLink& link) {
  try {
    link.stop();
  } catch (const Error&) {
    if (link.alive()) throw;
  }
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
  const EngineRun run = run_of(engine);
  return !run.of_judge() ? engine : one_ ? run.engine : kJudgesRuns;
}

void Hosts::end_idle(const std::string& but) {
  for (auto it = links_.begin(); it != links_.end();) {
    it = it->first != but && it->second.use_count() == 1 ? links_.erase(it) : std::next(it);
  }
}

void Hosts::note_strays(const std::string& holds) {
  const auto link = links_.find(holds);
  if (link == links_.end() || !link->second->alive()) return;
  const int host = link->second->facts().pid;
  const pid_t session = getsid(host);
  for (const ProcessSeen& one : processes_below(host)) {
    if (one.session == session) continue;
    strays_.try_emplace(
        one.pid,
        fmt::format("the host of {} has process {} in a session of its own: {}; it is stopped "
                    "and ended with its host",
                    holds, one.pid, one_line(one.command)));
  }
}

std::vector<std::string> Hosts::take_strays() {
  for (const auto& [holds, link] : links_) note_strays(holds);
  std::vector<std::string> told;
  for (auto& [pid, text] : strays_) {
    if (!text.empty()) told.push_back(std::exchange(text, {}));
  }
  return told;
}

void Hosts::end_process(const std::string& engine) {
  const std::string holds = holder_of(engine);
  note_strays(holds);
  links_.erase(holds);
  doubts_after_.erase(holds);
  if (last_turn_ == holds) last_turn_.clear();
}

void Hosts::expect(const std::string& engine) {
  if (!one_) shared_link(holder_of(engine), host_kind(engine));
}

ModelWeights Hosts::load(const Model& model, int depth) {
  const Model found = model_at_depth(model, depth);
  const auto key = [&] {
    return fmt::format("{} {} {}", found.name, found.salt, snapshot_stamp(weights_.folder));
  };
  if (!weights_.folder.empty() && loaded_ == key()) return weights_;
  weights_ = ModelWeights{};  // freed before the next ones are made
  weights_ = share_weights(load_model(found, {.sha256 = "", .share = true}));
  loaded_ = key();
  return weights_;
}

std::unique_ptr<Engine> Hosts::open(const EngineRequest& request, const ModelWeights& weights) {
  if (one_) end_idle(holder_of(request.name));
  if (request.cuda && !one_ && quiet_card_ms_ == 0) learn_quiet_card(FlushCall{true, request.gpu});
  const std::string holds = holder_of(request.name);
  const HostKind kind = host_kind(request.name);
  auto engine =
      std::make_unique<HostEngine>(shared_link(holds, kind), request, weights, timeout_s_);
  if (request.cuda && !one_ && kind == HostKind::kPython)
    context_bytes_.try_emplace(holds, largest_context());
  return engine;
}

int64_t Hosts::bytes(const EngineRequest& request, const ModelConfig& config) {
  const DescribeCall call{in_host(request), config};
  return ask<Described>(link(holder_of(request.name), host_kind(request.name)), call, kQuestion)
      .bytes;
}

StepReads Hosts::step_reads(const std::string& truth, const std::filesystem::path& folder,
                            const std::string& values) {
  const auto [known, is_new] = step_reads_.try_emplace(snapshot_stamp(folder) + " " + values);
  if (!is_new) return known->second;
  const DescribeCall call{in_host({.name = truth}), {}, folder.string(), values};
  try {
    idle_bytes(truth);  // now, because the answer needs libraries that the process then keeps
    known->second =
        ask<Described>(link(holder_of(truth), host_kind(truth)), call, CallLimit{}).reads;
  } catch (const Error& error) {
    known->second.unknown = error.what();  // the truth will not open either, and gives the verdict
    if (error.kind() == ErrorKind::kHang || error.kind() == ErrorKind::kTimeout) throw;
  }
  return known->second;
}

void Hosts::begin_values(const std::string& truth, const std::filesystem::path& folder) {
  const ValuesCall call{in_host({.name = truth}).name, folder.string()};
  values_.reset();  // of another model
  auto weights =
      ask<ValuesTold>(link(holder_of(truth), host_kind(truth)), call, CallLimit{}).weights;
  values_ = std::make_unique<Stated>();
  values_->folder = folder;
  values_->stamp = snapshot_stamp(folder);
  values_->weights = std::move(weights);
}

void Hosts::take_values(Engine& engine) {
  values_->taken = values_->values.take(host_engine(engine), values_->weights);
}

void Hosts::judge_values(const std::string& truth) {
  ValuesCall call{in_host({.name = truth}).name, values_->folder.string(), values_->values.file()};
  ValuesTold found;
  bool declared = true;
  for (const StatedWeight& weight : values_->taken) {
    call.weight = weight.name;
    const auto told = ask<ValuesTold>(link(holder_of(truth), host_kind(truth)), call, CallLimit{});
    found.own = found.own || told.own;
    declared = declared && (weight.stored || !told.own);
    found.problem = told.problem;
    if (!found.problem.empty()) break;
  }
  values_->told = found;
  values_->declared = found.own && declared;
}

const Hosts::Stated* Hosts::values_of(const std::filesystem::path& folder) const {
  const bool same = values_ && !values_->taken.empty() && values_->stamp == snapshot_stamp(folder);
  return same ? values_.get() : nullptr;
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
  const std::string holds = holder_of(host_engine(engine).name());
  if (last_turn_ != holds) need_quiet_card(own, holds, flush);
  last_turn_ = holds;
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

}  // namespace mkbench
