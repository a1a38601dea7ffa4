// A report.json from elsewhere, as `mkbench verify` and `mkbench report` take it.
#include "harness/parent/recompute.h"
#include "harness/report/render.h"
#include "tests/fuzz/input.h"

using namespace mkbench;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(data, size);
  Report report;
  fuzz::accepts({ErrorKind::kBadInput, ErrorKind::kInvalidReference}, [&] {
    Differences differences;
    report = read_and_recompute(file.path(), differences);
    for (const Difference& difference : differences.all())
      fuzz::expect(!difference.path.empty(), "a difference names its place");
    render_csv(report);
    render_sql(report);
    render_jsonl(report);
  });
  return 0;
}
