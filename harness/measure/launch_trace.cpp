#include "harness/measure/launch_trace.h"

#include <algorithm>
#include <set>
#include <utility>

namespace mkbench {
namespace {

using Span = std::pair<uint64_t, uint64_t>;  // begin and end in ns

// Nanoseconds that at least one span covers.
uint64_t covered_ns(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end());
  uint64_t covered = 0, until = 0;
  for (const auto& [begin, end] : spans) {
    covered += end - std::min(end, std::max(begin, until));
    until = std::max(until, end);
  }
  return covered;
}

}  // namespace

LaunchTrace sum_launches(const std::vector<LaunchRecord>& records) {
  LaunchTrace trace;
  std::set<uint32_t> graph_calls;
  std::vector<Span> spans;
  for (const LaunchRecord& r : records) {
    if (r.what == LaunchRecord::What::kWait) {
      ++trace.synchronisations;
      continue;
    }
    if (r.end_ns > 0) spans.emplace_back(r.begin_ns, r.end_ns);
    if (r.in_graph) {
      graph_calls.insert(r.call);
      ++trace.graph_nodes;
      continue;
    }
    trace.kernels += r.what == LaunchRecord::What::kKernel;
    trace.copies += r.what == LaunchRecord::What::kCopy;
    trace.memsets += r.what == LaunchRecord::What::kMemset;
  }
  trace.graph_launches = static_cast<int64_t>(graph_calls.size());
  if (spans.empty()) return trace;
  uint64_t first = spans.front().first, last = 0;
  for (const auto& [begin, end] : spans) {
    first = std::min(first, begin);
    last = std::max(last, end);
  }
  trace.wall_ms = static_cast<double>(last - first) / 1e6;
  trace.busy_ms = static_cast<double>(covered_ns(std::move(spans))) / 1e6;
  return trace;
}

}  // namespace mkbench
