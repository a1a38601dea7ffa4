// Where a run writes its report, and what the report says of the run's command line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/parent/options.h"

namespace mkbench {

// The time now in UTC, by strftime()'s format.
std::string utc_now(const char* format);

// Makes the report's folder before anything is measured, so that a run of minutes does not end
// without a place for its results.
// Throws Error(kBadInput) for a folder that holds something; the message begins with `asked_by`.
std::filesystem::path make_output_folder(const std::string& asked,
                                         const std::string& asked_by = "--out");

// Writes the traceback of an engine's failure to a new file of the report's folder; returns its
// name: traceback-decoder.txt for decoder.py. Throws Error(kRuntime).
std::string write_traceback(const std::filesystem::path& folder, const std::string& engine,
                            const std::string& traceback);

// The `meta` of the report: argv, build, options, time of the start.
nlohmann::json describe_run(const Options& options, const std::vector<std::string>& argv,
                            const std::string& output);

// Checks every path that the run reads or writes, so that a typo fails before minutes of work. Throws
// Error(kBadInput).
void check_paths(const Options& options);

}  // namespace mkbench
