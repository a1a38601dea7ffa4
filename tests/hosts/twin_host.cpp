// The program of tests/support/twin_program.h as a process.
#include "harness/host/serve.h"
#include "tests/support/twin_program.h"

int main() { return mkbench::serve(mkbench::testing::twin_program()); }
