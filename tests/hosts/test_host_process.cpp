// Hosts as processes, with Python scripts as hosts: how they start, answer, stop and end, and what
// the parent says of each end.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "harness/flow/interrupt.h"
#include "harness/hosts/host_process.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"
#include "tests/support/in_child.h"
#include "tests/support/process_state.h"
#include "tests/support/script_host.h"

namespace mkbench {
namespace {

using testing::comes_to;
using testing::Failure;
using testing::failure_of;
using testing::in_call;
using testing::is_gone;
using testing::kAmple;
using testing::new_path;
using testing::position_of;
using testing::ScriptHost;
using testing::state_of;

size_t open_descriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

TEST_CASE("a host says hello and answers, and its stages and failures arrive") {
  ScriptHost host(R"(
hello()
next_call()
send({'type': 'stage', 'stage': 'one'})
send({'type': 'stage', 'stage': 'two'})
ok(7)
next_call()
send({'type': 'failed', 'kind': 7, 'message': 'rows were modified', 'traceback': ''})
serve(lambda: ok(9))
)");
  std::vector<std::string> stages;
  const auto answer = ask<Answered>(host.process, FinishCall{}, kAmple,
                                    [&](const std::string& stage) { stages.push_back(stage); });
  CHECK(answer.state.position == 7);
  CHECK(stages == std::vector<std::string>{"one", "two"});
  const Failure failed = failure_of(host.process);
  CHECK(failed.kind == ErrorKind::kIntegrity);
  CHECK(failed.text == "rows were modified");
  CHECK(host.process.alive());
  CHECK(position_of(host.process) == 9);
  CHECK_THAT(failure_of([&] { ask<Saved>(host.process, FinishCall{}, kAmple); }).text,
             ContainsText("found another message, wanted 'saved'"));

  const ProcessFacts facts = host.process.facts();
  CHECK(facts.program == "script");
  CHECK(facts.pid == host.process.pid());
  CHECK(facts.start_ms > 0);
  CHECK(facts.crossing_us > 0);
  std::string score;
  std::getline(std::ifstream("/proc/" + std::to_string(facts.pid) + "/oom_score_adj"), score);
  CHECK(score == "500");  // where memory is short, a host goes before its parent
}

TEST_CASE("a host that does not start says why") {
  struct Row {
    std::string body;
    ErrorKind kind;
    std::vector<std::string> parts;
  };
  const std::vector<Row> rows = {
      {"hello('b2')", ErrorKind::kEnvUnfit, {"found b2, wanted b1", "build all"}},
      {"print('libx.so.1: cannot\\nopen', file=sys.stderr); sys.exit(127)",
       ErrorKind::kEnvUnfit,
       {"/bin/sh cannot start: libx.so.1: cannot open"}},
      {"print('to stdout', flush=True); os._exit(1)", ErrorKind::kEnvUnfit, {"to stdout"}},
      {"os._exit(3)", ErrorKind::kEnvUnfit, {"cannot start: left with exit status 3"}},
      {"os.kill(os.getpid(), signal.SIGABRT)", ErrorKind::kEnvUnfit, {"signal 6 (Aborted)"}},
      {"ok()", ErrorKind::kRuntime, {"did not begin with hello"}},
  };
  for (const Row& row : rows) {
    INFO(row.body);
    ScriptHost host(row.body);
    const pid_t pid = host.process.pid();
    const Failure failure = failure_of(host.process);
    CHECK(failure.kind == row.kind);
    for (const std::string& part : row.parts) CHECK_THAT(failure.text, ContainsText(part));
    CHECK_FALSE(host.process.alive());
    CHECK(is_gone(pid));
  }
  HostProcess missing({.argv = {"/nonexistent/mkbench-host"}, .build = "b1", .holds = "ring"});
  const Failure failure = failure_of(missing);
  CHECK(failure.kind == ErrorKind::kEnvUnfit);
  CHECK(failure.text == "/nonexistent/mkbench-host cannot start: No such file or directory");
}

TEST_CASE("a host that ends or talks rubbish in a call is killed, and stays dead") {
  struct Row {
    std::string body, part;
  };
  const std::vector<Row> rows = {
      {"os.kill(os.getpid(), signal.SIGSEGV)", "died by signal 11 (Segmentation fault) during"},
      {"os.kill(os.getpid(), signal.SIGKILL)", "signal 9 (Killed), killed from outside"},
      {"os._exit(3)", "left with exit status 3 during 'finish'"},
      {"os.write(6, b'one\\n\\ntwo \\n three\\n'); os._exit(3)",
       "during 'finish'; its last words: two   three"},
      {"os.write(6, b'==7==ERROR: AddressSanitizer: overflow\\n==7==ABORTING\\n'); os._exit(1)",
       "; its last words: ==7==ERROR: AddressSanitizer: overflow"},
      {"os.close(3); time.sleep(1000)", "closed its channel during 'finish'"},
      {"raw(b'\\x04\\x00\\x00\\x00abcd'); time.sleep(1000)", "answered 'finish' with rubbish: top"},
      {"raw(b'\\xff\\xff\\xff\\xff some text'); time.sleep(1000)", "some text"},
      {"send({'type': 'poem'}); time.sleep(1000)", "rubbish: type: found 'poem'"},
      {"send({'type': 'ok'}); time.sleep(1000)", "rubbish: ok.state: found nothing"},
      {"raw(b'\\x09\\x00\\x00\\x00{'); os._exit(0)", "left with exit status 0"},
  };
  for (const Row& row : rows) {
    INFO(row.body);
    ScriptHost host(in_call(row.body));
    const pid_t pid = host.process.pid();
    const Failure failure = failure_of(host.process);
    CHECK(failure.kind == ErrorKind::kRuntime);
    CHECK_THAT(failure.text, ContainsText("the host of ring") && ContainsText(row.part));
    CHECK_FALSE(host.process.alive());
    CHECK(is_gone(pid));
    const Failure again = failure_of(host.process);
    CHECK(again.kind == failure.kind);
    CHECK(again.text == failure.text);
  }
}

TEST_CASE("a silent call is a hang at its limit, with the place that the host told") {
  for (const bool tells : {false, true}) {
    ScriptHost host((tells ? "answer_progress(lambda: (12, 3, 'o_proj'))\n" : "") +
                    in_call("time.sleep(1000)"));
    const pid_t pid = host.process.pid();
    host.process.facts();  // has started
    const Failure failure = failure_of(host.process, {0.8, 60});
    CHECK(failure.kind == ErrorKind::kHang);
    CHECK_THAT(failure.text, ContainsText("no progress for 0.") && ContainsText("'finish' began"));
    CHECK((failure.text.find(", position 12, layer 3, phase o_proj") != std::string::npos) ==
          tells);
    CHECK(host.process.progress().position == (tells ? 12 : -1));
    CHECK(failure.seconds >= 0.8);
    CHECK(failure.seconds < 20);
    CHECK(is_gone(pid));
    const Failure again = failure_of(host.process);
    CHECK(again.kind == ErrorKind::kHang);
    CHECK(again.text == failure.text);
  }
}

TEST_CASE("a call that may compile goes on while its processes compute, at most to its end") {
  const std::string compute = "end = time.time() + 2.5\nwhile time.time() < end: pass\n";
  const std::string in_child =
      "subprocess.run([sys.executable, '-c', '''import time\n" + compute + "'''])\n";
  struct Row {
    std::string work;
    Compiling compiling;
    bool busy, goes_on;
  };
  const Row rows[] = {{compute, Compiling::kFirstCall, true, true},
                      {compute, Compiling::kLaterCall, false, true},
                      {in_child, Compiling::kLaterCall, false, true},
                      {compute, Compiling::kLaterCall, true, false},
                      {compute, Compiling::kNo, false, false},
                      {"time.sleep(1000)\n", Compiling::kFirstCall, false, false}};
  for (const Row& row : rows) {
    INFO(row.work << static_cast<int>(row.compiling) << row.busy);
    ScriptHost host(in_call(row.work + "ok(5)\nserve()"));
    host.process.card_busy = [&] { return row.busy; };
    host.process.facts();
    const CallLimit limit{1.5, 60, row.compiling};
    if (row.goes_on) {
      CHECK(position_of(host.process, limit) == 5);
    } else {
      const Failure failure = failure_of(host.process, limit);
      CHECK(failure.kind == ErrorKind::kHang);
      CHECK(failure.seconds < 20);
    }
  }
  ScriptHost endless(in_call("while True: pass"));
  endless.process.facts();
  CHECK(failure_of(endless.process, {0.5, 2, Compiling::kFirstCall}).kind == ErrorKind::kHang);
}

TEST_CASE("a call that takes long is told again and again, with what is waited for") {
  std::vector<std::string> told;
  ScriptHost host("answer_progress(lambda: (12, -1, ''))\n" + in_call("time.sleep(1000)"));
  host.process.on_wait = [&](const std::string& text) { told.push_back(text); };
  host.process.tell_after_s = 1;
  host.process.facts();
  failure_of(host.process, {4.5, 60});
  REQUIRE(told.size() >= 2);
  CHECK_THAT(told[0],
             ContainsText("'finish' of ") &&
                 ContainsText(", position 12 takes 1 s so far (its process is idle) and is ended "
                              "after 60 s, or after 4 s if it shows no progress"));
  CHECK_THAT(told[1], ContainsText(" takes 2 s so far"));
  ScriptHost strict(in_call("time.sleep(1000)"));
  strict.process.on_wait = host.process.on_wait;
  strict.process.tell_after_s = 1;
  failure_of(strict.process, {2, 2});
  CHECK_THAT(told.back(), ContainsText(" and is ended after 2 s") && !ContainsText("progress"));
}

TEST_CASE("a call that moves goes on beyond its limit, to the end of all time at most") {
  const std::string moving =
      "start = time.time()\n"
      "answer_progress(lambda: (int(1e3 * (time.time() - start)), -1, ''))\n";
  ScriptHost slow(moving + in_call("time.sleep(2)\nok(5)\nserve()"));
  slow.process.facts();
  CHECK(position_of(slow.process, {1, 60}) == 5);

  ScriptHost endless(moving + in_call("time.sleep(1000)"));
  endless.process.facts();
  const Failure failure = failure_of(endless.process, {1, 1.6});
  CHECK(failure.kind == ErrorKind::kTimeout);
  CHECK_THAT(failure.text, ContainsText("still at work") && ContainsText(", position "));
  CHECK(failure.seconds >= 1.6);
  CHECK_FALSE(endless.process.alive());

  // Stages count as progress.
  ScriptHost stages(in_call(
      "for i in range(20):\n    send({'type': 'stage', 'stage': 'x'})\n    time.sleep(0.1)\nok(6)\n"
      "serve()"));
  stages.process.facts();
  CHECK(position_of(stages.process, {1, 60}) == 6);
}

// Starts a process in a session of its own, whose parent ends.
constexpr char kOrphan[] = R"(
def orphan():
    out, into = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(into, struct.pack('<i', os.getpid()))
            time.sleep(1000)
        os._exit(0)
    os.wait()
    return struct.unpack('<i', os.read(out, 4))[0]
)";

TEST_CASE("a stopped host stands still with all that it started, and the next call wakes it") {
  const std::string start =
      GENERATE("subprocess.Popen(['sleep', '1000']).pid",
               "subprocess.Popen(['sleep', '1000'], start_new_session=True).pid", "orphan()");
  INFO(start);
  const std::filesystem::path ended = new_path();
  pid_t pid = 0, left = 0;
  {
    ScriptHost host("ended = '" + ended.string() + "'\n" + kOrphan + "child = " + start +
                    "\nhello()\nserve(lambda: ok(child))");
    const pid_t child = left = position_of(host.process);
    pid = host.process.pid();
    for (int i = 0; i < 2; ++i) {
      host.process.stop();
      CHECK(state_of(pid) == 'T');
      CHECK(comes_to(child, "T"));
      host.process.stop();  // once more changes nothing
      CHECK(position_of(host.process) == child);
      CHECK(comes_to(pid, "SR"));
      CHECK(comes_to(child, "SR"));
    }
    host.process.stop();
  }
  CHECK(is_gone(pid));
  CHECK(is_gone(left));
  CHECK(std::filesystem::remove(ended));  // it was woken and left by itself
}

TEST_CASE("processes that start others without end are stopped and ended with their host") {
  const std::filesystem::path steps = new_path();  // a byte for each process
  const auto count = [&] { return std::filesystem::file_size(steps); };
  const auto goes_on = [&](int looks) {
    const auto before = count();
    for (int i = 0; i < looks && count() == before; ++i) usleep(10'000);
    return count() != before;
  };
  {
    ScriptHost host("steps = os.open('" + steps.string() +
                    R"(', os.O_CREAT | os.O_APPEND | os.O_WRONLY)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    while True:
        os.write(steps, b'x')
        if os.fork() != 0: os._exit(0)
hello()
serve()
)");
    for (int i = 0; i < 3; ++i) {
      position_of(host.process);
      CHECK(goes_on(1000));
      host.process.stop();
      CHECK_FALSE(goes_on(5));
    }
    position_of(host.process);
  }
  CHECK_FALSE(goes_on(5));
  std::filesystem::remove(steps);
}

TEST_CASE("a host that dies while it is stopped or idle is told of in the next call") {
  const std::string with_child =
      "child = subprocess.Popen(['sleep', '1000'])\nhello()\nserve(lambda: ok(child.pid))";
  SECTION("stopped") {
    ScriptHost host(with_child);
    const pid_t child = position_of(host.process), pid = host.process.pid();
    host.process.stop();
    kill(pid, SIGKILL);
    REQUIRE(is_gone(pid));
    const Failure failure = failure_of(host.process);
    CHECK(failure.kind == ErrorKind::kRuntime);
    CHECK_THAT(failure.text, ContainsText("signal 9"));
    CHECK(is_gone(child));
  }
  SECTION("idle") {
    ScriptHost host(with_child);
    const pid_t child = position_of(host.process), pid = host.process.pid();
    kill(pid, SIGSEGV);
    REQUIRE(is_gone(pid));
    CHECK_THAT(failure_of(host.process).text, ContainsText("signal 11"));
    CHECK(is_gone(child));
  }
  SECTION("idle, and then to be stopped") {
    ScriptHost host(with_child);
    const pid_t child = position_of(host.process), pid = host.process.pid();
    kill(pid, SIGSEGV);
    REQUIRE(is_gone(pid));
    CHECK_NOTHROW(host.process.stop());
    CHECK_FALSE(host.process.alive());
    CHECK_THAT(failure_of(host.process).text,
               ContainsText("signal 11 (Segmentation fault) while nothing was asked of it"));
    CHECK(is_gone(child));
  }
}

TEST_CASE("nothing that a host started outlives it, however it ends") {
  const std::string own_session = GENERATE("", ", start_new_session=True");
  const std::string child = "child = subprocess.Popen(['sleep', '1000']" + own_session + ")\n";
  const std::string tell = child + "hello()\nnext_call()\nok(child.pid)\nnext_call()\n";
  struct Row {
    std::string body;
    bool fails;
  };
  for (const Row& row : {Row{"ok()\nserve()", false}, Row{"time.sleep(1000)", true},
                         Row{"os._exit(0)", true}, Row{"send({'type': 'poem'})\nserve()", true}}) {
    INFO(row.body);
    pid_t pid = 0, grandchild = 0;
    {
      ScriptHost host(tell + row.body);
      pid = host.process.pid();
      grandchild = position_of(host.process);
      REQUIRE(grandchild > 0);
      CHECK(comes_to(grandchild, "SR"));
      if (row.fails) {
        failure_of(host.process, {0.5, 0.5});
        CHECK(is_gone(grandchild));
      } else {
        position_of(host.process);
      }
    }
    CHECK(is_gone(pid));
    CHECK(is_gone(grandchild));
  }
}

TEST_CASE("a host that does not react to the end of its channel is killed") {
  pid_t pid = 0;
  {
    ScriptHost host("signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" +
                    in_call("ok()\ntime.sleep(1000)"));
    position_of(host.process);
    pid = host.process.pid();
  }
  CHECK(is_gone(pid));
}

TEST_CASE("no descriptor is left behind, and a host inherits only its own") {
  const size_t before = open_descriptors();
  {
    ScriptHost first("hello()\nserve()"), missing("os._exit(3)"), crashing(in_call("os._exit(3)"));
    position_of(first.process);
    failure_of(missing.process);
    failure_of(crashing.process);
    ScriptHost second(R"(
links = [os.readlink('/proc/self/fd/' + fd) for fd in os.listdir('/proc/self/fd')
         if os.path.islink('/proc/self/fd/' + fd)]
hello()
serve(lambda: ok(sum(link.startswith('socket:') for link in links)))
)");
    CHECK(position_of(second.process) == 2);
    CHECK(open_descriptors() > before);
  }
  CHECK(open_descriptors() == before);

  // Where no process can be made, either.
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit few{before + 2, limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  const Failure failure = failure_of(
      [] { HostProcess({.argv = {"/bin/true"}, .build = "b1", .holds = "the judge's runs"}); });
  setrlimit(RLIMIT_NOFILE, &limit);
  CHECK(failure.kind == ErrorKind::kRuntime);
  CHECK_THAT(failure.text, ContainsText("no process for the judge's runs: Too many open files"));
  CHECK(open_descriptors() == before);
}

TEST_CASE("hosts start side by side: the second does not wait for the first") {
  const std::filesystem::path met = new_path();
  ScriptHost first(
      "for i in range(1000):\n    if os.path.exists('" + met.string() +
      "'): break\n    time.sleep(0.01)\nelse: os._exit(9)\nhello()\nserve(lambda: ok(1))");
  ScriptHost second("open('" + met.string() + "', 'w').close()\nhello()\nserve(lambda: ok(2))");
  CHECK(position_of(first.process) == 1);
  CHECK(position_of(second.process) == 2);
  CHECK(std::filesystem::remove(met));
}

}  // namespace
}  // namespace mkbench
