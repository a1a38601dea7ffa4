#include "harness/parent/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "harness/engines/plugin_file.h"
#include "harness/parent/host_process.h"
#include "harness/wire/build_id.h"
#include "references/base/error.h"
#include "references/model_row.h"
#include "references/shared_snapshot.h"
#include "references/snapshot.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

constexpr char kJudgesRuns[] = "the judge's runs";
// A question that loads nothing.
constexpr CallLimit kQuestion{60, 60};
// Work that is still on the device so long after its call has returned was left behind.
constexpr double kLeftBehindS = 0.25, kLeftBehindLimitS = 5;
// The card is busy where each of so many flushes takes longer than this. Another context's kernel
// keeps the card for a time slice of about 2 ms before a flush gets its turn.
constexpr int kCardTries = 3, kQuietTries = 16;
constexpr double kBusyFactor = 2, kBusyMs = 1;

HostKind kind_of(const std::string& engine) {
  const EngineRow* row = find_engine(engine_of_run(engine));
  if (row != nullptr) return row->host;
  return engine.ends_with(".py") ? HostKind::kPython : HostKind::kCuda;
}

// A host that cannot be stopped is dead afterwards; whoever asks it next is told why.
void stop_other(HostLink& link) {
  try {
    link.stop();
  } catch (const Error&) {
    if (link.alive()) throw;
  }
}

HostEngine& proxy(Engine& engine) {
  if (auto* host_engine = dynamic_cast<HostEngine*>(&engine)) return *host_engine;
  throw Error(ErrorKind::kRuntime, "an engine that no host holds");
}

}  // namespace

StartHost start_processes() {
  return [](HostKind kind, const std::string& holds) -> std::shared_ptr<HostLink> {
    const std::filesystem::path here =
        std::filesystem::read_symlink("/proc/self/exe").parent_path();
    HostCommand command{.argv = {}, .build = build_id(), .holds = holds};
    if (kind == HostKind::kPython) {
      command.argv = {MKBENCH_BUILD_PYTHON, MKBENCH_SOURCE_DIR "/scripts/host.py"};
      command.build = wire_fields_hash();
    } else {
      const char* name = kind == HostKind::kTorch ? "mkbench-host-torch" : "mkbench-host-cuda";
      command.argv = {(here / name).string()};
    }
    return std::make_shared<HostProcess>(std::move(command));
  };
}

std::shared_ptr<HostLink> Hosts::shared_link(const std::string& holds, HostKind kind) {
  std::shared_ptr<HostLink>& link = links_[holds];
  if (link == nullptr || !link->alive()) link = start_(kind, holds);
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

void Hosts::expect(const std::string& engine) {
  if (!one_) shared_link(holder_of(engine), kind_of(engine));
}

ModelWeights Hosts::load(const std::string& model, int depth) {
  const ModelSpec spec = resolve_model(model);
  const bool by_depth = is_analytic(spec.row) && spec.row->lagset.empty();
  const std::string name =
      spec.name + (by_depth ? ":" + std::string(synthetic_lagset_for_depth(depth)) : "");
  const auto key = [&] { return name + " " + snapshot_stamp(weights_.folder); };
  if (!weights_.folder.empty() && loaded_ == key()) return weights_;
  weights_ = ModelWeights{};  // freed before the next ones are made
  weights_ = share_weights(load_model(spec, depth, {.sha256 = "", .share = true}));
  loaded_ = key();
  return weights_;
}

std::unique_ptr<Engine> Hosts::open(const EngineRequest& request, const ModelWeights& weights) {
  if (one_) end_idle(holder_of(request.name));
  // Before the first engine of the run the card is as quiet as it will ever be.
  if (request.cuda && !one_ && quiet_card_ms_ == 0) {
    const FlushCall flush{true, request.gpu};
    for (int i = 0; i < 2; ++i) try_card(flush);  // the first one makes the buffer
    for (int i = 0; i < kQuietTries; ++i)
      quiet_card_ms_ = std::max(quiet_card_ms_, try_card(flush));
  }
  return std::make_unique<HostEngine>(shared_link(holder_of(request.name), kind_of(request.name)),
                                      request, weights, timeout_s_);
}

int64_t Hosts::bytes(const EngineRequest& request, const ModelConfig& config) {
  return ask<Described>(link(holder_of(request.name), kind_of(request.name)),
                        DescribeCall{request, config}, kQuestion)
      .bytes;
}

void Hosts::end_judges_runs() { links_.erase(kJudgesRuns); }

void Hosts::take_turn(Engine& engine, const FlushCall& flush) {
  HostLink& own = proxy(engine).link();
  for (auto& [holds, link] : links_) {
    if (link.get() != &own) stop_other(*link);
  }
  ask<Answered>(own, flush, kQuestion);
}

double Hosts::try_card(const FlushCall& flush) {
  const auto begin = std::chrono::steady_clock::now();
  ask<Answered>(about_card(), flush, kQuestion);
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
  return ms.count();
}

// The engine's host is ended: what it has left on the card ends with its contexts.
void Hosts::blame_for_work(Engine& engine, const std::string& found) {
  links_.erase(holder_of(proxy(engine).name()));
  proxy(engine).link().end();
  throw Error(ErrorKind::kIntegrity,
              fmt::format("{} left work on its device: {}", engine.capabilities().name, found));
}

void Hosts::end_turn(Engine& engine, const FlushCall& flush) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    ask<Answered>(proxy(engine).link(), FinishCall{}, {kLeftBehindLimitS, kLeftBehindLimitS});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kHang && error.kind() != ErrorKind::kTimeout) throw;
    blame_for_work(
        engine, fmt::format("it was busy {:g} s after the call had returned", kLeftBehindLimitS));
  }
  const std::chrono::duration<double> s = std::chrono::steady_clock::now() - begin;
  if (s.count() > kLeftBehindS)
    blame_for_work(engine,
                   fmt::format("it was busy {:.2f} s after the call had returned", s.count()));
  if (!flush.cuda || one_) return;  // another process on the card may not be permitted
  double ms = 0;
  for (int i = 0; i < kCardTries; ++i) {
    ms = try_card(flush);
    if (ms <= kBusyFactor * quiet_card_ms_ + kBusyMs) return;
  }
  blame_for_work(engine,
                 fmt::format("after the call had returned, a flush of L2 by another process "
                             "took {:.2f} ms, {} times in a row; on the quiet card {:.2f} ms",
                             ms, kCardTries, quiet_card_ms_));
}

}  // namespace mkbench
