// `mkbench tune`: which pace suits this card. The facts of a card (copies in flight, least distance
// between them, from where on the context is split) are measured here once and then committed as a
// row of kernels/ring/tuning.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/parent/commands/commands.h"
#include "harness/parent/launch.h"
#include "harness/report/verdict.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

using Json = nlohmann::json;

const Json& quickest(const Json& rows) {
  return *std::min_element(rows.begin(), rows.end(),
                           [](const Json& a, const Json& b) { return a["us"] < b["us"]; });
}

// Gaps differ by the number of copies in flight only where the finer sweep went.
void print_sweep(const Json& sweep) {
  std::set<int> gaps;
  std::map<int, std::map<int, double>> by_copies;
  for (const Json& row : sweep["rows"]) {
    gaps.insert(row["gap"].get<int>());
    by_copies[row["in_flight"]][row["gap"]] = row["us"];
  }
  fmt::print("\ndepth {}: us/token by copies in flight (down) and gap in cycles (across)\n{:>8}",
             sweep["depth"].get<int>(), "");
  for (const int gap : gaps) fmt::print("{:>9}", gap);
  const Json& best = quickest(sweep["rows"]);
  for (const auto& [in_flight, times] : by_copies) {
    fmt::print("\n{:>8}", in_flight);
    for (const int gap : gaps) {
      const auto found = times.find(gap);
      if (found == times.end()) {
        fmt::print("{:>9}", "");
        continue;
      }
      const bool is_best = best["in_flight"] == in_flight && best["gap"] == gap;
      fmt::print("{:>8.1f}{}", found->second, is_best ? '*' : ' ');
    }
  }
  fmt::print("\n");
}

// us/token by `field` of each row.
void print_rows(std::string_view title, const char* field, const Json& rows) {
  fmt::print("\n{}\n", title);
  const Json& best = quickest(rows);
  for (const Json& row : rows) {
    fmt::print("{:>8}{:>9.1f}{}\n", row[field].get<int>(), row["us"].get<double>(),
               row == best ? "*" : "");
  }
}

}  // namespace

int tune_command(const Options& options) {
  CaseJob job;
  job.kind = "tune";
  job.model = "synthetic";
  job.device = "cuda";
  job.gpu = options.gpu;
  const WorkerAnswer answer = ask_worker(job, "tune", options.timeout_s);
  if (answer.interrupted) return exit_code(Verdict::kInterrupted);
  if (!answer.ok) {
    throw Error(answer.hung ? ErrorKind::kHang : answer.kind, answer.problem);
  }
  const Json& result = answer.message;
  fmt::print("ring on {}: {} tokens a launch, medians of {} launches by CUDA events; * quickest\n",
             result["gpu"].get<std::string>(), result["tokens"].get<int>(),
             result["launches"].get<int>());
  for (const Json& sweep : result["sweeps"]) print_sweep(sweep);
  print_rows("LM head: us/token at depth 0 by copies in flight", "in_flight", result["head"]);
  const int split_depth = result["split_depth"], split_tokens = result["split_tokens"];
  print_rows(fmt::format("split_from: us/token over positions {} to {}", split_depth,
                         split_depth + split_tokens - 1),
             "split_from", result["splits"]);
  fmt::print("\nrow for kernels/ring/tuning.cpp:\n    {}\n",
             result["table_row"].get<std::string>());
  return 0;
}

}  // namespace mkbench
