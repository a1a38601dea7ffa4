// The history: results of finished runs, kept in an SQLite file of the user's where the user asks for
// it. scripts/history.py reads and writes the file: Python has SQLite, and mkbench needs no library
// for it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "harness/report/report.h"

namespace mkbench {

// <user_data_dir()>/history.sqlite. Throws Error(kRuntime) where neither XDG_DATA_HOME nor HOME is
// set.
std::filesystem::path history_file();

// Adds the results of a report once; `file` is its report.json, `label` what the history calls it
// (empty: the commit of the mkbench that wrote it). `on_stdout`: the script's line is the result.
// Throws Error(kBadInput) for a partial report, and where the history cannot be used.
void add_to_history(const Report& report, const std::filesystem::path& file,
                    const std::string& label, bool on_stdout);

// Adds a run that ends with the exit code `status` to the history. Throws nothing: an error goes to
// `say`. Returns the run's exit code, or the error's where that is 0.
int end_in_history(const Report& report, const std::filesystem::path& file, int status,
                   const std::function<void(const std::string&)>& say);

}  // namespace mkbench
