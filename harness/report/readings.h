// Values that follow from several fields of a report, for printing and for judging.
#pragma once

#include "harness/report/report.h"

namespace mkbench {

// If a larger share of an engine's blocks was dropped, every comparison with it is INCONCLUSIVE.
inline constexpr double kMostDropped = 0.2;

inline constexpr char kHostTwin[] = "host-twin";  // the megakernel's schedule on CPU threads

// True if the engine has claimed the class lossy: it may read fewer bytes than the weights have,
// and is not ranked beside engines that read all of them.
bool is_quantised(const EngineReport& e);
// False for a quantised engine that does not say how many bytes it reads.
inline bool reads_known(const EngineReport& e) { return !is_quantised(e) || e.declared_bytes; }

// A reason of an engine as its case repeats it: "engine: FAIL_TOKEN: why".
std::string case_reason(const EngineReport& e, const std::string& why);

// Whether an engine's line of parity gives a reason of its case, or the report's first reason.
bool parity_tells(const CaseReport& c, const std::string& reason);
bool parity_tells_first(const Report& report);

bool has_host_twin(const Report& report);
// What a report of a CPU says of its times.
std::string cpu_note(const Report& report);

// True if every sample's last input id was drawn after the engine had prefilled.
bool takes_late_ids(const EngineReport& e);

// The ratio that an engine's row shows: over the fastest timed baseline; if none was timed, the
// first ratio, which says why it has no value. Null for baselines, and if nothing is compared.
const ComparisonReport* headline_ratio(const CaseReport& c, const EngineReport& e);

}  // namespace mkbench
