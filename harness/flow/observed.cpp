#include "harness/flow/observed.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "harness/flow/timed_truth.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

// After kLeastPairs, measuring the cost of handing over stops once it took kMostHandoverS.
constexpr int kLeastPairs = 3;
constexpr double kMostHandoverS = 2;

}  // namespace

std::string ObservedDecodes::obstacle(const Contestant& c) const {
  if (!c.engine->capabilities().logits) return "it gives no logits";
  const int64_t bytes = int64_t{job_.n_gen} * vocab_ * int64_t{sizeof(float)};
  if (bytes <= kMostLogitBytes) return {};
  return fmt::format("logits of {} tokens take {} MiB, at most {} are asked for", job_.n_gen,
                     bytes >> 20, kMostLogitBytes >> 20);
}

double ObservedDecodes::time(Engine& engine, int n, float* logits) const {
  services_.take_turn(engine);
  const TimedCall call = services_.timed(engine, [&] { engine.decode(n, nullptr, logits); });
  const std::string left = services_.end_turn(engine);
  return call.doubt.empty() && left.empty() ? call.ms : -1;
}

void ObservedDecodes::measure_handover(Contestant& c, int process,
                                       const std::function<int32_t()>& draw) {
  if (const std::string why = obstacle(c); !why.empty())
    return sink_.send(EngineObserved{.engine = c.name, .reason = why});
  HandoverTimes times{process, std::min(kHandoverTokens, job_.n_gen), {}, {}};
  std::vector<float> logits(static_cast<size_t>(times.tokens) * static_cast<size_t>(vocab_));
  const double begin = services_.now();
  for (int pair = 0; pair < kHandoverPairs; ++pair) {
    if (pair >= kLeastPairs && services_.now() - begin > kMostHandoverS) break;
    if (services_.stop()) throw Interrupted{};
    const auto one = [&](float* out) {
      start_afresh(*c.engine, {draw()});
      return time(*c.engine, times.tokens, out);
    };
    const double bare = one(nullptr), shown = one(logits.data());
    if (bare < 0 || shown < 0) continue;
    times.bare_ms.push_back(bare);
    times.shown_ms.push_back(shown);
  }
  if (times.bare_ms.empty()) return;
  measured_in_[c.name] = process;
  sink_.send(EngineObserved{.engine = c.name, .handover = times});
}

bool ObservedDecodes::is_due(const Contestant& c, int process, int block, int of_process) {
  const auto [due, is_new] = due_.try_emplace(block, of_process == 0);
  if (is_new && of_process >= kObservedShare) {
    const int group = of_process / kObservedShare;
    const uint64_t key = (static_cast<uint64_t>(process) << 32) + static_cast<uint64_t>(group);
    const uint64_t draw = splitmix64(job_.seed ^ splitmix64(key)) % kObservedShare;
    due->second = of_process % kObservedShare == static_cast<int>(draw);
  }
  const auto measured = measured_in_.find(c.name);
  return due->second && c.alive && measured != measured_in_.end() && measured->second == process;
}

void ObservedDecodes::observe(Contestant& c, int process, int block,
                              const std::function<void()>& begin) {
  std::vector<float> logits(static_cast<size_t>(job_.n_gen) * static_cast<size_t>(vocab_));
  // The first decode of this length with logits allocates memory for them: it is not timed.
  const auto [warmed, is_new] = warmed_in_.try_emplace(c.name, process);
  const bool is_cold = is_new || warmed->second != process;
  warmed->second = process;
  double ms = 0;
  for (int run = is_cold ? 0 : 1; run < 2; ++run) {
    if (services_.stop()) throw Interrupted{};
    begin();
    ms = time(*c.engine, job_.n_gen, logits.data());
  }
  if (ms < 0) return;
  sink_.send(
      EngineObserved{.engine = c.name, .decode = ObservedDecode{process, block, job_.n_gen, ms}});
}

}  // namespace mkbench
