// Writes the tests' example report: `report_example gpu|cpu|failed FOLDER [FORMAT]` (FORMAT printed
// to stdout). For Python tests.
#include <iostream>

#include "tests/support/example_report.h"

int main(int argc, char* argv[]) {
  if (argc < 3) return 2;
  try {
    const std::string kind = argv[1];
    const mkbench::Report report = kind == "cpu"      ? mkbench::testing::example_cpu_report()
                                   : kind == "failed" ? mkbench::testing::example_failed_report()
                                                      : mkbench::testing::example_report();
    mkbench::write_report(report, argv[2]);
    if (argc > 3) std::cout << mkbench::render(report, argv[3]);
  } catch (const mkbench::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
