// The history: results of finished runs, kept in <user_data_dir()>/history.sqlite where the user asks
// for it. scripts/history.py reads and writes the file: Python has SQLite, and mkbench needs no
// library for it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "harness/report/report.h"

namespace mkbench {

// Adds a run that ends with the exit code `status` to the history. Throws nothing: an error goes to
// `say`. Returns the run's exit code, or the error's where that is 0.
int end_in_history(const Report& report, const std::filesystem::path& file, int status,
                   const std::function<void(const std::string&)>& say);

}  // namespace mkbench
