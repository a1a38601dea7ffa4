#include <fmt/format.h>

#include <algorithm>

#include "harness/report/readings.h"
#include "harness/report/render.h"
#include "references/base/one_line.h"

namespace mkbench {
namespace {

// "eager: 3 of 23 blocks dropped (power cap 2, slow clock 1) and run again"
std::string dropped_note(const EngineReport& e) {
  const CardReport& card = e.card;
  if (card.dropped + card.unfit == 0) return {};
  std::string reasons;
  for (const DroppedReason& r : card.reasons)
    reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", r.reason, r.blocks);
  std::string text =
      fmt::format("{}: {} of {} blocks dropped ({}) and run again", engine_label(e), card.dropped,
                  e.samples.size() + e.dropped_samples.size(), reasons);
  if (card.unfit > 0) text += fmt::format("; {} more were kept", card.unfit);
  if (card.share > kMostDropped) {
    text += fmt::format("; over {:.0f} %: every comparison with it is INCONCLUSIVE",
                        100 * kMostDropped);
  }
  return text;
}

// "energy a token: eager 4.21 J, ring 0.312 J"; below, why another engine has none.
void add_energy_notes(const CaseReport& c, std::vector<std::string>& notes) {
  std::string text;
  std::vector<std::string> missing;
  for (const EngineReport& e : c.engines) {
    if (!e.ms_per_tok || e.device.rfind("cpu", 0) == 0) continue;
    const Number& joules = e.card.energy_j;
    if (joules.value) {
      text +=
          fmt::format("{}{} {:.3g} J", text.empty() ? "" : ", ", engine_label(e), *joules.value);
    } else {
      missing.push_back(
          fmt::format("no energy of {}: {}", engine_label(e), one_line(joules.reason)));
    }
  }
  if (!text.empty()) notes.push_back("energy a token: " + text);
  notes.insert(notes.end(), missing.begin(), missing.end());
}

// "eager: reading the card costs +0.013 % [-0.020 %, +0.046 %]"
std::string watching_note(const EngineReport& e) {
  const CardReport& card = e.card;
  if (!card.watching_costs.value) return {};
  std::string text = fmt::format("{}: reading the card costs {:+.3f} %", engine_label(e),
                                 100 * *card.watching_costs.value);
  if (card.watching_costs_ci) {
    text += fmt::format(" [{:+.3f} %, {:+.3f} %]", 100 * card.watching_costs_ci->low,
                        100 * card.watching_costs_ci->high);
  }
  return text;
}

}  // namespace

std::vector<std::string> card_notes(const CaseReport& c) {
  std::vector<std::string> notes;
  for (const EngineReport& e : c.engines) {
    if (std::string note = dropped_note(e); !note.empty()) notes.push_back(std::move(note));
  }
  add_energy_notes(c, notes);
  for (const EngineReport& e : c.engines) {
    if (std::string note = watching_note(e); !note.empty()) notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace mkbench
