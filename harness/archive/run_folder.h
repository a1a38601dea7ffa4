// Where a run writes its report.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/report/report.h"
#include "harness/wire/calls.h"

namespace mkbench {

// The current time in UTC; `format` as for strftime().
std::string utc_now(const char* format);

// Keeps other runs from writing to `folder` until this process ends. Throws Error(kBadInput), which
// names `option`, if another run writes to it.
void lock_folder(const std::filesystem::path& folder, const char* option);

// Makes and locks the report's folder before anything is measured, so that the results have a
// place. Throws Error(kBadInput) if the folder is not empty.
std::filesystem::path make_output_folder(const std::string& asked);

// Writes each traceback that belongs to a reason of the case's engines to a new file in `folder`
// (traceback-decoder.txt for decoder.py), and adds the file's name to that reason.
void write_tracebacks(const std::filesystem::path& folder,
                      const std::map<std::string, Failed>& tracebacks, CaseReport& report);

}  // namespace mkbench
