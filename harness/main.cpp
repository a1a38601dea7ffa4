// mkbench: the parent process, or a host where the hidden command is given.
#include <cstdlib>
#include <string_view>

#include "harness/host/host_main.h"
#include "harness/parent/parent_main.h"
#include "harness/wire/job.h"

int main(int argc, char** argv) {
  using namespace mkbench;
  if (argc == 4 && std::string_view(argv[1]) == kWorkerCommand) {
    return worker_main(std::atoi(argv[2]), std::atoi(argv[3]));
  }
  return parent_main({argv, argv + argc}, do_job);
}
