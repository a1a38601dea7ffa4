// What a run prints when it ends.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/cli/run_settings.h"
#include "harness/report/report.h"

namespace mkbench {

// True if the settings ask for the whole report on standard output instead of one screen.
bool prints_whole(const RunSettings& settings);

// Prints the results of a run that took `seconds`. Returns why printing failed, or an empty string.
// `page`: the file that holds what one screen leaves out.
std::string print_results(const Report& report, const RunSettings& settings, bool whole,
                          double seconds, const std::string& page);

// The error line of a run whose results (`unread`) or files in `folder` (`unwritten`) could not be
// written; empty if both were.
std::string loss_text(const std::string& unread, const std::string& unwritten,
                      const RunSettings& settings, const std::filesystem::path& folder);

// Writes the file of --junit, if `path` names one. Returns the run's exit code, which is not 0 if the
// file could not be written.
int write_junit(const Report& report, const std::string& path);

// What stderr ends with where a run fails: advice, verdict, and why: first_lead(), else the first reason
// unless that was `told`.
std::vector<std::string> last_lines(const Report& report, bool told);

}  // namespace mkbench
