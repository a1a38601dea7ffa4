// Ctrl-C, for parent and worker alike: the handler only counts, whoever works looks at the count.
#pragma once

namespace mkbench {

// SIGINT and SIGTERM count from now on; SIGPIPE is ignored.
void install_interrupt_handlers();

// How often one of them came.
int interrupt_count();

// Thrown at a safe point of a worker once an interrupt has come.
struct Interrupted {};

}  // namespace mkbench
