// How a host ends when its parent is interrupted or killed, its last words, and who cleans up.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>

#include "harness/flow/interrupt.h"
#include "tests/support/catch2.h"
#include "tests/support/in_child.h"
#include "tests/support/process_state.h"
#include "tests/support/script_host.h"

namespace mkbench {
namespace {

using testing::Failure;
using testing::failure_of;
using testing::in_call;
using testing::in_child;
using testing::is_gone;
using testing::position_of;
using testing::ScriptHost;

TEST_CASE("after one Ctrl-C a call may end, after two its host is killed") {
  const int code = in_child([] {
    install_interrupt_handlers();
    ScriptHost host("hello()\nnext_call()\ntime.sleep(0.5)\nok(4)\nnext_call()\ntime.sleep(1000)");
    host.process.facts();
    raise(SIGINT);
    if (position_of(host.process) != 4) return 1;
    const pid_t pid = host.process.pid();
    raise(SIGINT);
    const auto begin = std::chrono::steady_clock::now();
    try {
      position_of(host.process);
      return 2;
    } catch (const Interrupted&) {
    }
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(10)) return 5;
    if (host.process.alive() || !is_gone(pid)) return 3;
    return failure_of(host.process).text.find("after Ctrl-C") != std::string::npos ? 0 : 4;
  });
  CHECK(code == 0);
}

TEST_CASE("a host does not outlive a parent that is killed") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const int code = in_child([&] {
    auto* host = new ScriptHost(in_call("ok()\ntime.sleep(1000)"));
    position_of(host->process);
    const pid_t pid = host->process.pid();
    return write(ends[1], &pid, sizeof pid) == sizeof pid ? 0 : 1;
  });
  CHECK(code == 0);
  pid_t pid = 0;
  REQUIRE(read(ends[0], &pid, sizeof pid) == sizeof pid);
  close(ends[0]);
  close(ends[1]);
  CHECK(is_gone(pid));
}

TEST_CASE("a host's last words are those of its last call") {
  ScriptHost host(in_call("os.write(6, b'early\\n')\nok()\nnext_call()\nos._exit(3)"));
  position_of(host.process);
  CHECK(failure_of(host.process).text ==
        "the host of ring left with exit status 3 during 'finish'");

  ScriptHost asan(
      in_call("os.write(6, b'x\\n==7==ASan runtime does not come first in initial library "
              "list; you should\\n'); os._exit(1)"));
  const Failure failure = failure_of(asan.process);
  CHECK(failure.kind == ErrorKind::kEnvUnfit);
  CHECK_THAT(failure.text, ContainsText("its last words: ==7==ASan runtime does not come first"));
}

TEST_CASE("what a host has started may clean up after it") {
  // The child sees the end of its parent by a pipe, as multiprocessing's resource tracker does.
  const std::string child =
      "down, up = os.pipe()\n"
      "if os.fork() == 0:\n    os.close(up); os.close(3); os.close(4)\n    os.read(down, 1)\n"
      "    time.sleep(0.2)\n    os.unlink(sys.argv[0] + '.left')\n    os._exit(0)\n"
      "open(sys.argv[0] + '.left', 'w').close()\n";
  for (const std::string body :
       {"serve()", "next_call()\ntime.sleep(1000)", "next_call()\nos._exit(0)"}) {
    INFO(body);
    ScriptHost host(child + "hello()\nnext_call()\nok()\n" + body);
    position_of(host.process);
    const std::string left = host.script.path.string() + ".left";
    REQUIRE(std::filesystem::exists(left));
    if (body == "serve()") {
      host.process.end(ErrorKind::kRuntime, "over");
    } else {
      failure_of(host.process, {0.5, 0.5});
    }
    CHECK_FALSE(std::filesystem::remove(left));
  }
}

}  // namespace
}  // namespace mkbench
