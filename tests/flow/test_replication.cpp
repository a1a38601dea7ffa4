// Blocks over fresh processes, blocks and warm-up by time.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/flow/replication.h"
#include "harness/flow/timed_truth.h"
#include "harness/flow/warm_up.h"
#include "references/base/error.h"
#include "references/snapshot.h"
#include "tests/support/case_bench.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

using testing::Bench;
using testing::engine_of;
using testing::reason_of;

// A bench whose engines live in processes with pids: one of each name, until it is ended.
struct ProcessBench : Bench {
  std::map<std::string, int> pids;
  int next_pid = 100;
  std::vector<std::string> ended;
  std::vector<std::vector<std::string>>
      expected;  // engines that will be opened next, each time that it was told

  ProcessBench() {
    services.expect = [this](const std::vector<std::string>& names) { expected.push_back(names); };
    const auto make = services.make_engine;
    services.make_engine = [this, make](const EngineRequest& request, const ModelWeights& weights) {
      if (pids.try_emplace(request.name, next_pid).second) ++next_pid;
      return make(request, weights);
    };
    services.facts = [this](const Engine& engine) {
      const std::string name = engine.capabilities().name;
      EngineFacts facts{.resolved_name = name, .device = "cpu", .settings = "", .process = {}};
      facts.process.pid = pids[name];
      return facts;
    };
    services.end_process = [this](const std::string& name) {
      ended.push_back(name);
      pids.erase(name);
    };
  }
};

std::string processes_of(const EngineReport& e) {
  std::string text;
  for (const Sample& s : e.samples) text += std::to_string(s.process);
  return text;
}

TEST_CASE("every engine is opened anew in each process, and the blocks are spread over them") {
  ProcessBench bench;
  bench.job.processes = 3;
  bench.job.blocks = bench.job.max_blocks = 7;
  const CaseReport c = bench.run();
  for (const char* name : {"eager", "kernel"}) {
    const EngineReport& e = engine_of(c, name);
    INFO(name << " " << reason_of(e));
    CHECK(e.verdict == Verdict::kPass);
    CHECK(processes_of(e) == "0001122");
    REQUIRE(e.timed_processes.size() == 3);
    std::set<int> pids;
    for (const ProcessFacts& process : e.timed_processes) pids.insert(process.pid);
    CHECK(pids.size() == 3);
    CHECK(e.ms_per_tok->processes == 3);
    // The first block of every process has a state receipt.
    std::string receipts;
    for (const Sample& s : e.samples) receipts += s.state_checked.empty() ? '-' : 's';
    CHECK(receipts == "s--s-s-");
    for (size_t b = 0; b < e.samples.size(); ++b) CHECK(e.samples[b].block == static_cast<int>(b));
  }
  CHECK(bench.ended.size() == 6);  // what was judged is closed before the first process too
  CHECK(std::count_if(bench.expected.begin(), bench.expected.end(),
                      [](const auto& names) { return names.size() == 2; }) == 3);
  CHECK(c.comparisons[0].processes == 3);
  CHECK(c.comparisons[0].blocks == 7);

  std::string order;  // ABBA goes on over the processes
  for (const auto& m : bench.messages) {
    if (const auto* sample = std::get_if<SampleTaken>(&m)) order += sample->engine[0];
  }
  CHECK(order == "ekkekeekekkeke");
}

// Names of the engines, by their first letters, in the order in which each of four processes starts
// and opens them.
std::vector<std::string> openings(uint64_t seed) {
  ProcessBench bench;
  bench.job.processes = bench.job.blocks = bench.job.max_blocks = 4;
  bench.job.prompt_seed = seed;
  const auto make = bench.services.make_engine;
  std::string opened;
  bench.services.make_engine = [&](const EngineRequest& request, const ModelWeights& weights) {
    opened += request.name[0];
    return make(request, weights);
  };
  bench.run();
  std::vector<std::string> started;
  std::string all;
  for (const std::vector<std::string>& names : bench.expected) {
    if (names.size() != 2) continue;
    started.push_back({names[0][0], names[1][0]});
    all += started.back();
  }
  INFO(opened);  // before these the engines are judged, and after them eager scores near ties
  CHECK(opened.find(all) != std::string::npos);
  return started;
}

TEST_CASE("engines start and open in a drawn order, which the next process has backwards") {
  std::set<std::vector<std::string>> found;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    const std::vector<std::string> by_process = openings(seed);
    REQUIRE(by_process.size() == 4);
    CHECK(by_process[0] != by_process[1]);
    CHECK(by_process[2] != by_process[3]);
    found.insert(by_process);
    CHECK(openings(seed) == by_process);
  }
  CHECK(found.size() == 4);  // each pair of processes is drawn
}

TEST_CASE("one process is the one that was judged; there are no more processes than blocks") {
  ProcessBench one;
  const CaseReport c = one.run();
  CHECK(one.ended.empty());
  CHECK(engine_of(c, "kernel").timed_processes.size() == 1);
  CHECK(engine_of(c, "kernel").timed_processes[0].pid == engine_of(c, "kernel").process.pid);
  ProcessBench many;
  many.job.processes = 5;  // three blocks
  CHECK(processes_of(engine_of(many.run(), "kernel")) == "012");
}

TEST_CASE("with one engine open at a time, each turn is a process of its own") {
  ProcessBench bench;
  bench.job.one_at_a_time = true;
  const CaseReport c = bench.run();
  const EngineReport& e = engine_of(c, "kernel");
  CHECK(processes_of(e) == "012");
  REQUIRE(e.timed_processes.size() == 3);
  CHECK(e.timed_processes[0].pid != e.timed_processes[1].pid);
  CHECK(e.timed_processes[1].pid != e.timed_processes[2].pid);
  CHECK(e.ms_per_tok->processes == 3);
}

TEST_CASE("an engine that does not open in a later process fails alone") {
  ProcessBench bench;
  bench.job.time_anyway = true;
  bench.job.processes = 3;
  const auto make = bench.services.make_engine;
  int made = 0;
  bench.services.make_engine = [&](const EngineRequest& request, const ModelWeights& weights) {
    if (request.name == "kernel" && ++made == 3) throw Error(ErrorKind::kCuda, "no context");
    return make(request, weights);
  };
  const CaseReport c = bench.run();
  CHECK(engine_of(c, "kernel").verdict == Verdict::kCudaError);
  CHECK(engine_of(c, "kernel").samples.size() == 1);
  CHECK_FALSE(engine_of(c, "kernel").ms_per_tok.has_value());
  CHECK(engine_of(c, "eager").verdict == Verdict::kPass);
  CHECK(engine_of(c, "eager").samples.size() == 3);
}

TEST_CASE("--target-rel-ci adds processes where there are several") {
  ProcessBench bench;
  bench.job.processes = 2;
  bench.job.blocks = 4;
  bench.job.max_blocks = 9;
  bench.job.target_rel_ci = 1e-12;  // never reached
  bench.scripts["kernel"].before = [&](int) { bench.pass_ms(2 + 0.01 * bench.timed_calls); };
  CHECK(processes_of(engine_of(bench.run(), "kernel")) == "0011223344");
}

// Every timed call takes so long.
void take(Bench& bench, double ms) {
  bench.services.timed = [&bench, ms](Engine&, const std::function<void()>& call) {
    call();
    bench.pass_ms(ms);
    return TimedCall{.ms = ms};
  };
}

TEST_CASE("by time, an engine gets three seconds of samples, and every process as many blocks") {
  ProcessBench bench;
  bench.job.processes = 2;
  bench.job.blocks_by_time = true;
  take(bench, 400);
  const CaseReport c = bench.run();
  CHECK(processes_of(engine_of(c, "eager")) == "00001111");
  CHECK(processes_of(engine_of(c, "kernel")) == "00001111");
  CHECK(engine_of(c, "kernel").warm_ups.empty());

  // The first process decides, though the samples of the second one are shorter.
  ProcessBench sped;
  sped.job.processes = 2;
  sped.job.blocks_by_time = true;
  sped.services.timed = [&](Engine&, const std::function<void()>& call) {
    call();
    return TimedCall{.begin_ms = 0, .ms = sped.samples_seen < 8 ? 400.0 : 100.0};
  };
  CHECK(processes_of(engine_of(sped.run(), "kernel")) == "00001111");

  // A slow engine still gets two blocks a process.
  ProcessBench slow;
  slow.job.processes = 2;
  slow.job.blocks_by_time = true;
  take(slow, 10000);
  CHECK(processes_of(engine_of(slow.run(), "kernel")) == "0011");
}

TEST_CASE("blocks by time are foretold by the rule that ends them") {
  CaseJob job;
  job.processes = 5;
  job.blocks_by_time = true;
  CHECK(blocks_by_time(job, {0.1, 0.2}) == 6);    // 0.6 s of the faster one
  CHECK(blocks_by_time(job, {0.036, 5}) == 2);    // eager's 8 s of 40
  CHECK(blocks_by_time(job, {0.036, 1.5}) == 6);  // the sixth begins before 8 s
  CHECK(blocks_by_time(job, {}) == 2);
  CHECK(process_count(job) == 5);
  job.blocks_by_time = false;
  job.blocks = 3;
  CHECK(process_count(job) == 3);
  job.one_at_a_time = true;
  job.blocks = 10;
  CHECK(process_count(job) == 10);
}

TEST_CASE("a warm-up by time is in the report, for every engine and process") {
  ProcessBench bench;
  bench.job.processes = 2;
  bench.job.blocks = bench.job.max_blocks = 2;
  bench.job.warmup_by_time = true;
  take(bench, 1);
  const CaseReport c = bench.run();
  for (const char* name : {"eager", "kernel"}) {
    const EngineReport& e = engine_of(c, name);
    REQUIRE(e.warm_ups.size() == 2);
    CHECK((e.warm_ups[0].process == 0 && e.warm_ups[1].process == 1));
    for (const WarmUp& w : e.warm_ups) {
      CHECK(w.settled);
      CHECK(w.runs > 10);
      CHECK(w.seconds >= 2 * kWarmWindowS);
      CHECK(w.time_change == 0.0);
      CHECK_FALSE(w.clock_change.has_value());
    }
  }
}

// A machine on which each unit takes ms_at(time), and whose clock is that of its calls.
struct SlowMachine {
  std::function<double(double s)> ms_at;
  std::function<double(double s)> ghz_at = [](double) { return 0.0; };
  double now_s = 0;
  std::vector<int> asked{};

  WarmUp warm(int units) {
    return warm_up(
        units,
        [&](int n) {
          asked.push_back(n);
          const WarmRun run{n * ms_at(now_s), ghz_at(now_s)};
          now_s += run.ms / 1000 + 0.001;
          return run;
        },
        [&] { return now_s; });
  }
};

TEST_CASE("a warm-up ends once two windows of half a second agree in time and clock") {
  SlowMachine steady{.ms_at = [](double) { return 1.0; }};
  const WarmUp one = steady.warm(100);
  CHECK(one.settled);
  CHECK(one.seconds > 1.0);
  CHECK(one.seconds < 1.4);
  CHECK(steady.asked[0] == 8);
  CHECK(steady.asked[1] == 100);

  SlowMachine ramping{.ms_at = [](double s) { return s < 4 ? 2 - 0.2 * s : 1.2; }};
  const WarmUp ramped = ramping.warm(100);
  CHECK(ramped.settled);
  CHECK(ramped.seconds > 4.5);
  CHECK(ramped.seconds < 6);

  SlowMachine restless{.ms_at = [](double s) { return 1 + 0.1 * s; }};
  const WarmUp never = restless.warm(100);
  CHECK_FALSE(never.settled);
  CHECK(never.seconds >= kMostWarmUpS);
  CHECK(never.seconds < kMostWarmUpS + 1);
  CHECK(*never.time_change > kWarmAgreement);

  // The time may stand still while the clock does not.
  SlowMachine clock{.ms_at = [](double) { return 1.0; },
                    .ghz_at = [](double s) { return s < 3 ? 1.8 + 0.03 * s : 1.9; }};
  const WarmUp clocked = clock.warm(100);
  CHECK(clocked.settled);
  CHECK(clocked.seconds > 3.5);
  CHECK(std::abs(*clocked.clock_change) <= kWarmAgreement);
}

TEST_CASE("a slow engine warms up on few tokens at a time") {
  SlowMachine eager{.ms_at = [](double) { return 40.0; }};
  const WarmUp warm = eager.warm(128);
  CHECK(warm.settled);
  CHECK(warm.seconds < 2);
  CHECK(eager.asked[1] == 6);  // a quarter of a second
  SlowMachine slower{.ms_at = [](double) { return 30000.0; }};
  const WarmUp once = slower.warm(1);
  CHECK_FALSE(once.settled);
  CHECK_FALSE(once.time_change.has_value());
  CHECK(slower.asked == std::vector<int>{1});
}

TEST_CASE("prompts of processes differ where a closed form gives their ids") {
  ModelWeights weights;
  weights.config.shape.vocab = 151936;
  weights.lagset = "short";
  CaseJob job;
  job.depth = 64;
  job.prompt_seed = 7;
  const TimedTruth first = find_timed_truth(job, weights),
                   second = find_timed_truth(job, weights, 1);
  CHECK(first.prompt == find_timed_truth(job, weights, 0).prompt);
  REQUIRE(first.prompt.size() == second.prompt.size());
  CHECK(first.prompt != second.prompt);
  // The prompt of another process is no part of this one, one id further.
  CHECK(std::vector(first.prompt.begin() + 1, first.prompt.end()) !=
        std::vector(second.prompt.begin(), second.prompt.end() - 1));
  CHECK(first.lagset == "short");
  CHECK(second.lagset == "short");
  CHECK(first.late_ids == second.late_ids);
  weights.lagset.clear();
  CHECK(find_timed_truth(job, weights, 1).prompt == find_timed_truth(job, weights).prompt);
  weights.lagset = "short";
  job.ids.assign(65, first.prompt[0]);
  CHECK(find_timed_truth(job, weights, 1).prompt == job.ids);
}

}  // namespace
}  // namespace mkbench
