#include "harness/flow/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace mkbench {
namespace {

volatile std::sig_atomic_t interrupts = 0;

// The third interrupt ends the process at once, even while it loads or judges. Its hosts end too,
// and the next run removes its files from the temporary folder.
void count_interrupt(int) {
  constexpr int kPatience = 3, kInterruptedExit = 130;
  interrupts = interrupts + 1;
  if (interrupts >= kPatience) _exit(kInterruptedExit);
}

}  // namespace

void install_interrupt_handlers() {
  struct sigaction action = {};
  action.sa_handler = count_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: an interrupted poll() must return
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGCHLD, SIG_DFL);  // an inherited SIG_IGN would keep waitpid() from reporting hosts
}

int interrupt_count() { return interrupts; }

}  // namespace mkbench
