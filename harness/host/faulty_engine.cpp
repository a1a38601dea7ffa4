#include "harness/host/faulty_engine.h"

#include <cmath>
#include <limits>
#include <utility>

namespace mkbench {
namespace {

class FaultyEngine final : public Engine {
 public:
  FaultyEngine(std::unique_ptr<Engine> engine, PlantedFault fault)
      : engine_(std::move(engine)), fault_(fault) {}

  std::vector<int32_t> decode(int n, const int32_t* forced, float* logits_out) override {
    ++decodes_;
    // A kernel that never writes: ids read -1, logits stay as the caller filled them.
    const bool stale = fault_ == PlantedFault::kStaleOutput && decodes_ > 1;
    std::vector<int32_t> ids = engine_->decode(n, forced, stale ? nullptr : logits_out);
    if (stale) ids.assign(ids.size(), -1);
    if (fault_ == PlantedFault::kStopsEarly) ids.pop_back();
    if (fault_ == PlantedFault::kRepeatsDiffer && decodes_ % 2 == 0 && logits_out != nullptr) {
      *logits_out = std::nextafter(*logits_out, std::numeric_limits<float>::infinity());
    }
    return ids;
  }
  // kBypassed: something other than the kernel answers, so its launch counter stands still.
  int64_t launch_count() const override {
    return fault_ == PlantedFault::kBypassed ? 0 : engine_->launch_count();
  }

  EngineCapabilities capabilities() const override { return engine_->capabilities(); }
  void reset() override { engine_->reset(); }
  void poison() override { engine_->poison(); }
  void prefill(std::span<const int32_t> ids) override { engine_->prefill(ids); }
  void rewind(int position) override { engine_->rewind(position); }
  void set_pending(int32_t id) override { engine_->set_pending(id); }
  Snapshot save() override { return engine_->save(); }
  void restore(const Snapshot& s) override { engine_->restore(s); }
  int position() const override { return engine_->position(); }
  DecodeTimes last_times() const override { return engine_->last_times(); }
  Progress progress() const override { return engine_->progress(); }
  std::optional<Standstill> standstill() const override { return engine_->standstill(); }
  void audit() override { engine_->audit(); }
  std::string settings() const override { return engine_->settings(); }
  std::optional<std::vector<float>> hidden(int layer) override { return engine_->hidden(layer); }
  std::optional<std::vector<float>> kv_row(int layer, int position) override {
    return engine_->kv_row(layer, position);
  }
  std::optional<std::string> stress(const Stress& stress) override {
    return engine_->stress(stress);
  }
  bool set_timeline(bool on) override { return engine_->set_timeline(on); }
  Timeline timeline() override { return engine_->timeline(); }
  bool skip_to(int position) override { return engine_->skip_to(position); }

 private:
  const std::unique_ptr<Engine> engine_;
  const PlantedFault fault_;
  int decodes_ = 0;
};

}  // namespace

std::unique_ptr<Engine> with_fault_around(std::unique_ptr<Engine> engine, PlantedFault fault) {
  if (fault == PlantedFault::kNone || planted_fault_site(fault) != FaultSite::kAround) {
    return engine;
  }
  return std::make_unique<FaultyEngine>(std::move(engine), fault);
}

}  // namespace mkbench
