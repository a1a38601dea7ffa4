// Turns of engines in real processes, and the services that a case gets of them.
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/parent/host_services.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"
#include "tests/support/process_state.h"
#include "tests/support/twin_links.h"

namespace mkbench {
namespace {

using testing::kTimeout;
using testing::process;
using testing::request;
using testing::state_of;
using testing::tiny;
using testing::twin_program;

// Hosts of twins, and the processes by what they hold, the newest last.
struct TwinHosts {
  std::map<std::string, std::vector<pid_t>> started;
  Hosts hosts{[this](HostKind, const std::string& holds) -> std::shared_ptr<HostLink> {
                auto link = process(holds);
                started[holds].push_back(link->pid());
                return link;
              },
              kTimeout};

  std::unique_ptr<Engine> open(const std::string& name) {
    EngineRequest asked = request();
    asked.name = name;
    return hosts.open(asked, tiny());
  }
  char state(const std::string& holds) const { return state_of(started.at(holds).back()); }
};

TEST_CASE("a turn stops the other hosts, and the judge's runs end before anything is timed") {
  TwinHosts twins;
  twins.hosts.expect("host-twin");
  const auto twin = twins.open("host-twin"), second = twins.open("host-twin"),
             judge = twins.open("eager");
  auto truth = twins.open("eager-fp32"), head = twins.open("eager-head-fp32");
  REQUIRE(twins.started.size() == 3);  // host-twin, eager, the judge's runs
  for (const auto& [holds, pids] : twins.started) CHECK(pids.size() == 1);
  const std::string runs = "the judge's runs";
  REQUIRE(twins.started.contains(runs));

  twins.hosts.take_turn(*twin, {});
  CHECK(twins.state("eager") == 'T');
  CHECK(twins.state(runs) == 'T');
  CHECK(twins.state("host-twin") != 'T');
  twin->prefill(std::vector<int32_t>{1, 2, 3});
  const std::vector<int32_t> ids = twin->decode(3, nullptr, nullptr);
  CHECK(twins.state("eager") == 'T');
  twins.hosts.end_turn(*twin, {});

  // A stopped host answers when it is called, and the truth is still there.
  truth->prefill(std::vector<int32_t>{1, 2, 3});
  CHECK(truth->decode(3, nullptr, nullptr) == ids);

  truth.reset();
  head.reset();
  twins.hosts.take_turn(*judge, {});
  CHECK(twins.state("host-twin") == 'T');
  CHECK(twins.state(runs) == 'T');
  twins.hosts.end_judges_runs();
  CHECK(twins.state(runs) == '-');
  second->prefill(std::vector<int32_t>{1, 2, 3});
  CHECK(second->decode(3, nullptr, nullptr) == ids);

  // The next run of the judge gets a new process.
  truth = twins.open("eager-fp32");
  CHECK(twins.started[runs].size() == 2);
  CHECK(twins.started["host-twin"].size() == 1);
}

TEST_CASE("the host of an engine that has died is replaced, and the others live on") {
  TwinHosts twins;
  auto twin = twins.open("host-twin");
  const auto judge = twins.open("eager");
  kill(twins.started["host-twin"].back(), SIGSEGV);
  CHECK_THROWS_WITH(twin->prefill(std::vector<int32_t>{1, 2}),
                    ContainsText("the host of host-twin died by signal 11"));
  CHECK_THROWS_AS(twin->decode(1, nullptr, nullptr), Error);
  twin = twins.open("host-twin");
  REQUIRE(twins.started["host-twin"].size() == 2);
  twin->prefill(std::vector<int32_t>{1, 2});
  judge->prefill(std::vector<int32_t>{1, 2});
  CHECK(twin->decode(3, nullptr, nullptr) == judge->decode(3, nullptr, nullptr));
}

TEST_CASE("work that an engine leaves on its device is an integrity failure") {
  TwinHosts twins;
  const auto kind_after = [&](int gpu) {
    const auto twin = twins.open("host-twin");
    twins.hosts.take_turn(*twin, FlushCall{.cuda = false, .gpu = gpu});
    try {
      twins.hosts.end_turn(*twin, FlushCall{});
    } catch (const Error& error) {
      CHECK_THAT(error.what(), ContainsText("host-twin left work on its device"));
      CHECK_THROWS_AS(twin->reset(), Error);  // its host is ended
      CHECK(twins.state("host-twin") == '-');
      return static_cast<int>(error.kind());
    }
    return -1;
  };
  CHECK(kind_after(0) == -1);
  CHECK(twins.started["host-twin"].size() == 1);
  CHECK(kind_after(testing::kWorkThatEnds) == static_cast<int>(ErrorKind::kIntegrity));
  CHECK(kind_after(0) == -1);
  CHECK(twins.started["host-twin"].size() == 2);
  CHECK(kind_after(testing::kWorkLeft) == static_cast<int>(ErrorKind::kIntegrity));
}

TEST_CASE("a process in which launches were recorded holds no later engine") {
  TwinHosts twins;
  auto twin = twins.open("host-twin");
  const auto judge = twins.open("eager");
  twin->prefill(std::vector<int32_t>{1, 2, 3});
  const LaunchTrace trace = twins.hosts.trace(*twin, 3);
  CHECK(trace.problem.empty());
  CHECK(trace.kernels == 7);
  CHECK(trace.tokens == 3);
  CHECK(twin->position() == 5);
  // An engine that fails has a problem, not a verdict, unless its process has died.
  CHECK_THAT(twins.hosts.trace(*twin, testing::kContext).problem, ContainsText("host-twin"));
  twin = nullptr;
  CHECK(twins.state("host-twin") == '-');
  twin = twins.open("host-twin");
  CHECK(twins.started["host-twin"].size() == 2);
  CHECK(twins.started["eager"].size() == 1);
  kill(twins.started["host-twin"].back(), SIGSEGV);
  CHECK_THROWS_WITH(twins.hosts.trace(*twin, 1), ContainsText("died by signal 11"));
}

TEST_CASE("what is no proxy has no host whose turn it could be") {
  TwinHosts twins;
  const auto direct = twin_program().factory.make(request(), tiny());
  CHECK_THROWS_WITH(twins.hosts.take_turn(*direct, {}), ContainsText("no host holds"));
  CHECK_THROWS_WITH(twins.hosts.end_turn(*direct, {}), ContainsText("no host holds"));
}

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// A host in this process that tells other times than its clock's.
struct SkewedHost final : HostLink {
  LocalHost host{twin_program()};
  std::function<void(HostInterval&)> skew = [](HostInterval&) {};
  int late_ms = 0;  // on the way back

  FromHost call(const ToHost& call, const CallLimit& limit,
                const std::function<void(const std::string&)>& on_stage) override {
    FromHost answer = host.call(call, limit, on_stage);
    if (auto* decoded = std::get_if<Decoded>(&answer)) {
      if (late_ms > 0) usleep(static_cast<useconds_t>(1000 * late_ms));
      skew(decoded->interval);
    }
    return answer;
  }
  Arena& arena() override { return host.arena(); }
  ProgressTold progress() override { return host.progress(); }
  ProcessFacts facts() override { return host.facts(); }
  bool alive() const override { return true; }
  void stop() override {}
  void end(ErrorKind, const std::string&) override {}
};

TEST_CASE("the host's interval counts, and must lie inside the parent's") {
  const auto link = std::make_shared<SkewedHost>();
  Hosts hosts([&](HostKind, const std::string&) { return link; }, kTimeout);
  CaseJob job;
  job.engines = {};
  const FlowServices services = make_services(job, hosts);
  const auto engine = services.make_engine(request(), tiny());
  const auto timed = [&] {
    engine->reset();
    engine->prefill(std::vector<int32_t>{1, 2, 3});
    return services.timed(*engine, [&] { engine->decode(2, nullptr, nullptr); });
  };
  const int64_t begin = now_ns();
  const TimedCall fine = timed();
  CHECK(fine.begin_ms >= static_cast<double>(begin) / 1e6);
  CHECK(fine.ms > 0);
  CHECK(fine.slack_ms > 0);
  CHECK(fine.ms == dynamic_cast<HostEngine&>(*engine).last_interval().ms());

  // A way back of 60 ms is more than a crossing explains: the sample is repeated.
  link->late_ms = 60;
  const TimedCall late = timed();
  CHECK(late.slack_ms >= 60);
  CHECK_THAT(late.doubt, ContainsText("clocks disagree: "));
  // Time that the host's own interval covers is no slack.
  link->skew = [](HostInterval& there) { there.end = now_ns(); };
  CHECK(timed().doubt.empty());
  link->late_ms = 0;

  const std::vector<std::function<void(HostInterval&)>> wrong = {
      [](HostInterval& there) { there.begin -= 1'000'000'000; },
      [](HostInterval& there) { there.end += 1'000'000'000; },
      [](HostInterval& there) { std::swap(there.begin, there.end); },
      [](HostInterval& there) { there = {}; },
  };
  for (const auto& skew : wrong) {
    link->skew = skew;
    try {
      timed();
      FAIL("an interval outside was taken");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kIntegrity);
      CHECK_THAT(error.what(), ContainsText("the host's clock"));
    }
  }
}

TEST_CASE("services tell which process held an engine, and what it takes") {
  TwinHosts twins;
  CaseJob job;
  job.model = "tiny";
  const FlowServices services = make_services(job, twins.hosts);
  services.expect({"host-twin", "eager"});
  CHECK(twins.started.size() == 2);
  const auto engine = services.make_engine({.name = "eager", .max_context = 64}, tiny());
  const EngineFacts facts = services.facts(*engine);
  CHECK(facts.resolved_name == "host-twin");
  CHECK(facts.settings == "pinned=1");
  CHECK(facts.process.program == "twin-host");
  CHECK(facts.process.pid == twins.started["eager"].back());
  CHECK(facts.process.open_ms > 0);
  CHECK(services.bytes(request(), tiny().config) ==
        twin_program().factory.bytes(request(), tiny().config));
  CHECK(services.free_bytes() > 0);
  services.watch_card(true);  // on a CPU there is no card to be read
  engine->prefill(std::vector<int32_t>{1, 2, 3});
  CHECK_FALSE(services.timed(*engine, [&] { engine->decode(1); }).card);
  CHECK_THAT(services.ablate("eager", *engine, Ablation::kNoLoads), ContainsText("no ablations"));
  const ModelWeights loaded = services.load("tiny", 0);
  CHECK(loaded.sha256 == tiny().sha256);
  CHECK_FALSE(loaded.folder.empty());
  CHECK_FALSE(services.references("tiny").empty());
  CHECK_FALSE(services.stop());
}

}  // namespace
}  // namespace mkbench
