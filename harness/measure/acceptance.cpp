#include "harness/measure/acceptance.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "harness/measure/statistics.h"

namespace mkbench {
namespace {

constexpr int kSimulations = 10'000;
constexpr uint64_t kSeed = 1;
// From this many processes on, a simulation allows as many misses as most_by_chance(): 21 of 200
// (20 to 60 rounds, 100,000 simulations each).
constexpr int kAsIndependent = 8;

// Number of splits of a simulated calibration whose t interval misses 0; `ratios` are log ratios.
// Each random number draws a round and, by its lowest bit, the copy that is the baseline in it,
// which decides the sign of the round's log ratio.
int count_missed(std::vector<double>& ratios, int processes, int splits, double quantile,
                 std::mt19937_64& random) {
  const auto n = static_cast<double>(processes);
  int missed = 0;
  for (int s = 0; s < splits; ++s) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < static_cast<size_t>(processes); ++i) {
      const uint64_t drawn = random();
      std::swap(ratios[i], ratios[i + (drawn >> 1) % (ratios.size() - i)]);
      sum += (drawn & 1) != 0 ? ratios[i] : -ratios[i];
      squares += ratios[i] * ratios[i];
    }
    // |mean| > quantile x deviation / sqrt(n), with the deviation of n - 1 degrees of freedom.
    const double variance = std::max(0.0, squares - sum * sum / n) / (n - 1);
    missed += sum * sum > quantile * quantile * variance * n;
  }
  return missed;
}

}  // namespace

int most_by_chance(int n, double p) {
  double term = std::pow(1 - p, n), sum = term;
  int k = 0;
  for (; sum < kAcceptance && k < n; ++k) {
    term *= static_cast<double>(n - k) / (k + 1) * p / (1 - p);
    sum += term;
  }
  return k;
}

int most_missed(int rounds, int processes, int splits, double confidence) {
  const int least = most_by_chance(splits, 1 - confidence);
  if (processes >= kAsIndependent || processes < 2 || rounds < processes) return least;
  std::mt19937_64 random(kSeed);
  std::normal_distribution<double> normal;
  const double quantile = t_quantile(confidence, processes - 1);
  std::vector<double> ratios(static_cast<size_t>(rounds));
  std::vector<int> counts;
  for (int i = 0; i < kSimulations; ++i) {
    std::generate(ratios.begin(), ratios.end(), [&] { return normal(random); });
    counts.push_back(count_missed(ratios, processes, splits, quantile, random));
  }
  const auto place = counts.begin() + static_cast<int>(std::ceil(kAcceptance * kSimulations)) - 1;
  std::nth_element(counts.begin(), place, counts.end());
  return std::max(least, *place);
}

}  // namespace mkbench
