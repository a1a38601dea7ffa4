// mkbench: the parent process, or a host where the hidden command is given.
#include <cstdlib>
#include <string_view>

#include "harness/host/host_main.h"
#include "harness/parent/parent_main.h"
#include "harness/wire/job.h"

namespace {

// A file descriptor, as the parent writes it.
int number(const char* text) { return static_cast<int>(std::strtol(text, nullptr, 10)); }

}  // namespace

int main(int argc, char** argv) {
  using namespace mkbench;
  if (argc == 4 && std::string_view(argv[1]) == kWorkerCommand) {
    return worker_main(number(argv[2]), number(argv[3]));
  }
  return parent_main({argv, argv + argc}, do_job);
}
