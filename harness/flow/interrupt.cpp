#include "harness/flow/interrupt.h"

#include <fcntl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace mkbench {
namespace {

volatile std::sig_atomic_t interrupts = 0;

// After a hangup, writes to the terminal fail. Puts /dev/null in its place, so that the report is
// still written.
void leave_closed_terminal() {
  const int before = errno;
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    termios settings;
    if (tcgetattr(fd, &settings) == 0 || errno != EIO) continue;
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(nothing, fd);
    close(nothing);
  }
  errno = before;
}

// The third interrupt ends the process at once, even while it loads or judges. Its hosts end too,
// and the next run removes its files from the temporary folder.
void count_interrupt(int number) {
  constexpr int kPatience = 3, kInterruptedExit = 130;
  if (number == SIGHUP) leave_closed_terminal();
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
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);  // nohup ignores it
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // write() then fails at the limit of `ulimit -f`
  std::signal(SIGCHLD, SIG_DFL);  // an inherited SIG_IGN would keep waitpid() from reporting hosts
}

int interrupt_count() { return interrupts; }

}  // namespace mkbench
