// The share of the ceiling that an engine reaches, and which times are impossible.
#pragma once

#include <string>

#include "harness/report/report.h"

namespace mkbench {

// Fills in time and rate of the case's ceiling from its samples, or the reason why it has none.
void fill_ceiling(CaseReport& c, double confidence);

// Why the card was not left alone: the ceiling reads less than 85 % of the pins' rate, or its means
// in two processes are 3 % apart. Empty if it was, and where there is no ceiling.
std::string ceiling_doubt(const CaseReport& c);

// Fills in share, interval and note of an engine that has times. Without a ceiling in its blocks
// the share is null, with the reason.
void fill_share(const CeilingReport& ceiling, EngineReport& e, double confidence, uint64_t seed);

// Why the times of an engine are impossible: the upper 99.9 % limit of their mean is below
// bound.least_ms, or every sample is below it (this counts from 10 samples on, or if there is no
// limit). Empty if the times are possible, and for a lossy engine, whose bytes are not known.
std::string impossible_reason(const EngineReport& e, const MemoryBound& bound);

}  // namespace mkbench
