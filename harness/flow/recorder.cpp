#include "harness/flow/recorder.h"

#include <fmt/format.h>

#include "harness/flow/interrupt.h"
#include "harness/flow/timed_truth.h"
#include "harness/measure/statistics.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

constexpr int kMostRepeatedBlocks = 4;  // most repeats of one block whose time is in doubt

struct Recorded {
  std::string name;
  std::unique_ptr<Engine> engine;
  Snapshot start;
};

class Recorder {
 public:
  Recorder(const CaseJob& job, const FlowServices& services, const RecordPlan& plan)
      : job_(job),
        services_(services),
        plan_(plan),
        weights_(services.load(job.model, first_depth(job))),
        truth_(find_timed_truth(job, weights_)),
        late_ids_(truth_.late_ids, draws_of(services)) {}

  std::map<std::string, std::vector<double>> run() {
    open();
    for (int i = 0; i < plan_.warmup; ++i) {
      const int32_t late = late_ids_.draw();
      for (Recorded& one : engines_) time(one, late);
    }
    const auto orders =
        block_orders(static_cast<int>(engines_.size()), plan_.blocks, true, plan_.seed);
    std::map<std::string, std::vector<double>> times;
    for (const std::vector<int>& order : orders) {
      const int32_t late = late_ids_.draw();
      for (const int place : order) {
        Recorded& one = engines_[static_cast<size_t>(place)];
        times[one.name].push_back(time(one, late) / plan_.tokens);
      }
    }
    engines_.clear();
    for (const CaseEngine& engine : job_.engines) services_.end_process(engine.name);
    return times;
  }

 private:
  void open() {
    const int context = static_cast<int>(truth_.prompt.size()) + plan_.tokens;
    // The order of opening is drawn, because it decides where in the card's memory an engine lies.
    const int engines = static_cast<int>(job_.engines.size());
    std::vector<std::string> names;
    const auto orders = block_orders(engines, 1, true, plan_.seed);
    for (const int place : orders.front())
      names.push_back(job_.engines[static_cast<size_t>(place)].name);
    services_.expect(names);
    for (const std::string& name : names) {
      check_stop();
      Recorded one{
          name, services_.make_engine({.name = name, .max_context = context}, weights_), {}};
      if (!one.engine->capabilities().late_id)
        throw Error(ErrorKind::kRuntime, name + ": it takes no late id");
      services_.take_turn(*one.engine);
      start_afresh(*one.engine, truth_.prompt);
      if (one.engine->capabilities().snapshots) one.start = one.engine->save();
      services_.end_turn(*one.engine);
      engines_.push_back(std::move(one));
    }
  }

  // Milliseconds of a block.
  double time(Recorded& one, int32_t late) {
    std::string doubt;
    for (int tries = 0; tries <= kMostRepeatedBlocks; ++tries) {
      check_stop();
      start_again(*one.engine, one.start, truth_.prompt);
      services_.take_turn(*one.engine);
      std::vector<int32_t> ids;
      const TimedCall call =
          services_.timed(*one.engine, [&] { ids = one.engine->decode_late(late, plan_.tokens); });
      const std::string left = services_.end_turn(*one.engine);
      check_ids(one, late, ids);
      doubt = call.doubt.empty() ? left : call.doubt;
      if (doubt.empty()) return call.ms;
    }
    throw Error(ErrorKind::kIntegrity,
                fmt::format("{}: {}, {} times in a row", one.name, doubt, kMostRepeatedBlocks + 1));
  }

  // All engines must emit the ids of the closed form or, without one, of the block's first engine.
  void check_ids(const Recorded& one, int32_t late, const std::vector<int32_t>& ids) {
    const auto expected = truth_.expected(late, plan_.tokens);
    if (expected) emitted_[late] = *expected;
    const std::vector<int32_t>& wanted = emitted_.try_emplace(late, ids).first->second;
    if (ids == wanted && std::ssize(ids) == plan_.tokens) return;
    throw Error(ErrorKind::kIntegrity,
                fmt::format("{}: after the late id {}: {} ids came back; wanted {}, equal to those "
                            "of the closed form or of the block's first engine",
                            one.name, late, ids.size(), plan_.tokens));
  }

  void check_stop() const {
    if (services_.stop()) throw Interrupted{};
  }

  const CaseJob& job_;
  const FlowServices& services_;
  const RecordPlan plan_;
  const ModelWeights weights_;
  const TimedTruth truth_;
  LateIds late_ids_;
  std::vector<Recorded> engines_;
  std::map<int32_t, std::vector<int32_t>> emitted_;  // by late id
};

}  // namespace

std::map<std::string, std::vector<double>> record_blocks(const CaseJob& job,
                                                         const FlowServices& services,
                                                         const RecordPlan& plan) {
  return Recorder(job, services, plan).run();
}

}  // namespace mkbench
