// Prints the JSON Schema of report.json: `mkbench_schema > reports/report.schema.json` after a
// change of a field.
#include <iostream>

#include "harness/report/report.h"

int main() {
  std::cout << mkbench::report_schema().dump(2) << "\n";
  return 0;
}
