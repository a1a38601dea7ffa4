// mkbench: command line, judging, schedule and report. Engines run in hosts.
#include "harness/cli/command_main.h"
#include "harness/hosts/hosts.h"

int main(int argc, char** argv) {
  return mkbench::command_main({argv, argv + argc}, mkbench::start_processes, false);
}
