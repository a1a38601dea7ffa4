// Figures of an engine from readings of its card: dropped blocks, energy, cost of the readings.
#pragma once

#include "harness/report/report.h"

namespace mkbench {

void count_dropped(EngineReport& e);
// Energy per token: mean power, measured between two changes of the card's energy counter, times
// the mean time of a token.
void fill_energy(EngineReport& e);
// The cost of reading the card, from pairs of neighbouring blocks: one with readings, one without.
void fill_watching_costs(EngineReport& e, double confidence);
// Makes a comparison INCONCLUSIVE if too many blocks of either engine were dropped.
void label_dropped_blocks(const EngineReport& baseline, const EngineReport& candidate,
                          ComparisonReport& c);

}  // namespace mkbench
