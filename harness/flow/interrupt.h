// Ctrl-C in the parent and in hosts: the handler only counts; code that runs long checks the count.
#pragma once

namespace mkbench {

// From this call on SIGINT, SIGTERM and SIGHUP are counted (SIGHUP not if it is ignored now, as
// under nohup), and SIGPIPE and SIGXFSZ are ignored. If the terminal has hung up, output goes to
// /dev/null.
void install_interrupt_handlers();

// How many of these have arrived.
int interrupt_count();

// Thrown at a safe point of a case or a host after an interrupt.
struct Interrupted {};

}  // namespace mkbench
