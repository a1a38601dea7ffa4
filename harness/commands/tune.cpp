// `mkbench tune`: which pace suits this card. The facts of a card (copies in flight, least distance
// between them, from where on the context is split) are measured here once and then committed as a
// row of kernels/ring/tuning.cpp.
#include "harness/commands/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "harness/commands/commands.h"
#include "harness/commands/launch.h"
#include "harness/device/device_info.h"
#include "harness/report/verdict.h"
#include "harness/worker/machine.h"
#include "harness/worker/services.h"
#include "kernels/plain/megakernel.h"
#include "kernels/ring/megakernel.h"
#include "kernels/ring/tuning.h"
#include "references/error.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

using Json = nlohmann::json;

// Depths that stand for a range of positions, and where that range ends.
struct DepthRange {
  int depth, until;
};
constexpr DepthRange kDepths[] = {
    {0, 256}, {512, 2048}, {4032, 8192}, {16320, std::numeric_limits<int>::max()}};
constexpr int kInFlight[] = {2, 3, 4, 5, 6};
constexpr int kGapCycles[] = {0, 600, 700, 860, 920, 1000};
constexpr int kSplits[] = {96, 128, 192};
constexpr int kTokens = 64, kLaunches = 3;
// Positions at which the choice of a split matters.
constexpr int kSplitDepth = 96, kSplitTokens = 96;

// Median over launches of the microseconds a token, by CUDA events.
double time_launches(Engine& engine, int depth, int tokens) {
  std::vector<double> us;
  for (int i = 0; i < kLaunches; ++i) {
    if (!engine.skip_to(depth))
      throw Error(ErrorKind::kRuntime, "tune: ring cannot take a depth without computing it");
    engine.decode(tokens);
    const double event_ms = engine.last_times().event_ms;
    if (!(event_ms > 0)) throw Error(ErrorKind::kRuntime, "tune: a launch left no times");
    us.push_back(1000 * event_ms / tokens);
  }
  std::nth_element(us.begin(), us.begin() + kLaunches / 2, us.end());
  return us[kLaunches / 2];
}

// The longest depth of the sweep that fits into free memory, with room for the rest.
int deepest(const CaseJob& job, const ModelConfig& config) {
  int most = 0;
  for (const DepthRange& range : kDepths) {
    RingOptions options;
    options.gpu = job.gpu;
    options.max_context = range.depth + kTokens;
    const int64_t spare = int64_t{1} << 30;
    if (ring_device_bytes(config, options) + spare <= device_free_bytes(job.gpu))
      most = range.depth;
  }
  return most;
}

Json sweep_paces(Engine& engine, RingOptions options, int depth, int most_in_flight) {
  Json rows = Json::array();
  for (const int in_flight : kInFlight) {
    if (in_flight > most_in_flight) break;
    for (const int gap : kGapCycles) {
      options.pace = {in_flight, gap};
      retune_ring(engine, options);
      rows.push_back(
          {{"in_flight", in_flight}, {"gap", gap}, {"us", time_launches(engine, depth, kTokens)}});
    }
  }
  return rows;
}

const Json& quickest(const Json& rows) {
  return *std::min_element(rows.begin(), rows.end(),
                           [](const Json& a, const Json& b) { return a["us"] < b["us"]; });
}

void print_sweep(const Json& sweep) {
  fmt::print("\ndepth {}: us/token by copies in flight (down) and gap in cycles (across)\n{:>8}",
             sweep["depth"].get<int>(), "");
  for (const int gap : kGapCycles) fmt::print("{:>9}", gap);
  const Json& best = quickest(sweep["rows"]);
  int in_flight = -1;
  for (const Json& row : sweep["rows"]) {
    if (row["in_flight"] != in_flight) {
      in_flight = row["in_flight"];
      fmt::print("\n{:>8}", in_flight);
    }
    fmt::print("{:>8.1f}{}", row["us"].get<double>(), row == best ? '*' : ' ');
  }
  fmt::print("\n");
}

// What is pasted into the table: the quickest pace of each range, and the quickest split. The pace
// of the LM head, which waits for nobody, stays the one that the sweep ran with.
std::string table_row(const Json& result) {
  const std::string card = result["gpu"];
  ring::Tuning tuning;
  tuning.card = card;
  tuning.compute_major = result["compute_major"];
  int ranges = 0;
  for (const Json& sweep : result["sweeps"]) {
    const Json& best = quickest(sweep["rows"]);
    tuning.paces[ranges++] = {sweep["until"], {best["in_flight"], best["gap"]}};
  }
  tuning.head_pace = ring::tuning_for(card, tuning.compute_major).head_pace;
  tuning.split_from = quickest(result["splits"])["split_from"];
  tuning.chosen_by = "mkbench tune";
  return ring::tuning_row(tuning);
}

}  // namespace

void tune_ring(const CaseJob& job, MessageSink& sink) {
  const DeviceList found = list_devices();
  const Usability usability = judge_device(found, job.gpu, plain_architectures());
  if (!usability.usable()) {
    throw Error(
        ErrorKind::kUnsupportedDevice,
        fmt::format("tune: no usable GPU: {}; tune measures a card and has nothing to do on "
                    "a CPU; mkbench doctor says what is missing",
                    usability.reason));
  }
  const ModelConfig config = model_config(job.model);
  const std::string obstacle = ring_obstacle(config, job.gpu);
  if (!obstacle.empty()) throw Error(ErrorKind::kUnsupportedDevice, "tune: " + obstacle);
  const DeviceInfo& device = found.devices.at(static_cast<size_t>(job.gpu));
  const int most_in_flight = ring::most_copies_in_flight(device.sm_major);
  const int most = deepest(job, config);
  RingOptions options;
  options.gpu = job.gpu;
  options.max_context = most + std::max(kTokens, kSplitDepth + kSplitTokens);
  const std::unique_ptr<Engine> engine = make_ring(make_synthetic("none"), options);
  Json sweeps = Json::array(), splits = Json::array();
  for (const DepthRange& range : kDepths) {
    if (range.depth > most) break;
    sink.send(
        {{"type", "progress"}, {"stage", fmt::format("depth {}", range.depth)}, {"engine", ""}});
    sweeps.push_back({{"depth", range.depth},
                      {"until", range.until},
                      {"rows", sweep_paces(*engine, options, range.depth, most_in_flight)}});
  }
  // The last range that was measured holds for all positions beyond.
  sweeps.back()["until"] = std::numeric_limits<int>::max();
  const Json& start = quickest(sweeps.front()["rows"]);
  options.pace = {start["in_flight"], start["gap"]};
  for (const int split : kSplits) {
    options.split_from = split;
    retune_ring(*engine, options);
    splits.push_back(
        {{"split_from", split}, {"us", time_launches(*engine, kSplitDepth, kSplitTokens)}});
  }
  sink.send({{"type", "tune"},
             {"gpu", device.name},
             {"compute_major", device.sm_major},
             {"sweeps", sweeps},
             {"splits", splits}});
}

int tune_command(const Options& options) {
  CaseJob job;
  job.kind = "tune";
  job.model = "synthetic";
  job.device = "cuda";
  job.gpu = options.gpu;
  const WorkerAnswer answer = ask_worker(job, "tune", options.timeout_s, false);
  if (answer.interrupted) return exit_code(Verdict::kInterrupted);
  if (!answer.ok) {
    throw Error(answer.hung ? ErrorKind::kHang : answer.kind, answer.problem);
  }
  const Json& result = answer.message;
  fmt::print("ring on {}: {} tokens a launch, medians of {} launches by CUDA events; * quickest\n",
             result["gpu"].get<std::string>(), kTokens, kLaunches);
  for (const Json& sweep : result["sweeps"]) print_sweep(sweep);
  fmt::print("\nsplit_from: us/token over positions {} to {}\n", kSplitDepth,
             kSplitDepth + kSplitTokens - 1);
  for (const Json& split : result["splits"]) {
    fmt::print("{:>8}{:>9.1f}\n", split["split_from"].get<int>(), split["us"].get<double>());
  }
  fmt::print("\nrow for kernels/ring/tuning.cpp:\n    {}\n", table_row(result));
  return 0;
}

}  // namespace mkbench
