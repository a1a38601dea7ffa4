// A fault around an engine changes what it is meant to change, and nothing else.
#include "harness/host/faulty_engine.h"
#include "tests/support/catch2.h"
#include "tests/support/scripted_engine.h"

namespace mkbench::testing {
namespace {

constexpr PlantedFault kFaults[] = {PlantedFault::kBypassed, PlantedFault::kStaleOutput,
                                    PlantedFault::kStopsEarly, PlantedFault::kRepeatsDiffer};

class TellingEngine final : public ScriptedEngine {
 public:
  TellingEngine() : ScriptedEngine(Script{}) {}
  std::optional<Standstill> standstill() const override {
    return Standstill{.grid = 7, .fault_word = "0x1"};
  }
  void audit() override { throw Error(ErrorKind::kIntegrity, "a guard has changed"); }
  std::string settings() const override { return "pace 3"; }
  bool set_timeline(bool on) override { return on; }
  Timeline timeline() override {
    Timeline timeline;
    timeline.clock = "its own";
    return timeline;
  }
};

TEST_CASE("an engine with a fault around it still tells of a hang, its memory and its settings") {
  for (const PlantedFault fault : kFaults) {
    INFO(planted_fault_name(fault));
    const auto engine = with_fault_around(std::make_unique<TellingEngine>(), fault);
    const std::optional<Standstill> told = engine->standstill();
    REQUIRE(told);
    CHECK(told->grid == 7);
    CHECK(told->fault_word == "0x1");
    CHECK_THROWS_WITH(engine->audit(), "a guard has changed");
    CHECK(engine->settings() == "pace 3");
    CHECK(engine->set_timeline(true));
    CHECK(engine->timeline().clock == "its own");
  }
}

}  // namespace
}  // namespace mkbench::testing
