#include "harness/judge/budget.h"

#include <algorithm>
#include <chrono>

namespace mkbench {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void TimeBudget::outside(const std::function<void()>& work) {
  struct Resume {
    TimeBudget& budget;
    const double since;
    ~Resume() { budget.begin_ += budget.now_() - since; }
  };
  const Resume resume{*this, now_()};
  work();
}

double Pace::at(double rows) const {
  if (seen_.empty()) return 0;
  const auto [last_rows, last] = seen_.back();
  const auto half = std::find_if(seen_.rbegin(), seen_.rend(),
                                 [end = last_rows / 2](const auto& s) { return s.first <= end; });
  if (half == seen_.rend()) return last;
  const double slope = std::max(0.0, (last - half->second) / (last_rows - half->first));
  return std::max(0.0, last + slope * (rows - last_rows));
}

double Pace::between(double first, double last) const {
  return last < first ? 0 : (at(first) + at(last)) / 2 * (last - first + 1);
}

}  // namespace mkbench
