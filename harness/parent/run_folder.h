// Where a run writes its report, and what the report says of the run's command line.
#pragma once

#include <filesystem>
#include <map>
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

// Writes the tracebacks that reasons of the case's engines came with, each to a new file of the
// report's folder (traceback-decoder.txt for decoder.py), and adds the file's name to the reason.
void write_tracebacks(const std::filesystem::path& folder,
                      const std::map<std::string, Failed>& tracebacks, CaseReport& report);

// The `meta` of the report: argv, build, options, time of the start.
nlohmann::json describe_run(const Options& options, const std::vector<std::string>& argv,
                            const std::string& output);

// Checks every path that the run reads or writes, so that a typo fails before minutes of work. Throws
// Error(kBadInput).
void check_paths(const Options& options);

}  // namespace mkbench
