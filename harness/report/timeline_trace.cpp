#include "harness/report/timeline_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace mkbench {
namespace {

// Process 0 holds the tokens, block b is process b + 1.
constexpr int kTokens = 0, kFirstBlock = 1;

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

class TraceWriter {
 public:
  explicit TraceWriter(std::ostream& out) : out_(out) {}

  void name(const char* what, int pid, int tid, const std::string& name) {
    put(fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what, pid,
                    tid, quoted(name)));
  }
  void order(int pid, int place) {
    put(fmt::format(
        R"({{"ph":"M","name":"process_sort_index","pid":{},"tid":0,"args":{{"sort_index":{}}}}})",
        pid, place));
  }
  void span(int pid, int tid, double ts_us, double dur_us, const std::string& name,
            std::string_view category, const std::string& args) {
    put(fmt::format(
        R"({{"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"name":{},"cat":"{}","args":{{{}}}}})",
        pid, tid, ts_us, dur_us, quoted(name), category, args));
  }

 private:
  void put(const std::string& event) {
    out_ << (first_ ? "" : ",\n") << event;
    first_ = false;
  }
  std::ostream& out_;
  bool first_ = true;
};

// "qkv" for the body of a phase, "qkv: exchange" for other kinds.
std::string span_name(const Timeline& timeline, const TimelineSpan& span) {
  const std::string& phase = timeline.phases.at(static_cast<size_t>(span.phase));
  if (span.what() == SpanKind::kBody) return phase;
  return fmt::format("{}: {}", phase, span_kind_name(span.what()));
}

std::string site_args(const TimelineSpan& span) {
  std::string args;
  if (span.step >= 0) args = fmt::format(R"("token":{})", span.step);
  if (span.layer >= 0) args += fmt::format(R"({}"layer":{})", args.empty() ? "" : ",", span.layer);
  return args;
}

void write_frames(TraceWriter& trace, const TraceHead& head, int first_step) {
  trace.name("process_name", kTokens, 0, head.title);
  trace.name("thread_name", kTokens, 0, "tokens");
  trace.order(kTokens, 0);
  for (int step = first_step; step < static_cast<int>(head.frames_us.size()); ++step) {
    const double begin = step > 0 ? head.frames_us[static_cast<size_t>(step) - 1] : 0;
    const double end = head.frames_us[static_cast<size_t>(step)];
    if (end <= begin) continue;
    trace.span(kTokens, 0, begin, end - begin, fmt::format("token {}", step), "token", "");
  }
}

}  // namespace

int first_traced_step(const Timeline& timeline, int steps, int64_t most) {
  std::map<int, int64_t> counts;
  int64_t total = 0;
  for (const TimelineSpan& span : timeline.spans) {
    ++counts[std::clamp(span.step, 0, std::max(steps - 1, 0))];
    ++total;
  }
  int first = 0;
  while (total > most && first + 1 < steps) total -= counts[first++];
  return first;
}

void write_trace(std::ostream& out, const Timeline& timeline, const TraceHead& head,
                 int first_step) {
  out << R"({"displayTimeUnit":"ns","otherData":{"title":)" << quoted(head.title) << R"(,"clock":)"
      << quoted(timeline.clock) << fmt::format(R"(,"lost_events":{})", timeline.lost)
      << "},\n\"traceEvents\":[\n";
  TraceWriter trace(out);
  write_frames(trace, head, first_step);
  std::set<std::pair<int, int>> named;
  for (const TimelineSpan& span : timeline.spans) {
    if (std::max(span.step, 0) < first_step) continue;
    const int pid = span.block + kFirstBlock;
    if (named.insert({pid, -1}).second) {
      trace.name("process_name", pid, 0, fmt::format("block {}", span.block));
      trace.order(pid, pid);
    }
    if (named.insert({pid, span.role}).second)
      trace.name("thread_name", pid, span.role, timeline.roles.at(static_cast<size_t>(span.role)));
    trace.span(pid, span.role, static_cast<double>(span.t0_ns) / 1e3,
               static_cast<double>(span.t1_ns - span.t0_ns) / 1e3, span_name(timeline, span),
               span_kind_name(span.what()), site_args(span));
  }
  out << "\n]}\n";
}

}  // namespace mkbench
