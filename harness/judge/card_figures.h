// What the card's readings say of an engine: dropped blocks, energy, what reading it costs.
#pragma once

#include "harness/report/report.h"

namespace mkbench {

void count_dropped(EngineReport& e);
// Energy a token: mean power between changes of the card's counter, times the mean time of a token.
// Needs ms_per_tok.
void fill_energy(EngineReport& e);
// What reading the card costs: pairs of neighbouring blocks of which one was watched.
void fill_watching_costs(EngineReport& e, double confidence);
// Makes a comparison INCONCLUSIVE if too many blocks of either engine were dropped.
void label_dropped_blocks(const EngineReport& baseline, const EngineReport& candidate,
                          ComparisonReport& c);

}  // namespace mkbench
