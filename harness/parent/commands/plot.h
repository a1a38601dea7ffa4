// Plots are drawn by a script, with the Python that set-up chose.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mkbench {

// Runs scripts/plot_report.py over report files, into folder `out`. Returns its exit status, or -1
// with `problem` set when it could not be started.
int draw_plots(const std::vector<std::filesystem::path>& reports, const std::filesystem::path& out,
               std::string& problem);

}  // namespace mkbench
