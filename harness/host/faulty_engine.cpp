#include "harness/host/faulty_engine.h"

#include <cmath>
#include <limits>
#include <utility>

namespace mkbench {
namespace {

class FaultyEngine final : public WrappedEngine {
 public:
  FaultyEngine(std::unique_ptr<Engine> engine, PlantedFault fault)
      : WrappedEngine(std::move(engine)), fault_(fault) {}

  std::vector<int32_t> decode(int n, const int32_t* forced, float* logits_out) override {
    ++decodes_;
    // Like a kernel that wrote only once: ids read -1, logits stay as the caller filled them.
    const bool stale = fault_ == PlantedFault::kStaleOutput && decodes_ > 1;
    std::vector<int32_t> ids = WrappedEngine::decode(n, forced, stale ? nullptr : logits_out);
    if (stale) ids.assign(ids.size(), -1);
    if (fault_ == PlantedFault::kStopsEarly) ids.pop_back();
    if (fault_ == PlantedFault::kRepeatsDiffer && decodes_ % 2 == 0 && logits_out != nullptr) {
      *logits_out = std::nextafter(*logits_out, std::numeric_limits<float>::infinity());
    }
    return ids;
  }
  // kBypassed: something other than the kernel answers, so its launch counter stands still.
  int64_t launch_count() const override {
    return fault_ == PlantedFault::kBypassed ? 0 : WrappedEngine::launch_count();
  }

 private:
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
