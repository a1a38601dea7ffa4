#include "harness/judge/localise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "harness/judge/findings.h"

namespace mkbench {
namespace {

using State = std::optional<std::vector<float>>;

// |x - t|^2 / |t|^2; NaN where any value is.
double nmse(const std::vector<float>& x, const std::vector<float>& t) {
  double error = 0, power = 0;
  for (size_t i = 0; i < std::min(x.size(), t.size()); ++i) {
    const double difference = double{x[i]} - double{t[i]};
    error += difference * difference;
    power += double{t[i]} * double{t[i]};
  }
  return error / std::max(power, std::numeric_limits<double>::min());
}

// NaN is out of every band.
bool out_of_band(double of_candidate, double of_baseline) {
  return !(of_candidate <= kBandFactor * of_baseline);
}

void walk(Engine& engine, int vocab, const ReferencePrompt& prompt, int step) {
  Findings ignored;  // whoever judges has said it
  start_prompt(engine, prompt);
  std::vector<float> logits;
  for (int first = 0; first <= step; first += kMaxLogitSteps) {
    const int count = std::min(kMaxLogitSteps, step + 1 - first);
    if (engine.capabilities().logits)
      logits.resize(static_cast<size_t>(count) * static_cast<size_t>(vocab));
    forced_decode(engine, prompt, first, count, logits.empty() ? nullptr : logits.data(), vocab,
                  ignored);
  }
}

// "; the first hidden state..." or what kept it from being said.
std::string first_layer(const LocaliseEngines& e, int layers) {
  for (int layer = 0; layer < layers; ++layer) {
    const State k = e.candidate.hidden(layer), t = e.truth.hidden(layer),
                b = e.baseline.hidden(layer);
    if (!k || !t || !b) return "no hidden states are shown";
    const double of_k = nmse(*k, *t), of_b = nmse(*b, *t);
    if (!out_of_band(of_k, of_b)) continue;
    return fmt::format(
        "layer {} is the first whose hidden state leaves the band (NMSE {:.2g}, the "
        "baseline's {:.2g})",
        layer, of_k, of_b);
  }
  return "every hidden state is in its band, so the fault lies behind the last layer";
}

std::string first_row(const LocaliseEngines& e, int layers) {
  const int rows = std::min(e.candidate.position(), e.truth.position());
  for (int layer = 0; layer < layers; ++layer) {
    std::vector<double> of_k;
    double band = 0;
    for (int row = 0; row < rows; ++row) {
      const State k = e.candidate.kv_row(layer, row), t = e.truth.kv_row(layer, row),
                  b = e.baseline.kv_row(layer, row);
      if (!k || !t || !b) return "no KV rows are shown";
      of_k.push_back(nmse(*k, *t));
      band = std::max(band, nmse(*b, *t));
    }
    for (int row = 0; row < rows; ++row) {
      const double found = of_k[static_cast<size_t>(row)];
      if (!out_of_band(found, band)) continue;
      return fmt::format(
          "the first KV row out of band is layer {}, position {} (NMSE {:.2g}, the "
          "baseline's at most {:.2g})",
          layer, row, found, band);
    }
  }
  return "every KV row is in its band";
}

}  // namespace

std::string localise(const LocaliseEngines& engines, int layers, int vocab,
                     const ReferencePrompt& prompt, int step) {
  for (Engine* engine : {&engines.candidate, &engines.truth, &engines.baseline}) {
    walk(*engine, vocab, prompt, step);
  }
  return fmt::format("prompt '{}' position {}: {}; {}", prompt.name,
                     prompt.steps[static_cast<size_t>(step)].position, first_layer(engines, layers),
                     first_row(engines, layers));
}

}  // namespace mkbench
