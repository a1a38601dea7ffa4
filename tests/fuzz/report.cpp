// A report.json from elsewhere, as `mkbench verify` and `mkbench report` take it.
#include "harness/archive/recompute.h"
#include "harness/report/render.h"
#include "tests/fuzz/input.h"

using namespace mkbench;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(data, size);
  Report report;
  fuzz::accepts({ErrorKind::kBadInput, ErrorKind::kInvalidReference}, [&] {
    Differences differences;
    report = read_and_recompute(file.path(), differences);
    for (const Difference& difference : differences.all()) {
      fuzz::expect(fuzz::is_line(difference.path), "a difference names its place in one line");
      fuzz::expect(fuzz::is_line(difference.found) && fuzz::is_line(difference.recomputed),
                   "what differs is one line");
    }
    for (const std::string_view format : kTextFormats) render(report, std::string(format));
  });
  return 0;
}
