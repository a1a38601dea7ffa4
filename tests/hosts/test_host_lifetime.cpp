// How a host ends when its parent is interrupted or killed.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "harness/flow/interrupt.h"
#include "tests/support/catch2.h"
#include "tests/support/in_child.h"
#include "tests/support/process_state.h"
#include "tests/support/script_host.h"

namespace mkbench {
namespace {

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

}  // namespace
}  // namespace mkbench
