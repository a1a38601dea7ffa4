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

// |x - truth|^2 / |truth|^2; NaN if any value is NaN.
double nmse(const std::vector<float>& x, const std::vector<float>& truth) {
  double error = 0, power = 0;
  for (size_t i = 0; i < std::min(x.size(), truth.size()); ++i) {
    const double difference = double{x[i]} - double{truth[i]};
    error += difference * difference;
    power += double{truth[i]} * double{truth[i]};
  }
  return error / std::max(power, std::numeric_limits<double>::min());
}

// NaN is out of every band.
bool out_of_band(double candidate, double baseline) {
  return !(candidate <= kBandFactor * baseline);
}

// Returns the id of the last step, and its logits in `row` if the engine shows logits.
int32_t walk(Engine& engine, int vocab, const ReferencePrompt& prompt, int step,
             std::vector<float>& row) {
  Findings ignored;  // the judge has reported these failures already
  start_prompt(engine, prompt);
  std::vector<float> logits;
  std::vector<int32_t> ids;
  for (int first = 0; first <= step; first += kMaxLogitSteps) {
    const int count = std::min(kMaxLogitSteps, step + 1 - first);
    if (engine.capabilities().logits)
      logits.resize(static_cast<size_t>(count) * static_cast<size_t>(vocab));
    ids = forced_decode(engine, prompt, first, count, logits.empty() ? nullptr : logits.data(),
                        vocab, ignored);
  }
  if (!logits.empty()) row.assign(logits.end() - vocab, logits.end());
  return ids.back();
}

// How truth and baseline reach the step. Only the candidate has to walk all the steps; the other
// two reach the same state by a prefill of the ids, which costs less than a long walk.
struct Way {
  ReferencePrompt prompt;
  int step;
};
Way way_to(const ReferencePrompt& prompt, int step) {
  if (step < kMaxLogitSteps) return {prompt, step};
  Way way{prompt, 0};
  const auto at = prompt.steps.begin() + step;
  for (auto before = prompt.steps.begin(); before != at; ++before)
    way.prompt.ids.push_back(before->token);
  way.prompt.steps = {*at};
  return way;
}

// "layer 3 is the first whose hidden state ...", or why no layer can be named.
std::string first_layer(const LocaliseEngines& e, int layers) {
  for (int layer = 0; layer < layers; ++layer) {
    const State candidate = e.candidate.hidden(layer), truth = e.truth.hidden(layer),
                baseline = e.baseline.hidden(layer);
    if (!candidate || !truth || !baseline) return "no hidden states are shown";
    const double found = nmse(*candidate, *truth), band = nmse(*baseline, *truth);
    if (!out_of_band(found, band)) continue;
    return fmt::format(
        "layer {} is the first whose hidden state leaves the band (NMSE {:.2g}, the "
        "baseline's {:.2g})",
        layer, found, band);
  }
  return fmt::format(
      "every hidden state's NMSE is at most {:g} times the baseline's, so the fault lies after the "
      "last layer",
      kBandFactor);
}

std::string first_row(const LocaliseEngines& e, int layers) {
  const int rows = std::min(e.candidate.position(), e.truth.position());
  for (int layer = 0; layer < layers; ++layer) {
    std::vector<double> errors;
    double band = 0;
    for (int row = 0; row < rows; ++row) {
      const State candidate = e.candidate.kv_row(layer, row), truth = e.truth.kv_row(layer, row),
                  baseline = e.baseline.kv_row(layer, row);
      if (!candidate || !truth || !baseline) return "no KV rows are shown";
      errors.push_back(nmse(*candidate, *truth));
      band = std::max(band, nmse(*baseline, *truth));
    }
    for (int row = 0; row < rows; ++row) {
      const double found = errors[static_cast<size_t>(row)];
      if (!out_of_band(found, band)) continue;
      return fmt::format(
          "the first KV row out of band is layer {}, position {} (NMSE {:.2g}, the "
          "baseline's at most {:.2g})",
          layer, row, found, band);
    }
  }
  return fmt::format(
      "every KV row's NMSE is at most {:g} times the baseline's largest in its layer", kBandFactor);
}

}  // namespace

std::string localise(const LocaliseEngines& engines, int layers, int vocab,
                     const ReferencePrompt& prompt, int step, LastStep* last) {
  LastStep shown;
  shown.id = walk(engines.candidate, vocab, prompt, step, shown.candidate);
  const Way way = way_to(prompt, step);
  walk(engines.truth, vocab, way.prompt, way.step, shown.truth);
  walk(engines.baseline, vocab, way.prompt, way.step, shown.baseline);
  if (last != nullptr) *last = std::move(shown);
  return fmt::format("prompt '{}' position {}: {}; {}", prompt.name,
                     prompt.steps[static_cast<size_t>(step)].position, first_layer(engines, layers),
                     first_row(engines, layers));
}

}  // namespace mkbench
