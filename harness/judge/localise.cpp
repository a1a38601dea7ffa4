#include "harness/judge/localise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "harness/judge/findings.h"
#include "harness/judge/ratios.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

using Values = std::vector<float>;

// |x - truth|^2 / |truth|^2; NaN if any value is NaN.
double nmse(std::span<const float> x, std::span<const float> truth) {
  double error = 0, power = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double difference = double{x[i]} - double{truth[i]};
    error += difference * difference;
    power += double{truth[i]} * double{truth[i]};
  }
  return error / std::max(power, std::numeric_limits<double>::min());
}

// One state, as the three engines show it.
struct Shown {
  Values candidate, truth, baseline;
};

// nullopt if one of the engines does not show the state.
template <typename Show>
std::optional<Shown> shown_by(const LocaliseEngines& e, const char* what, int layer, Show show) {
  std::optional<Values> candidate = show(e.candidate), truth = show(e.truth),
                        baseline = show(e.baseline);
  if (!candidate || !truth || !baseline) return std::nullopt;
  if (candidate->size() != truth->size()) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("show(): {} of layer {}: found {} values, wanted {}", what, layer,
                            candidate->size(), truth->size()));
  }
  return Shown{std::move(*candidate), std::move(*truth), std::move(*baseline)};
}

// NaN is out of every band.
bool out_of_band(double candidate, double baseline) {
  return !(candidate <= kBandFactor * baseline);
}

// Steps up to the failing one whose logits are compared. At 151,936 ids a row takes 0.6 MB.
constexpr int kErrorSteps = 32;

// The id of the last step, and logits [steps from `shown` on, vocab] if the engine shows logits.
std::pair<int32_t, Values> walk(Engine& engine, int vocab, const ReferencePrompt& prompt, int shown,
                                int step) {
  std::pair<int32_t, Values> last;
  Findings ignored;  // the judge has reported these failures already
  forced_run(engine, prompt, shown, step + 1, vocab, ignored,
             [&](int, const std::vector<int32_t>& ids, const Values& logits) {
               last = {ids.back(), logits};
             });
  return last;
}

// The error of the hidden state after a layer; nullopt if it is not shown.
std::optional<ErrorAt> hidden_error(const LocaliseEngines& e, int layer) {
  const auto state =
      shown_by(e, "the hidden state", layer, [&](Engine& of) { return of.hidden(layer); });
  if (!state) return std::nullopt;
  const double band = nmse(state->baseline, state->truth);
  return ErrorAt{layer, nmse(state->candidate, state->truth), band, kBandFactor * band};
}

// The errors of all hidden states; empty if one is not shown.
std::vector<ErrorAt> errors_by_layer(const LocaliseEngines& e, int layers) {
  std::vector<ErrorAt> errors;
  for (int layer = 0; layer < layers; ++layer) {
    const std::optional<ErrorAt> error = hidden_error(e, layer);
    if (!error) return {};
    errors.push_back(*error);
  }
  return errors;
}

// The errors of K, or of V, in the rows of one layer. They share a band, from the baseline's
// largest.
struct Column {
  std::vector<double> errors;
  double band = 0;

  void add(const Shown& row, size_t from, size_t count) {
    const auto part = [&](const Values& v) { return std::span(v).subspan(from, count); };
    errors.push_back(nmse(part(row.candidate), part(row.truth)));
    band = std::max(band, nmse(part(row.baseline), part(row.truth)));
  }
  bool is_out(size_t row) const { return out_of_band(errors[row], band); }
};

// The KV rows of the first layer that has one out of band.
struct Rows {
  bool shown = false;
  int layer = 0;
  Column k, v;
  std::vector<size_t> out{};  // rows out of band; empty if every layer's are in band
};

Rows wrong_rows(const LocaliseEngines& e, int layers) {
  Rows rows;
  const int count = std::min(e.candidate.position(), e.truth.position());
  for (int layer = 0; layer < layers && rows.out.empty(); ++layer) {
    rows = {.shown = true, .layer = layer, .k = {}, .v = {}};
    for (int at = 0; at < count; ++at) {
      const auto row =
          shown_by(e, "a KV row", layer, [&](Engine& of) { return of.kv_row(layer, at); });
      if (!row) return {};
      const size_t half = row->truth.size() / 2;
      rows.k.add(*row, 0, half);
      rows.v.add(*row, half, half);
    }
    for (size_t row = 0; row < rows.k.errors.size(); ++row) {
      if (rows.k.is_out(row) || rows.v.is_out(row)) rows.out.push_back(row);
    }
  }
  return rows;
}

// The parts of a layer that write K and V of the rows that are out of band.
std::string writers(const Rows& rows) {
  const size_t first = rows.out.front();
  const bool newest_out = rows.out.back() + 1 == rows.k.errors.size();
  const bool k_out = rows.k.is_out(first), v_out = rows.v.is_out(first);
  const char *parts = "the K projection, k_norm or RoPE", *more = "";
  if (!k_out) {
    parts = "the V projection", more = ", or where its rows are written";
  } else if (v_out) {
    parts = "the input norm or the K and V projections";
    if (rows.layer == 0) parts = "the embedding, the input norm or the K and V projections";
    // Hidden states are shown of the newest row alone.
    if (rows.layer > 0 && !newest_out) more = ", or the layer before";
  } else if (first > 0 && newest_out) {
    parts = "RoPE", more = ", which leaves position 0 as it is; else the K projection or k_norm";
  }
  return fmt::format("K {} band, V {} band: {} of layer {}{}", k_out ? "out of" : "in",
                     v_out ? "out of" : "in", parts, rows.layer, more);
}

// The parts of a layer behind its K and V. With one KV row attention returns V, whatever the query
// is, so a step of one row tells the query's part from the rest.
std::string behind_rows(const LocaliseEngines& e, int layer, int vocab, int32_t input) {
  ReferencePrompt one;
  one.ids = {input};
  one.steps.emplace_back();
  for (Engine* engine : {&e.candidate, &e.truth, &e.baseline}) walk(*engine, vocab, one, 1, 0);
  const std::optional<ErrorAt> error = hidden_error(e, layer);
  const bool out = !error || out_of_band(error->error, error->baseline_error);
  return fmt::format(
      "K and V of layer {} in band: the fault lies behind them, and with one KV row, where "
      "attention returns V, it {}",
      layer,
      out ? "shows too: the V head of a query head, o_proj, a residual, the second norm or the MLP"
          : "does not show: the Q projection, q_norm, RoPE of Q, the scale, the mask or softmax");
}

std::string rows_text(const Rows& rows) {
  if (!rows.shown) return "no KV rows are shown";
  if (rows.out.empty()) {
    return fmt::format(
        "every KV row's NMSE is at most {:g} times the baseline's largest in its layer",
        kBandFactor);
  }
  const size_t first = rows.out.front();
  return fmt::format(
      "the first KV row out of band is layer {}, position {} (NMSE of K {:.2g}, the baseline's at "
      "most {:.2g}; of V {:.2g} and {:.2g}), {} of {} rows of the layer are",
      rows.layer, first, rows.k.errors[first], rows.k.band, rows.v.errors[first], rows.v.band,
      rows.out.size(), rows.k.errors.size());
}

// `first`: the first error out of its band; null if none is.
std::string layers_text(const std::vector<ErrorAt>& errors, const ErrorAt* first) {
  if (errors.empty()) return "no hidden states are shown";
  if (first == nullptr) {
    return fmt::format(
        "every hidden state's NMSE is at most {:g} times the baseline's, so the fault lies after "
        "the last layer",
        kBandFactor);
  }
  return fmt::format(
      "layer {} is the first whose hidden state leaves the band (NMSE {:.2g}, the baseline's "
      "{:.2g})",
      first->at, first->error, first->baseline_error);
}

// What the shown states say; `input` is the id that the step embeds.
std::string place(const LocaliseEngines& e, int vocab, int32_t input,
                  const std::vector<ErrorAt>& by_layer, const Rows& rows) {
  if (by_layer.empty() && !rows.shown) {
    return "no hidden states or KV rows are shown: offer show() (engine_abi.h; in Python "
           "step_decoder.py), and the report names the layer";
  }
  const ErrorAt* layer = nullptr;
  for (const ErrorAt& error : by_layer) {
    if (layer == nullptr && out_of_band(error.error, error.baseline_error)) layer = &error;
  }
  const std::string text = layers_text(by_layer, layer) + "; " + rows_text(rows);
  if (!rows.out.empty() && (layer == nullptr || rows.layer <= layer->at))
    return text + ". " + writers(rows);
  if (layer == nullptr || !rows.shown) return text;
  return text + ". " + behind_rows(e, layer->at, vocab, input);
}

}  // namespace

std::string localise(const LocaliseEngines& engines, int layers, int vocab,
                     const ReferencePrompt& prompt, int step, LastStep* last) {
  const int first = std::max(0, step + 1 - kErrorSteps);
  // Only the candidate has to walk all the steps: a prefill reaches the same state, and costs less.
  ReferencePrompt way = prompt;
  for (int t = 0; t < first; ++t) way.ids.push_back(prompt.steps[static_cast<size_t>(t)].token);
  way.steps.assign(prompt.steps.begin() + first, prompt.steps.begin() + step + 1);
  const auto [id, candidate] = walk(engines.candidate, vocab, prompt, first, step);
  const Values truth = walk(engines.truth, vocab, way, 0, step - first).second,
               baseline = walk(engines.baseline, vocab, way, 0, step - first).second;
  LastStep shown{.id = id};
  for (size_t t = 0, width = static_cast<size_t>(vocab); t * width < candidate.size(); ++t) {
    const auto row = [&](const Values& rows) { return std::span(rows).subspan(t * width, width); };
    shown.by_position.push_back({way.steps[t].position,
                                 centred_distance(row(candidate), row(truth)),
                                 centred_distance(row(baseline), row(truth)),
                                 {}});
  }
  const auto last_row = [&](const Values& rows) {
    return Values(rows.empty() ? rows.end() : rows.end() - vocab, rows.end());
  };
  shown.candidate = last_row(candidate);
  shown.truth = last_row(truth);
  shown.baseline = last_row(baseline);
  const auto at = static_cast<size_t>(step);
  const int32_t input = step == 0 ? prompt.ids.back() : prompt.steps[at - 1].token;
  shown.by_layer = errors_by_layer(engines, layers);
  const std::string where =
      place(engines, vocab, input, shown.by_layer, wrong_rows(engines, layers));
  if (last != nullptr) *last = std::move(shown);
  return fmt::format("prompt '{}' position {}: {}", prompt.name, prompt.steps[at].position, where);
}

}  // namespace mkbench
