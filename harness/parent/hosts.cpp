#include "harness/parent/hosts.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "harness/engines/plugin_file.h"
#include "harness/parent/host_process.h"
#include "harness/wire/build_id.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

constexpr char kJudgesRuns[] = "the judge's runs";
// A question that loads nothing.
constexpr CallLimit kQuestion{60, 60};
// Work that is still on the device so long after its call has returned was left behind.
constexpr double kLeftBehindS = 0.25, kLeftBehindLimitS = 5;

std::string holder_of(const std::string& engine) {
  return engine == kTruthName || engine == kHeadFp32Name ? kJudgesRuns : engine;
}

HostKind kind_of(const std::string& engine) {
  const EngineRow* row = find_engine(engine_of_run(engine));
  if (row != nullptr) return row->host;
  return engine.ends_with(".py") ? HostKind::kPython : HostKind::kCuda;
}

// A host that cannot be stopped is ended by that, and the next call of its own engine says so: it
// is no failure of the engine whose turn it is.
void stop_other(HostLink& link) {
  try {
    link.stop();
  } catch (const Error&) {
  }
}

HostEngine& proxy(Engine& engine) {
  if (auto* host_engine = dynamic_cast<HostEngine*>(&engine)) return *host_engine;
  throw Error(ErrorKind::kRuntime, "an engine that no host holds");
}

}  // namespace

StartHost start_processes() {
  return [](HostKind kind, const std::string& holds) -> std::shared_ptr<HostLink> {
    const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
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

void Hosts::expect(const std::string& engine) { shared_link(holder_of(engine), kind_of(engine)); }

std::unique_ptr<Engine> Hosts::open(const EngineRequest& request, const ModelWeights& weights) {
  return std::make_unique<HostEngine>(shared_link(holder_of(request.name), kind_of(request.name)),
                                      request, weights, timeout_s_);
}

int64_t Hosts::bytes(const EngineRequest& request, const ModelConfig& config) {
  return ask<Described>(link(holder_of(request.name), kind_of(request.name)),
                        DescribeCall{request, config}, kQuestion)
      .bytes;
}

void Hosts::take_turn(Engine& engine, const FlushCall& flush) {
  HostLink& own = proxy(engine).link();
  for (auto it = links_.begin(); it != links_.end();) {
    const bool idle = it->second.use_count() == 1 && it->first == kJudgesRuns;
    if (it->second.get() != &own && !idle) stop_other(*it->second);
    it = idle ? links_.erase(it) : std::next(it);
  }
  ask<Answered>(own, flush, kQuestion);
}

void Hosts::end_turn(Engine& engine) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string name = engine.capabilities().name;
  try {
    ask<Answered>(proxy(engine).link(), FinishCall{}, {kLeftBehindLimitS, kLeftBehindLimitS});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kHang && error.kind() != ErrorKind::kTimeout) throw;
    throw Error(ErrorKind::kIntegrity,
                fmt::format("{} left work on its device: {:g} s after its call had returned the "
                            "device was still busy",
                            name, kLeftBehindLimitS));
  }
  const std::chrono::duration<double> s = std::chrono::steady_clock::now() - begin;
  if (s.count() < kLeftBehindS) return;
  throw Error(ErrorKind::kIntegrity,
              fmt::format("{} left work on its device: it was over {:.2f} s after its call had "
                          "returned",
                          name, s.count()));
}

}  // namespace mkbench
