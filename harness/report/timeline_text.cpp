#include "harness/report/timeline_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/measure/statistics.h"
#include "harness/report/render.h"

namespace mkbench {
namespace {

double median_of(const std::vector<double>& values) { return summarize(values, 0.95).median; }

std::string percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}

KindTimes role_total(const TimelineSummary& summary, const std::string& role) {
  KindTimes sum;
  for (const PhaseTimes& one : summary.phases) {
    if (one.role == role) sum.add(one.us);
  }
  return sum;
}

std::vector<std::string> roles_of(const TimelineSummary& summary) {
  std::vector<std::string> roles;
  for (const PhaseTimes& one : summary.phases) {
    if (std::find(roles.begin(), roles.end(), one.role) == roles.end()) roles.push_back(one.role);
  }
  return roles;
}

std::string shares(const KindTimes& us) {
  const double all = us.total();
  std::string text =
      fmt::format("body {}, waits for the exchange {}, waits for weights {}, hand-off {}",
                  percent(us.body, all), percent(us.exchange, all), percent(us.weights, all),
                  percent(us.hand_off, all));
  if (us.room > 0) text += fmt::format(", waits for room {}", percent(us.room, all));
  return text;
}

constexpr char kColumns[] = "body | exchange | weights | hand-off | room";

std::string cells(const KindTimes& us) {
  return fmt::format("{:.2f} | {:.2f} | {:.2f} | {:.2f} | {:.2f}", us.body, us.exchange, us.weights,
                     us.hand_off, us.room);
}

std::string phase_table(const TimelineSummary& summary) {
  std::string text = fmt::format(
      "| part | phase | {} | share of the part |\n|---|---|---|---|---|---|---|---|\n", kColumns);
  for (const std::string& role : roles_of(summary)) {
    const double all = role_total(summary, role).total();
    for (const PhaseTimes& one : summary.phases) {
      if (one.role != role) continue;
      text += fmt::format("| {} | {} | {} | {} |\n", role, one.phase, cells(one.us),
                          percent(one.us.total(), all));
    }
  }
  return text;
}

std::string path_table(const TimelineSummary& summary) {
  std::string text = fmt::format(
      "| phase | us | {} | between | last most often | last block after the median |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n",
      kColumns);
  for (const PathPart& part : summary.path) {
    text += fmt::format("| {}{} | {:.2f} | {} | {:.2f} | block {}, {} of {} | {:.2f} us |\n",
                        part.phase, part.per_layer ? "" : " (a token)", part.us.total(),
                        cells(part.us), part.us.other, part.last_block, percent(part.last_share, 1),
                        part.executions, part.spread_us);
  }
  return text;
}

const PathPart* longest_part(const TimelineSummary& summary) {
  const auto a_step = [&](const PathPart& p) { return p.us.total() * p.executions; };
  const auto found =
      std::max_element(summary.path.begin(), summary.path.end(),
                       [&](const PathPart& a, const PathPart& b) { return a_step(a) < a_step(b); });
  return found == summary.path.end() ? nullptr : &*found;
}

// A warning if the clocks of the blocks differ too much to compare blocks; else empty.
std::string clock_warning(const TimelineReport& report) {
  double shortest_us = 0;
  for (const PathPart& part : report.summary.path) {
    const double us = part.us.total();
    if (shortest_us == 0 || us < shortest_us) shortest_us = us;
  }
  const double error_us = report.quality.error_99_ns / 1e3;
  if (shortest_us == 0 || error_us <= kMostClockError * shortest_us) return {};
  return fmt::format(
      "1 of 100 readings of the blocks' clocks is off by over {:.2f} us, and the path's shortest "
      "phase takes {:.2f} us: comparisons of blocks (last, slowest, the path) are uncertain",
      error_us, shortest_us);
}

std::string loss_line(const TimelineSummary& summary) {
  const std::string lost =
      fmt::format("the recording had no room for at least {} events", with_commas(summary.lost));
  if (summary.whole_steps == 0)
    return fmt::format("{}, and no token is recorded whole: decode fewer (--n-gen)", lost);
  return fmt::format("{}: the figures cover the first {} of {} tokens, which are whole", lost,
                     summary.whole_steps, summary.steps);
}

std::string clock_text(const ClockQuality& q) {
  std::string text = fmt::format(
      "the shared timer steps by {:.0f} ns, and {} readings of it, which took up to {:.0f} ns, lie "
      "within {:.0f} ns, 99 of 100 within {:.0f} ns, of ",
      q.step_ns, with_commas(q.readings - q.left_out), q.longest_read_ns, q.error_ns,
      q.error_99_ns);
  text += q.by_reading
              ? fmt::format(
                    "a line between the readings before and after each: time is interpolated "
                    "between readings, because a single line for a block would be up to "
                    "{:.0f} ns wrong",
                    q.line_error_ns)
              : "the blocks' lines";
  if (q.left_out > 0)
    text += fmt::format(
        "; {} that took longer, up to {:.0f} ns, are left out, and lie within {:.0f} ns",
        with_commas(q.left_out), q.left_out_read_ns, q.left_out_error_ns);
  return text;
}

}  // namespace

double ObserverCost::share() const {
  const double without = median_of(without_ms);
  return without > 0 && !with_ms.empty() ? median_of(with_ms) / without - 1 : 0;
}

std::string cost_line(const ObserverCost& cost) {
  if (cost.without_ms.empty() || cost.with_ms.empty())
    return "what the recording costs was not measured";
  const std::string line = fmt::format(
      "recorded decodes take {:+.2f} % ({:.4f} ms against {:.4f}, medians of {} and {}, {})",
      100 * cost.share(), median_of(cost.with_ms), median_of(cost.without_ms), cost.with_ms.size(),
      cost.without_ms.size(), cost.clock);
  if (cost.share() <= kMostObserverCost) return line;
  if (cost.clock == kClockOfCall)
    return line + ": the call hands the spans over too, so this does not tell what recording moves";
  return fmt::format("{}: over {:.0f} %, so the recording itself moves what it shows", line,
                     100 * kMostObserverCost);
}

std::vector<std::string> headlines(const TimelineReport& report) {
  const TimelineSummary& s = report.summary;
  std::vector<std::string> lines;
  if (s.lost > 0) lines.push_back(loss_line(s));
  if (s.phases.empty())
    return s.lost > 0 ? lines : std::vector<std::string>{"no span was recorded"};
  const std::string role = s.phases.front().role;
  lines.push_back(fmt::format("where the time goes ({}): {}", role, shares(role_total(s, role))));
  if (const PathPart* part = longest_part(s)) {
    lines.push_back(fmt::format(
        "critical path: {:.1f} us a token{}; the longest part is {}, {} of it", s.step_us,
        s.layers > 0 ? fmt::format(", {:.2f} us a layer", s.layer_us) : "", part->phase,
        percent(part->us.total() * part->executions / s.whole_steps, s.step_us)));
    lines.push_back(
        fmt::format("slowest block: {}, the last of {} in {} of all phases (by chance {})",
                    s.slowest_block, s.blocks, percent(s.slowest_share, 1), percent(1, s.blocks)));
  }
  if (const std::string warning = clock_warning(report); !warning.empty()) lines.push_back(warning);
  if (s.overlapping > 0)
    lines.push_back(
        fmt::format("{} spans overlap with an earlier one of their part: such time counts for the "
                    "span that began last",
                    with_commas(s.overlapping)));
  return lines;
}

std::string timeline_markdown(const TimelineReport& report) {
  const TimelineSummary& s = report.summary;
  std::string text = fmt::format("## {}\n\nNothing was judged: {} recorded what its blocks do.\n\n",
                                 report.title, report.resolved);
  for (const std::string& line : headlines(report)) text += fmt::format("- {}\n", line);
  text += fmt::format("- {}\n", cost_line(report.cost));
  text += fmt::format("- clock: {}", report.clock);
  if (report.quality.step_ns > 0) text += "; " + clock_text(report.quality);
  text += fmt::format("\n- [{}]({}): open it in https://ui.perfetto.dev, which uploads nothing",
                      report.trace, report.trace);
  if (report.first_traced_step > 0)
    text += fmt::format("; it holds tokens {} to {} of {}", report.first_traced_step, s.steps - 1,
                        s.steps);
  text += "\n\n";
  if (!report.picture.empty())
    text += fmt::format("![one layer of every block]({})\n\n", report.picture);
  if (s.phases.empty()) return text;
  text += fmt::format(
      "### Where the time goes\n\nMicroseconds a token, mean of {} blocks and {} tokens.\n\n{}\n",
      s.blocks, s.whole_steps, phase_table(s));
  if (s.path.empty()) return text + "No critical path: the step of a span is not known.\n";
  text += fmt::format(
      "### The critical path\n\nMicroseconds of one execution, from the last block's end of the "
      "phase before to the "
      "last block's end of this one, and what that block did meanwhile.\n\n{}\n",
      path_table(s));
  return text;
}

}  // namespace mkbench
