// How hosts end, and what the parent makes of it.
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "harness/parent/collector.h"
#include "harness/parent/supervisor.h"
#include "harness/wire/channel.h"
#include "tests/support/case_bench.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

using testing::Bench;
using testing::engine_of;
using testing::holds;
using testing::reason_of;

// A worker that is a shell script: $2 is the job's descriptor, $3 that of the messages.
struct ScriptWorker {
  std::filesystem::path path;
  explicit ScriptWorker(const std::string& body) {
    static int number = 0;
    path = std::filesystem::temp_directory_path() /
           ("mkbench_worker_" + std::to_string(getpid()) + "_" + std::to_string(++number) + ".sh");
    std::ofstream(path) << "#!/bin/bash\nread -r job <&$2\n" << body << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  ~ScriptWorker() { std::filesystem::remove(path); }
  WorkerEnd run(std::vector<FromHost>& messages, double deadline_s) const {
    SupervisorOptions options;
    options.executable = path.string();
    options.deadline_s = deadline_s;
    return run_worker(CaseJob{}, options, [&](const FromHost& m) { messages.push_back(m); });
  }
};

TEST_CASE("the supervisor tells apart how workers end") {
  std::vector<FromHost> got;
  const WorkerEnd fine =
      ScriptWorker("echo \"$job\" >&$3; echo '{\"type\":\"done\"}' >&$3; echo stray").run(got, 10);
  CHECK(fine.how == WorkerEnd::How::kExited);
  CHECK(fine.code == 0);
  REQUIRE(got.size() == 2);
  // The job came back, which is no message from a host.
  REQUIRE(std::holds_alternative<Garbage>(got[0]));
  CHECK(holds(std::get<Garbage>(got[0]).problem, "type: found 'case'"));
  CHECK(std::holds_alternative<Done>(got[1]));

  got.clear();
  const WorkerEnd left = ScriptWorker("echo 'no json' >&$3; exit 3").run(got, 10);
  CHECK(left.how == WorkerEnd::How::kExited);
  CHECK(left.code == 3);
  REQUIRE(got.size() == 1);
  CHECK(std::holds_alternative<Garbage>(got[0]));

  const WorkerEnd crashed = ScriptWorker("kill -SEGV $$").run(got, 10);
  CHECK(crashed.how == WorkerEnd::How::kSignalled);
  CHECK(crashed.code == SIGSEGV);

  const WorkerEnd hung = ScriptWorker("sleep 60").run(got, 0.8);
  CHECK(hung.how == WorkerEnd::How::kHung);
  CHECK(hung.seconds < 20);

  const WorkerEnd slow =
      ScriptWorker("while true; do echo '{\"type\":\"progress\"}' >&$3; sleep 0.05; done")
          .run(got, 1.5);
  CHECK(slow.how == WorkerEnd::How::kTimedOut);

  CHECK(hang_silence_s(300) == 10);
  CHECK(hang_silence_s(20) == 10);
  CHECK(hang_silence_s(4) == 2);

  // A host's stdout is the parent's stderr: the parent's stdout holds the report alone.
  got.clear();
  ScriptWorker("[ /dev/fd/1 -ef /dev/fd/2 ] && echo '{\"type\":\"done\"}' >&$3").run(got, 10);
  REQUIRE(got.size() == 1);
  CHECK(std::holds_alternative<Done>(got[0]));

  SupervisorOptions missing;
  missing.executable = "/nonexistent/mkbench";
  const WorkerEnd none = run_worker(CaseJob{}, missing, [](const FromHost&) {});
  CHECK(none.how == WorkerEnd::How::kExited);
  CHECK(none.code == 127);
}

TEST_CASE("the end of a worker strikes the engine that was running, and samples before it stand") {
  struct Row {
    WorkerEnd end;
    Verdict verdict;
    std::string part;
  };
  using How = WorkerEnd::How;
  const std::vector<Row> rows = {
      {{How::kSignalled, SIGSEGV, 1, 0}, Verdict::kRuntimeError, "signal 11"},
      {{How::kSignalled, SIGKILL, 1, 0}, Verdict::kRuntimeError, "signal 9"},
      {{How::kHung, SIGKILL, 9, 5}, Verdict::kHang, "position 7"},
      {{How::kTimedOut, SIGKILL, 9, 0}, Verdict::kTimeout, "deadline of 9 s"},
      {{How::kExited, 2, 1, 0}, Verdict::kRuntimeError, "exit status 2"},
      {{How::kExited, 0, 1, 0}, Verdict::kRuntimeError, "exit status 0"},  // without its "done"
  };
  for (const Row& row : rows) {
    INFO(row.part);
    Bench bench;
    bench.run();
    CaseCollector collector(bench.job);
    for (const auto& message : bench.messages) {
      if (std::holds_alternative<Done>(message)) break;
      collector.take(message);
      const auto* sample = std::get_if<SampleTaken>(&message);
      if (sample != nullptr && sample->engine == "kernel") break;
    }
    collector.take(StageProgress{.stage = "timing", .engine = "kernel", .position = 7});
    collector.finish(row.end, 9);
    aggregate(collector.report(), 0.95, 1, false);
    const EngineReport& kernel = engine_of(collector.report(), "kernel");
    CHECK(kernel.verdict == row.verdict);
    CHECK(holds(reason_of(kernel), row.part));
    CHECK(kernel.samples.size() == 1);
    CHECK_FALSE(kernel.ms_per_tok.has_value());
    CHECK(engine_of(collector.report(), "eager").verdict == Verdict::kPass);
    CHECK(engine_of(collector.report(), "eager").reasons.empty());
    CHECK(engine_of(collector.report(), "eager").ms_per_tok.has_value());
  }
}

TEST_CASE("a crash behind a parity failure does not replace it") {
  using How = WorkerEnd::How;
  struct Row {
    Verdict judged;
    WorkerEnd end;
    Verdict wanted;  // the graver of the two
  };
  for (const Row& row :
       {Row{Verdict::kFailToken, {How::kSignalled, SIGSEGV, 1, 0}, Verdict::kFailToken},
        Row{Verdict::kFailFidelity, {How::kExited, 2, 1, 0}, Verdict::kFailFidelity},
        Row{Verdict::kFailToken, {How::kHung, SIGKILL, 9, 5}, Verdict::kHang},
        Row{Verdict::kPass, {How::kSignalled, SIGSEGV, 1, 0}, Verdict::kRuntimeError}}) {
    INFO(verdict_name(row.judged) << " " << verdict_name(row.wanted));
    Bench bench;
    CaseCollector collector(bench.job);
    ParityReport parity;
    parity.verdict = row.judged;
    parity.reason = "prompt 'one'";
    collector.take(ParityJudged{"kernel", parity});
    collector.take(StageProgress{.stage = "sweep", .engine = "kernel"});
    collector.finish(row.end, 9);
    const EngineReport& kernel = engine_of(collector.report(), "kernel");
    CHECK(kernel.verdict == row.wanted);
    const bool failed = row.judged != Verdict::kPass;
    REQUIRE(kernel.reasons.size() == (failed ? 2 : 1));
    if (failed)
      CHECK(holds(kernel.reasons[1], "before that " + std::string(verdict_name(row.judged))));
  }
}

TEST_CASE(
    "a run of a baseline with another head strikes the baseline; engines not reached say so") {
  Bench bench;
  CaseCollector collector(bench.job);
  collector.take(StageProgress{.stage = "parity", .engine = "eager-head-fp32"});
  collector.finish({WorkerEnd::How::kSignalled, SIGSEGV, 1, 0}, 9);
  CHECK(engine_of(collector.report(), "eager").verdict == Verdict::kRuntimeError);
  const EngineReport& kernel = engine_of(collector.report(), "kernel");
  CHECK(kernel.verdict == Verdict::kSkipped);
  CHECK(holds(reason_of(kernel), "not reached"));
}

TEST_CASE("a worker that was done and left with an error has failed all the same") {
  for (const int code : {0, 2}) {
    Bench bench;
    CaseCollector collector(bench.job);
    collector.take({{"type", "progress"}, {"stage", "timing"}, {"engine", "kernel"}});
    collector.take({{"type", "done"}});
    collector.finish({WorkerEnd::How::kExited, code, 1, 0}, 9);
    CHECK(engine_of(collector.report(), "kernel").verdict ==
          (code == 0 ? Verdict::kSkipped : Verdict::kRuntimeError));
  }
}

TEST_CASE("an interrupted worker that left by itself was interrupted, and struck nobody") {
  Bench bench;
  CaseCollector collector(bench.job);
  collector.take(StageProgress{.stage = "timing", .engine = "kernel"});
  collector.take(CaseInterrupted{});
  collector.finish({WorkerEnd::How::kExited, 0, 1, 0}, 9);
  CHECK(collector.interrupted());
  CHECK(engine_of(collector.report(), "kernel").verdict == Verdict::kSkipped);
  CHECK(holds(reason_of(engine_of(collector.report(), "kernel")), "interrupted"));
  CHECK(collector.report().verdict == Verdict::kSkipped);
}

TEST_CASE("an end in the diagnostics costs the profile, not the verdict") {
  Bench bench;
  bench.job.profile = true;
  bench.run();
  CaseCollector collector(bench.job);
  for (const auto& message : bench.messages) {
    if (std::holds_alternative<ProfileTaken>(message)) break;
    collector.take(message);
  }
  collector.take(StageProgress{.stage = "profile without waits", .engine = "kernel"});
  collector.finish({WorkerEnd::How::kHung, SIGKILL, 9, 5}, 9);
  aggregate(collector.report(), 0.95, 1, false);
  const EngineReport& kernel = engine_of(collector.report(), "kernel");
  CHECK(kernel.verdict == Verdict::kPass);
  CHECK(kernel.ms_per_tok.has_value());
  CHECK_FALSE(kernel.profile.has_value());
  CHECK(holds(kernel.profile_reason, "HANG"));
}

TEST_CASE("lines of a pipe come whole, however they were cut") {
  LineReader reader;
  std::vector<FromHost> got;
  const auto take = [&](const FromHost& m) { got.push_back(m); };
  const std::string text = "{\"type\":\"done\"}\n{\"type\":\"interrupted\"}\n[1]\n";
  for (const char c : text) reader.feed(&c, 1, take);
  REQUIRE(got.size() == 3);
  CHECK(std::holds_alternative<Done>(got[0]));
  CHECK(std::holds_alternative<CaseInterrupted>(got[1]));
  CHECK(std::holds_alternative<Garbage>(got[2]));
}

}  // namespace
}  // namespace mkbench
