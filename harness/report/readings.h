// What several fields of a report say together, for those who print it and those who judge by it.
#pragma once

#include "harness/report/report.h"

namespace mkbench {

// More of an engine's blocks dropped than this, and no comparison with it is conclusive.
inline constexpr double kMostDropped = 0.2;

// Whether the engine has claimed the class lossy: it may read fewer bytes than the weights have, and is
// not ranked beside engines that read all of them.
bool is_lossy(const EngineReport& e);

// Whether every sample's last input id was drawn after the engine had prefilled.
bool takes_late_ids(const EngineReport& e);

// The ratio that an engine's row shows: to the fastest baseline that has times, or where none has, the
// first one, which says why there is no ratio. Null for baselines, and where nothing is compared.
const ComparisonReport* headline_ratio(const CaseReport& c, const EngineReport& e);

}  // namespace mkbench
