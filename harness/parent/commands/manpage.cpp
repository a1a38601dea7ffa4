// `mkbench manpage`: mkbench.1 on stdout.
#include <fmt/format.h>

#include "harness/parent/man_page.h"
#include "harness/parent/options.h"

namespace mkbench {

int manpage_command(const Options&, const Invocation&) {
  fmt::print("{}", man_page());
  return 0;
}

}  // namespace mkbench
