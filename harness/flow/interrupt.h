// Ctrl-C in the parent and in hosts: the handler only counts; code that runs long checks the count.
#pragma once

namespace mkbench {

// From this call on SIGINT and SIGTERM are counted and SIGPIPE is ignored.
void install_interrupt_handlers();

// How many SIGINT and SIGTERM have arrived.
int interrupt_count();

// Thrown at a safe point of a case or a host after an interrupt.
struct Interrupted {};

}  // namespace mkbench
