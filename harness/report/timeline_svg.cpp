#include "harness/report/timeline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "harness/measure/timeline_summary.h"
#include "harness/report/junit.h"

namespace mkbench {
namespace {

constexpr double kLeft = 96, kTop = 78, kWidth = 1000, kRight = 40;  // kRight: half a label
constexpr double kMostRowsHeight = 640, kTallestRow = 14, kRoleRow = 18;

struct Colour {
  SpanKind kind;
  const char *fill, *text;
};
// Distinct for the colour-blind, too: hues of Okabe and Ito.
constexpr Colour kColours[] = {
    {SpanKind::kBody, "#0072b2", "body"},
    {SpanKind::kExchange, "#e69f00", "waits for other blocks"},
    {SpanKind::kWeights, "#cc79a7", "waits for weights"},
    {SpanKind::kHandOff, "#009e73", "hand-off in the block"},
    {SpanKind::kRoom, "#bbbbbb", "waits for room"},
};

const char* colour_of(SpanKind kind) {
  for (const Colour& colour : kColours) {
    if (colour.kind == kind) return colour.fill;
  }
  return "#000000";
}

// What the picture shows: the phases of one layer or step.
struct Window {
  std::string what;
  std::vector<PhaseEnd> ends;
  int64_t begin_ns() const { return ends.front().begin_ns; }
  int64_t end_ns() const { return ends.back().end_ns; }
};

// The layer (or step) whose length is the median of all.
Window median_window(const std::vector<PhaseEnd>& all) {
  const bool layers =
      std::any_of(all.begin(), all.end(), [](const auto& e) { return e.layer >= 0; });
  std::map<std::pair<int, int>, Window> windows;
  for (const PhaseEnd& end : all) {
    if (layers && end.layer < 0) continue;
    windows[{end.step, end.layer}].ends.push_back(end);
  }
  std::vector<std::tuple<int64_t, int, int>> lengths;
  for (const auto& [place, window] : windows)
    lengths.emplace_back(window.end_ns() - window.begin_ns(), place.first, place.second);
  if (lengths.empty()) return {};
  std::sort(lengths.begin(), lengths.end());
  const auto [length, step, layer] = lengths[lengths.size() / 2];
  Window window = windows[{step, layer}];
  window.what =
      layers ? fmt::format("layer {} of token {}", layer, step) : fmt::format("token {}", step);
  return window;
}

std::string text_at(double x, double y, const std::string& text, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, more, xml_escape(text));
}

class Picture {
 public:
  Picture(const Timeline& timeline, const Window& window) : timeline_(timeline), window_(window) {
    for (const TimelineSpan& span : timeline.spans) {
      if (span.role == 0 && blocks_.count(span.block) == 0)
        blocks_.emplace(span.block, static_cast<int>(blocks_.size()));
    }
    row_ = std::min(kTallestRow, kMostRowsHeight / static_cast<double>(blocks_.size()));
    roles_top_ = kTop + row_ * static_cast<double>(blocks_.size()) + 34;
    std::map<int, int> lasts;
    for (const PhaseEnd& end : window.ends) ++lasts[end.last_block];
    slowest_ = std::max_element(lasts.begin(), lasts.end(), [](const auto& a, const auto& b) {
                 return a.second < b.second;
               })->first;
  }

  std::string draw(const std::string& title) const {
    const bool roles = timeline_.roles.size() > 1;
    const double bottom = roles
                              ? roles_top_ + kRoleRow * static_cast<double>(timeline_.roles.size())
                              : roles_top_ - 34;
    const double height = bottom + 40;
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" width=\"{:.0f}\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" "
        "fill=\"#ffffff\"/>\n",
        kLeft + kWidth + kRight, height, kLeft + kWidth + kRight);
    svg += text_at(kLeft, 18, fmt::format("{}: {}", title, window_.what), " font-size=\"14\"");
    svg += legend() + spans() + phases(bottom) + axis(bottom);
    svg += text_at(4, kTop + 10, fmt::format("blocks {} to", blocks_.begin()->first));
    svg += text_at(4, kTop + 24, fmt::format("{}", blocks_.rbegin()->first));
    if (roles)
      svg += text_at(kLeft, roles_top_ - 8, fmt::format("all parts of block {}:", slowest_));
    for (size_t role = 0; roles && role < timeline_.roles.size(); ++role)
      svg +=
          text_at(4, roles_top_ + kRoleRow * static_cast<double>(role) + 12, timeline_.roles[role]);
    return svg + "</svg>\n";
  }

 private:
  double x_of(int64_t ns) const {
    const auto length = static_cast<double>(window_.end_ns() - window_.begin_ns());
    return kLeft + kWidth * static_cast<double>(ns - window_.begin_ns()) / std::max(length, 1.0);
  }

  std::string bar(const TimelineSpan& span, double y, double height) const {
    const double from = x_of(std::max(span.t0_ns, window_.begin_ns()));
    const double to = x_of(std::min(span.t1_ns, window_.end_ns()));
    return fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>\n", from,
        y, to - from, height, colour_of(span.what()));
  }

  std::string spans() const {
    std::string svg;
    for (const TimelineSpan& span : timeline_.spans) {
      if (span.t1_ns <= window_.begin_ns() || span.t0_ns >= window_.end_ns()) continue;
      if (span.role == 0) {
        const double y = kTop + row_ * blocks_.at(span.block);
        svg += bar(span, y, row_ > 3 ? row_ - 1 : row_);
      }
      if (timeline_.roles.size() > 1 && span.block == slowest_)
        svg += bar(span, roles_top_ + kRoleRow * span.role, kRoleRow - 3);
    }
    return svg;
  }

  // Each phase: name and duration above its middle, a line at its end, a dot on its last block.
  std::string phases(double bottom) const {
    std::string svg;
    for (const PhaseEnd& end : window_.ends) {
      const double from = x_of(end.begin_ns), to = x_of(end.end_ns);
      const double y = kTop + row_ * (blocks_.at(end.last_block) + 0.5);
      svg += fmt::format(
          "<line x1=\"{:.2f}\" y1=\"{:.0f}\" x2=\"{:.2f}\" y2=\"{:.0f}\" stroke=\"#000000\" "
          "stroke-width=\"0.7\"/>\n<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"3.5\" fill=\"#d55e00\" "
          "stroke=\"#ffffff\"/>\n",
          to, kTop - 20, to, bottom, to, y);
      svg +=
          text_at((from + to) / 2, kTop - 24, timeline_.phases.at(static_cast<size_t>(end.phase)),
                  " text-anchor=\"middle\"");
      svg += text_at((from + to) / 2, kTop - 9,
                     fmt::format("{:.2f} us", static_cast<double>(end.end_ns - end.begin_ns) / 1e3),
                     " text-anchor=\"middle\" fill=\"#555555\" font-size=\"9\"");
    }
    return svg;
  }

  std::string legend() const {
    std::string svg;
    double x = kLeft;
    for (const Colour& colour : kColours) {
      const bool used = std::any_of(timeline_.spans.begin(), timeline_.spans.end(),
                                    [&](const auto& s) { return s.what() == colour.kind; });
      if (!used) continue;
      svg += fmt::format("<rect x=\"{:.0f}\" y=\"28\" width=\"11\" height=\"11\" fill=\"{}\"/>\n",
                         x, colour.fill);
      svg += text_at(x + 16, 38, colour.text);
      x += 46 + 6.2 * static_cast<double>(std::string(colour.text).size());
    }
    svg += fmt::format("<circle cx=\"{:.0f}\" cy=\"34\" r=\"3.5\" fill=\"#d55e00\"/>\n", x + 6);
    return svg + text_at(x + 16, 38, "the last block of a phase");
  }

  std::string axis(double bottom) const {
    const double us = static_cast<double>(window_.end_ns() - window_.begin_ns()) / 1e3;
    std::string svg;
    for (int i = 0; i <= 4; ++i) {
      svg += text_at(kLeft + kWidth * i / 4, bottom + 18, fmt::format("{:.2f} us", us * i / 4),
                     " text-anchor=\"middle\"");
    }
    return svg;
  }

  const Timeline& timeline_;
  const Window& window_;
  std::map<int, int> blocks_;  // block -> row
  double row_ = 0, roles_top_ = 0;
  int slowest_ = -1;
};

}  // namespace

std::string timeline_svg(const Timeline& timeline, int steps, const std::string& title) {
  const Window window = median_window(phase_ends(timeline, steps));
  if (window.ends.empty()) return {};
  return Picture(timeline, window).draw(title);
}

}  // namespace mkbench
