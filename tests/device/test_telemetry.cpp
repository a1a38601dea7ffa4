// The card as the driver tells it, by a driver of the test's own: readings, their sum, and the
// thread that takes them.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "harness/device/fitness.h"
#include "harness/device/telemetry.h"
#include "harness/hosts/card_sampler.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_nvml.h"

namespace mkbench {
namespace {

constexpr uint64_t kIdle = 1, kUserClocks = 2, kPowerCap = 4, kThermal = 0x20;

// A card of which each test begins with the same values.
struct FakeCard {
  FakeNvml& card = fake_nvml();
  FakeCard() {
    card.sm_clock_mhz = 1980;
    card.memory_clock_mhz = card.max_memory_clock_mhz = 2619;
    card.bus_bits = 5120;
    card.reasons = 0;
    card.answers = true;
    card.application_clock_mhz = card.default_clock_mhz = 1980;
    card.counts_energy = true;
    card.millijoules = 1'000'000;
    card.millijoules_a_reading = 0;
    card.stands_still = false;
    card.readings = 0;
  }
};

// Ends a part of a driver that answers, however long a busy machine keeps the thread waiting.
std::optional<Telemetry> end_of(CardSampler& sampler) {
  return sampler.end(std::chrono::minutes(10));
}

std::vector<CardReading> energies(const std::vector<double>& joules) {
  std::vector<CardReading> readings;
  for (const double one : joules) {
    CardReading reading;
    reading.at_ms = 10.0 * static_cast<double>(readings.size());
    reading.energy_j = one;
    readings.push_back(reading);
  }
  return readings;
}

TEST_CASE("a card tells bus width, clocks and which of them are set") {
  FakeCard fake;
  GpuState state = read_gpu_state(kFakeCard);
  CHECK(state.memory_bus_bits == 5120);
  CHECK(state.max_memory_clock_mhz == 2619);
  CHECK((state.application_sm_clock_mhz == 1980 && state.default_sm_clock_mhz == 1980));
  CHECK(clock_setting(state) == "default");
  CHECK(unfit_for_timing(state).empty());
  fake.card.application_clock_mhz = 1410;
  CHECK(clock_setting(read_gpu_state(kFakeCard)) == "application clocks 1410, default 1980 MHz");
  fake.card.default_clock_mhz.reset();
  CHECK(clock_setting(read_gpu_state(kFakeCard)).empty());
  CHECK_FALSE(read_gpu_state("00000000:99:00.0").memory_bus_bits);
}

TEST_CASE("the memory clock is read until it is full, or work does not raise it") {
  FakeCard fake;
  GpuState state = read_gpu_state(kFakeCard);
  for (const unsigned raised : {949U, 950U}) {
    fake.card.max_memory_clock_mhz = 1000;
    fake.card.memory_clock_mhz = 400;
    state = read_gpu_state(kFakeCard);
    CHECK(memory_clock_share(state) == 0.4);
    int calls = 0;
    read_busy_memory_clock(kFakeCard, state, [&] {
      if (++calls == 3) fake.card.memory_clock_mhz = raised;
    });
    CHECK(calls == (raised == 950 ? 3 : 100));
    CHECK(state.memory_clock_mhz == static_cast<int>(raised));
  }
  state.max_memory_clock_mhz.reset();
  CHECK(memory_clock_share(state) == 1);
}

TEST_CASE("a card is busy where kernels fill the driver's whole sample period") {
  FakeCard fake;
  const std::function<bool()> busy = use_reader(kFakeCard);
  REQUIRE(busy);
  for (const unsigned percent : {98U, 99U, 100U}) {
    fake.card.use_percent = percent;
    CHECK(busy() == (percent >= 99));
  }
  fake.card.use_percent.reset();
  CHECK_FALSE(busy());
  CHECK_FALSE(use_reader("00000000:99:00.0"));
}

TEST_CASE("one reading has clocks, reasons, power, temperature and energy") {
  FakeCard fake;
  fake.card.reasons = kPowerCap;
  const ReadCard read = card_reader(kFakeCard);
  REQUIRE(read);
  const auto reading = read();
  REQUIRE(reading);
  CHECK(reading->sm_clock_mhz == 1980.0);
  CHECK(reading->memory_clock_mhz == 2619.0);
  CHECK(reading->power_w == 412.0);
  CHECK(reading->temperature_c == 54.0);
  CHECK(reading->limits == kPowerCap);
  CHECK(reading->energy_j == 1000.0);
  fake.card.counts_energy = false;
  CHECK_FALSE(read()->energy_j);
  fake.card.answers = false;
  CHECK_FALSE(read());
  CHECK_FALSE(card_reader("00000000:99:00.0"));
}

TEST_CASE("readings are summed up, and only what slows the card drops a block") {
  CHECK_FALSE(fold_readings({}));
  std::vector<CardReading> readings(3);
  readings[0].sm_clock_mhz = 1980, readings[1].sm_clock_mhz = 1500;
  readings[0].power_w = 100, readings[1].power_w = 300;
  readings[1].temperature_c = 60, readings[2].temperature_c = 50;
  readings[0].limits = kIdle;
  const auto sum = fold_readings(readings);
  REQUIRE(sum);
  CHECK(sum->readings == 3);
  CHECK((sum->sm_clock_mhz == 1740.0 && sum->sm_clock_min_mhz == 1500.0));
  CHECK(sum->power_w == 200.0);
  CHECK(sum->temperature_c == 60.0);
  CHECK_FALSE(sum->memory_clock_mhz);
  CHECK(sum->limits == "idle");
  CHECK(sum->throttled.empty());
  CHECK(sum->counts_energy == false);
  readings[2].limits = kThermal | kUserClocks;
  CHECK(fold_readings(readings)->limits == "idle, application clocks, thermal (software)");
  CHECK(fold_readings(readings)->throttled == "thermal (software)");
}

TEST_CASE("energy lies between two changes of the counter") {
  // The first change shows energy of before the part; what follows the last is not counted yet.
  const auto sum = fold_readings(energies({5, 5, 9, 9, 19, 29, 29}));
  REQUIRE(sum);
  CHECK(sum->energy_j == 20);
  CHECK(sum->energy_ms == 30);
  CHECK(sum->counts_energy == true);
  for (const auto& none : {energies({5, 5, 5}), energies({5, 9, 9}), energies({5})}) {
    CHECK(fold_readings(none)->energy_j == 0);
    CHECK(fold_readings(none)->energy_ms == 0);
    CHECK(fold_readings(none)->counts_energy == true);
  }
  // A counter that wraps or begins anew.
  const auto wrapped = fold_readings(energies({5, 9, 19, 1, 11, 21}));
  CHECK((wrapped->energy_j == 0 && wrapped->energy_ms == 0));
}

TEST_CASE("the thread reads at once and then every period, and not between parts") {
  using Ms = std::chrono::duration<double, std::milli>;
  FakeCard fake;
  fake.card.millijoules_a_reading = 1000;
  constexpr double kPeriodMs = 2;
  CardSampler sampler(card_reader(kFakeCard), kPeriodMs);
  for (int part = 0; part < 3; ++part) {
    sampler.begin();  // a part of no length
    const auto one = end_of(sampler);
    REQUIRE(one);
    CHECK(one->readings >= 1);
    CHECK(one->sm_clock_mhz == 1980.0);
  }
  const int before = fake.card.readings;
  std::this_thread::sleep_for(Ms(10 * kPeriodMs));
  CHECK(fake.card.readings == before);

  const auto begun = std::chrono::steady_clock::now();
  sampler.begin();
  while (fake.card.readings < before + 11) std::this_thread::yield();
  const auto many = end_of(sampler);
  const Ms taken = std::chrono::steady_clock::now() - begun;
  REQUIRE(many);
  CHECK(many->readings >= 10);
  CHECK(many->readings <= taken.count() / kPeriodMs + 2);
  CHECK(many->energy_j == many->readings - 2);
  CHECK(many->energy_ms > 0);
}

TEST_CASE("a part has its own readings alone") {
  FakeCard fake;
  CardSampler sampler(card_reader(kFakeCard), 5);
  fake.card.reasons = kPowerCap;
  sampler.begin();
  CHECK(end_of(sampler)->throttled == "power cap");
  fake.card.reasons = 0;
  fake.card.sm_clock_mhz = 1700;
  sampler.begin();
  const auto second = end_of(sampler);
  CHECK(second->throttled.empty());
  CHECK((second->sm_clock_mhz == 1700.0 && second->readings >= 1));
}

TEST_CASE(
    "a driver that does not answer is asked once a part; with one that stands still patience "
    "ends") {
  FakeCard fake;
  CardSampler sampler(card_reader(kFakeCard), 5);
  fake.card.answers = false;
  sampler.begin();
  CHECK_FALSE(end_of(sampler));
  CHECK(fake.card.readings == 1);
  fake.card.answers = true;
  sampler.begin();
  CHECK(end_of(sampler));

  fake.card.stands_still = true;
  sampler.begin();
  CHECK_FALSE(sampler.end(std::chrono::milliseconds(20)));
  sampler.begin();  // while the reading before still runs
  fake.card.stands_still = false;
  fake.card.stands_still.notify_all();
  const auto after = end_of(sampler);
  REQUIRE(after);
  CHECK(after->readings >= 1);
}

TEST_CASE("what makes a machine unfit for a verdict on times") {
  using Clauses = std::vector<std::string>;
  TimingConditions host{.load = 3, .processors = 8, .governors = {"performance"}};
  CHECK(unfit_for_timing(host).empty());
  host.load = 4.0;
  CHECK(unfit_for_timing(host).empty());
  host.load = 4.1;
  host.governors = {"performance", "powersave"};
  CHECK(unfit_for_timing(host) ==
        Clauses{"load 4.1 on 8 processors (most 4)", "CPU governor powersave"});
  CHECK(unfit_for_timing(TimingConditions{}).empty());

  GpuState card;
  CHECK(unfit_for_timing(card).empty());
  card.application_sm_clock_mhz = card.default_sm_clock_mhz = 1980;
  card.throttle_reasons = kIdle | kUserClocks;
  CHECK(unfit_for_timing(card).empty());
  card.application_sm_clock_mhz = 1410;
  card.throttle_reasons = kIdle | kThermal;
  card.processes.resize(2);
  CHECK(unfit_for_timing(card) ==
        Clauses{"2 other process(es) on the card",
                "clocks of the card are set: application clocks 1410, default 1980 MHz",
                "the card is throttled before it has work: thermal (software)"});
}

}  // namespace
}  // namespace mkbench
