// Debuggers that stand still do not keep Ctrl-C waiting.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "harness/flow/interrupt.h"
#include "harness/hosts/post_mortem.h"
#include "tests/support/in_child.h"
#include "tests/support/micro_model.h"
#include "tests/support/scoped_variable.h"

namespace mkbench::testing {
namespace {

TEST_CASE("Ctrl-C ends a debugger at once, and the post-mortem says so") {
  const TemporaryFolder folder;
  const std::filesystem::path gdb = folder.path() / "gdb";
  std::ofstream(gdb) << "#!/bin/sh\n/bin/sleep 600\n";
  std::filesystem::permissions(gdb, std::filesystem::perms::owner_all);
  const ScopedVariable path("PATH", folder.path().c_str());
  // The count of interrupts is the process's, and is never set back.
  const int code = in_child([] {
    install_interrupt_handlers();
    std::thread presses([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      kill(getpid(), SIGINT);
    });
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<StackDump> stacks = take_stacks(getpid());
    presses.join();
    if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(10)) return 1;
    if (stacks.empty() || stacks[0].tool != "gdb") return 2;
    return stacks[0].why == "interrupted before it showed a stack" ? 0 : 3;
  });
  CHECK(code == 0);
}

}  // namespace
}  // namespace mkbench::testing
