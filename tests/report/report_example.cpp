// Writes an example report of the tests: `report_example gpu|cpu|failed|diagnosed|empty FOLDER
// [FORMAT]` (FORMAT printed to stdout). For Python tests.
#include <iostream>

#include "harness/report/render.h"
#include "tests/support/example_report.h"

int main(int argc, char* argv[]) {
  if (argc < 3) return 2;
  try {
    const std::string kind = argv[1];
    using namespace mkbench::testing;
    const mkbench::Report report = kind == "cpu"         ? example_cpu_report()
                                   : kind == "failed"    ? example_failed_report()
                                   : kind == "diagnosed" ? example_diagnosed_report()
                                   : kind == "empty"     ? mkbench::Report()
                                                         : example_report();
    mkbench::write_report(report, argv[2]);
    if (argc > 3) std::cout << mkbench::render(report, argv[3]);
  } catch (const mkbench::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
