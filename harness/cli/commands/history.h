// The history: results of finished runs, kept in <user_data_dir()>/history.sqlite if the user asks
// for it. scripts/history.py reads and writes the file: Python has SQLite, so mkbench needs no
// library for it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "harness/report/report.h"

namespace mkbench {

// Adds a run that ends with the exit code `status` to the history. Returns `status` or, if it is 0
// and an error occurs, the error's exit code. The error goes to `say`; nothing is thrown.
int end_in_history(const Report& report, const std::filesystem::path& file, int status,
                   const std::function<void(const std::string&)>& say);

}  // namespace mkbench
