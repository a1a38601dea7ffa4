// `mkbench report`, and the plots and page of a run, made by scripts in the Python of set-up.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/report/report.h"

namespace mkbench {

// The page of a report, one HTML file.
inline constexpr char kPageName[] = "report.html";

// True if the plots would show errors of an engine that failed, or times.
bool has_errors(const Report& report);
bool has_times(const Report& report);

// Draws `folder`/report.json into the folder: its page and, with `plots`, the plots. Returns a
// warning for each that could not be made.
std::vector<std::string> picture_report(const std::filesystem::path& folder, bool plots);

}  // namespace mkbench
