// mkbench: command line, judging, schedule and report. Engines run in hosts.
#include "harness/parent/hosts.h"
#include "harness/parent/parent_main.h"

int main(int argc, char** argv) {
  return mkbench::parent_main({argv, argv + argc}, mkbench::start_processes, false);
}
