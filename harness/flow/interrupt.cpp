#include "harness/flow/interrupt.h"

#include <csignal>

namespace mkbench {
namespace {

volatile std::sig_atomic_t interrupts = 0;

void count_interrupt(int) { interrupts = interrupts + 1; }

}  // namespace

void install_interrupt_handlers() {
  struct sigaction action = {};
  action.sa_handler = count_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: an interrupted poll() must return
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int interrupt_count() { return interrupts; }

}  // namespace mkbench
