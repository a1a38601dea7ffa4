// Turns of engines in real processes, and the services that a case gets of them.
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/flow/case_flow.h"
#include "harness/hosts/fresh_repeats.h"
#include "harness/hosts/host_services.h"
#include "tests/support/catch2.h"
#include "tests/support/process_state.h"
#include "tests/support/thrown.h"
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

TEST_CASE("the host's interval counts, and must lie inside the parent's") {
  const TimedCall here{.begin_ms = 1000, .ms = 100};
  const auto there = [](double begin_ms, double end_ms) {
    return HostInterval{std::llround(1e6 * begin_ms), std::llround(1e6 * end_ms)};
  };
  const TimedCall fine = time_in_host(here, there(1001, 1099));
  CHECK(fine.begin_ms == 1001);
  CHECK(fine.ms == 98);
  CHECK(fine.slack_ms == 2);
  CHECK(fine.doubt.empty());
  // A way of 60 ms is more than a crossing explains: the sample is repeated.
  CHECK_THAT(time_in_host(here, there(1001, 1041)).doubt,
             ContainsText("clocks disagree: 100.000 ms around the call, 40.000 ms in the host"));
  for (const HostInterval& wrong :
       {there(999, 1050), there(1050, 1101), there(1060, 1040), HostInterval{}}) {
    try {
      time_in_host(here, wrong);
      FAIL("an interval outside was taken");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kIntegrity);
      CHECK_THAT(error.what(), ContainsText("the host's clock"));
    }
  }

  TwinHosts twins;
  CpuReading cpu;
  const HostServices services(CaseJob{}, twins.hosts, random_below, [&] { return cpu; });
  const auto engine = services.make_engine(request(), tiny());
  engine->prefill(std::vector<int32_t>{1, 2, 3});
  const TimedCall timed = services.timed(*engine, [&] { engine->decode(2, nullptr, nullptr); });
  CHECK(timed.ms == host_engine(*engine).last_interval().ms());
  CHECK(timed.slack_ms > 0);
  CHECK(services.cpu_doubts().empty());
  services.timed(*engine, [&] {
    engine->decode(2, nullptr, nullptr);
    ++cpu.throttled;
  });
  REQUIRE(services.cpu_doubts().size() == 1);
  CHECK_THAT(services.cpu_doubts()[0], ContainsText("in 1 of 2 timed calls"));
}

TEST_CASE("services tell which process held an engine, and what it takes") {
  TwinHosts twins;
  CaseJob job;
  job.model = resolve_model("tiny");
  const HostServices services(job, twins.hosts);
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
  CHECK(services.held_bytes() > 0);
  services.watch_card(true);  // on a CPU there is no card to be read
  engine->prefill(std::vector<int32_t>{1, 2, 3});
  CHECK_FALSE(services.timed(*engine, [&] { engine->decode(1); }).card);
  CHECK_THAT(services.ablate(*engine, Ablation::kNoLoads), ContainsText("no ablations"));
  const ModelWeights loaded = services.load(job.model, 0);
  CHECK(loaded.sha256 == tiny().sha256);
  CHECK_FALSE(loaded.folder.empty());
  CHECK_FALSE(services.references("tiny").empty());
  CHECK_FALSE(services.stop());
}

TEST_CASE("a hang in this process is explained, and another failure is not") {
  for (const ErrorKind kind : {ErrorKind::kHang, ErrorKind::kRuntime}) {
    const bool hangs = kind == ErrorKind::kHang;
    HostProgram program = twin_program();
    program.flush = [kind](const FlushCall&) { throw Error(kind, "no progress"); };
    LocalHost host(program);
    int explained = 0;
    host.on_hang = [&](const HangReport& told) {
      CHECK((told.engine == "twin-host" && told.call == "flush" && told.answered));
      ++explained;
    };
    const std::string line = testing::error_line(kind, [&] { host.call(FlushCall{}, {60, 60}); });
    CHECK(explained == (hangs ? 1 : 0));
    CHECK(line.starts_with(hangs ? "no progress; HANG: " : "no progress"));
    CHECK((line == "no progress") == !hangs);
  }
}

TEST_CASE("a fresh process that differs, or does not answer, costs an engine its pass") {
  CaseJob job;
  job.model = resolve_model("tiny");
  job.engines = {{.name = "eager", .asked = "", .judges = true},
                 {.name = "host-twin", .asked = "", .candidate = true}};
  const auto start = [] {
    return std::make_unique<Hosts>([](HostKind, const std::string&) { return testing::local(); },
                                   kTimeout);
  };
  const auto fresh = start();
  EventSink silent([](const CaseEvent&) {});
  const std::string sha256 =
      hash_case_repeats(job, HostServices(job, *fresh), silent).at("host-twin").sha256;
  constexpr auto kPass = Verdict::kPass, kDiffers = Verdict::kNondeterministic,
                 kFailed = Verdict::kRuntimeError;
  struct Row {
    Verdict before;
    std::string wanted;  // empty: the engine does not wait for fresh processes
    bool answers;
    Verdict after;
  };
  for (const Row& row : std::vector<Row>{{kPass, sha256, true, kPass},
                                         {kPass, "other", true, kDiffers},
                                         {kPass, "other", false, kFailed},
                                         {kPass, "", false, kPass},
                                         {Verdict::kPassLive, "other", true, kDiffers},
                                         {Verdict::kIncomplete, sha256, true, Verdict::kIncomplete},
                                         {Verdict::kIncomplete, "other", true, kDiffers},
                                         {Verdict::kFailToken, "other", true, Verdict::kFailToken},
                                         {Verdict::kHang, "other", false, Verdict::kHang}}) {
    CaseReport report;
    EngineReport& e = report.engines.emplace_back();
    e.flow_name = "host-twin";
    e.verdict = row.before;
    e.parity.emplace().repeats_sha256 = row.wanted;
    int started = 0;
    repeat_in_fresh_processes(
        job,
        [&] {
          ++started;
          return row.answers ? start() : throw Error(ErrorKind::kRuntime, "did not start");
        },
        [&] { return started == 2; }, report);
    CHECK(started == 2);
    CHECK(e.verdict == row.after);
    const bool found = !row.wanted.empty() && row.wanted != sha256;
    CHECK(e.reasons.size() == (found ? 1 : 0));
    if (!found) continue;
    CHECK_THAT(e.reasons[0], ContainsText("fresh process 1 of 2: "));
    CHECK_THAT(e.reasons[0], ContainsText(row.answers ? "wanted other" : "did not start"));
  }
}

}  // namespace
}  // namespace mkbench
