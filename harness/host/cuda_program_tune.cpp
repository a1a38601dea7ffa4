#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "harness/device/device_info.h"
#include "harness/host/cuda_program.h"
#include "kernels/plain/megakernel.h"
#include "kernels/ring/megakernel.h"
#include "kernels/ring/tuning.h"
#include "references/base/error.h"
#include "references/snapshot.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

constexpr int kEver = std::numeric_limits<int>::max();

// A depth to measure, which stands for the positions from the previous range's `until` to its own.
struct DepthRange {
  int depth, until;
};
constexpr DepthRange kDepths[] = {{0, 48},      {64, 128},    {256, 704},    {960, 1472},
                                  {1984, 3000}, {4032, 6000}, {8128, 12000}, {16320, kEver}};
static_assert(std::size(kDepths) <= ring::kPaceRanges);
constexpr int kInFlight[] = {2, 3, 4, 5, 6};
// Gaps between copies, in hundredths of the time between two copies of a block without pacing. The
// first sweep is coarse, for every number of copies in flight; the second tries gaps next to the
// quickest.
constexpr int kGapHundredths[] = {0, 72, 80, 88, 96};
constexpr int kFinerHundredths[] = {-4, 4};
constexpr int kSplits[] = {96, 128, 192};
constexpr int kTokens = 64, kLaunches = 3;
// Splits are compared over these positions, where the choice matters.
constexpr int kSplitDepth = 96, kSplitTokens = 96;

// Microseconds per token by CUDA events; median over launches.
double time_launches(Engine& engine, int depth, int tokens) {
  std::vector<double> us;
  for (int i = 0; i < kLaunches; ++i) {
    if (!engine.skip_to(depth))
      throw Error(ErrorKind::kRuntime, "tune: ring cannot skip to a depth");
    engine.decode(tokens);
    const double event_ms = engine.last_times().event_ms;
    if (!(event_ms > 0)) throw Error(ErrorKind::kRuntime, "tune: a launch has no event time");
    us.push_back(1000 * event_ms / tokens);
  }
  std::nth_element(us.begin(), us.begin() + kLaunches / 2, us.end());
  return us[kLaunches / 2];
}

// The analytic model with the layer shape of `model`: the pace depends on no weight.
const ShapeRow& analytic_row(const std::string& model) {
  const ModelShape shape = model_config(resolve_model(model)).shape;
  for (const ShapeRow& row : analytic_models()) {
    if (row.shape.same_layer_shape(shape)) return row;
  }
  throw Error(ErrorKind::kBadInput,
              "tune: model " + model + ": found no analytic weights of its layer shape");
}

// The greatest depth of the sweep that leaves 1 GiB of memory free.
int deepest(const TuneCall& call, const ModelConfig& config) {
  int most = 0;
  for (const DepthRange& range : kDepths) {
    RingOptions options;
    options.gpu = call.gpu;
    options.max_context = range.depth + kTokens;
    const int64_t spare = int64_t{1} << 30;
    if (ring_device_bytes(config, options) + spare <=
        list_devices().devices.at(static_cast<size_t>(call.gpu)).free_bytes)
      most = range.depth;
  }
  return most;
}

using Times = std::vector<TunedTime>;

const TunedTime& quickest(const Times& times) {
  return *std::min_element(times.begin(), times.end(),
                           [](const TunedTime& a, const TunedTime& b) { return a.us < b.us; });
}

// Times one ring engine with several paces (copies in flight, gap) and values of split_from.
struct Sweep {
  Engine& engine;
  const ModelShape& shape;
  const int most_in_flight, most_head_in_flight;
  RingOptions options;

  double time_at(int depth, int tokens) {
    retune_ring(engine, options);
    return time_launches(engine, depth, tokens);
  }

  // Mean cycles between two slot copies that one block issues at `depth`, without pacing.
  double cycles_a_copy(int depth) {
    options.pace = {std::min(3, most_in_flight), 0};
    const double us = time_at(depth, kTokens);
    if (!(engine.last_times().sm_ghz > 0))
      throw Error(ErrorKind::kRuntime, "tune: a launch has not recorded the SM clock");
    const double copies =
        static_cast<double>(shape.bytes_per_step(depth)) / (ring::kBlocks * ring::kSlotBytes);
    return 1000 * us * engine.last_times().sm_ghz / copies;
  }

  void add_pace(Times& times, int depth, int in_flight, double gap) {
    options.pace = {in_flight, static_cast<int>(gap)};
    times.push_back(
        {.in_flight = in_flight, .gap = options.pace.gap_cycles, .us = time_at(depth, kTokens)});
  }

  Times paces(int depth) {
    Times times;
    const double cycles = cycles_a_copy(depth) / 100;
    for (const int in_flight : kInFlight) {
      if (in_flight > most_in_flight) break;
      for (const int hundredths : kGapHundredths)
        add_pace(times, depth, in_flight, cycles * hundredths);
    }
    const TunedTime best = quickest(times);
    for (const int hundredths : kFinerHundredths) {
      if (best.gap != 0) add_pace(times, depth, best.in_flight, best.gap + cycles * hundredths);
    }
    return times;
  }

  Times head_paces(const TunedTime& layers) {
    options.pace = {layers.in_flight, layers.gap};
    Times times;
    for (const int in_flight : kInFlight) {
      if (in_flight > most_head_in_flight) break;
      options.head_pace = {in_flight, 0};
      times.push_back({.in_flight = in_flight, .us = time_at(0, kTokens)});
    }
    options.head_pace = {};
    return times;
  }

  Times splits(const TunedTime& layers) {
    options.pace = {layers.in_flight, layers.gap};
    Times times;
    for (const int split : kSplits) {
      options.split_from = split;
      times.push_back({.split_from = split, .us = time_at(kSplitDepth, kSplitTokens)});
    }
    options.split_from = -1;
    return times;
  }
};

// The row to paste into kernels/ring/tuning.cpp: the quickest pace of each range and of the LM
// head, and the quickest split.
std::string table_row(const Tuned& result, int compute_major, const ModelShape& shape) {
  ring::Tuning tuning;
  tuning.held = ring::is_held(shape);
  tuning.card = result.gpu;
  tuning.compute_major = compute_major;
  int ranges = 0;
  for (const TuneSweep& sweep : result.sweeps) {
    const TunedTime& best = quickest(sweep.times);
    tuning.paces[ranges++] = {sweep.until, {best.in_flight, best.gap}};
  }
  tuning.head_pace = {quickest(result.head).in_flight, 0};
  tuning.split_from = quickest(result.splits).split_from;
  tuning.chosen_by = "mkbench tune";
  return ring::tuning_row(tuning);
}

}  // namespace

Tuned tune_ring(const TuneCall& call, const std::function<void(const std::string&)>& say) {
  const DeviceList found = list_devices();
  const Usability usability = judge_device(found, call.gpu, plain_architectures());
  if (!usability.usable()) {
    throw Error(
        ErrorKind::kUnsupportedDevice,
        fmt::format("tune: no usable GPU: {}; tune measures a card and has nothing to do on "
                    "a CPU; mkbench doctor says what is missing",
                    usability.reason));
  }
  const ShapeRow& row = analytic_row(call.model);
  const ModelConfig config = synthetic_config(row);
  const std::string obstacle = ring_obstacle(config, call.gpu);
  if (!obstacle.empty()) throw Error(ErrorKind::kUnsupportedDevice, "tune: " + obstacle);
  const DeviceInfo& device = found.devices.at(static_cast<size_t>(call.gpu));
  const int most = deepest(call, config);
  RingOptions options;
  options.gpu = call.gpu;
  options.max_context = most + std::max(kTokens, kSplitDepth + kSplitTokens);
  const std::unique_ptr<Engine> engine = make_ring(make_synthetic(row, "none"), options);
  Sweep sweep{*engine, config.shape, ring::most_copies_in_flight(config.shape, device.sm_major),
              ring::most_head_copies_in_flight(config.shape, device.sm_major), options};
  Tuned result{.gpu = device.name,
               .table_row = "",
               .tokens = kTokens,
               .launches = kLaunches,
               .split_depth = kSplitDepth,
               .split_tokens = kSplitTokens,
               .sweeps = {},
               .head = {},
               .splits = {}};
  for (const DepthRange& range : kDepths) {
    if (range.depth > most) break;
    say(fmt::format("depth {}", range.depth));
    result.sweeps.push_back({range.depth, range.until, sweep.paces(range.depth)});
  }
  // The last measured range stands for all positions beyond it.
  result.sweeps.back().until = kEver;
  // The sweep whose range contains kSplitDepth, or the first sweep if memory allowed only that.
  const size_t around_split = std::min<size_t>(1, result.sweeps.size() - 1);
  static_assert(kDepths[1].depth <= kSplitDepth && kSplitDepth < kDepths[1].until);
  say("LM head and split");
  result.head = sweep.head_paces(quickest(result.sweeps.front().times));
  result.splits = sweep.splits(quickest(result.sweeps.at(around_split).times));
  result.table_row = table_row(result, device.sm_major, config.shape);
  return result;
}

}  // namespace mkbench
