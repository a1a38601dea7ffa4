#include "harness/parent/commands/plot.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "harness/parent/option_values.h"
#include "harness/parent/options.h"
#include "harness/report/verdict.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

// The environment names the Python, else the build does.
std::string plotting_python() {
  const char* given = std::getenv("MKBENCH_PYTHON");
  return given != nullptr && *given != '\0' ? given : MKBENCH_BUILD_PYTHON;
}

int spawn(const std::vector<std::string>& command, std::string& problem) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    problem = fmt::format("fork: {}", std::strerror(errno));
    return -1;
  }
  if (child == 0) {
    dup2(STDERR_FILENO, STDOUT_FILENO);  // stdout is for results
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status) && WEXITSTATUS(status) != 127) return WEXITSTATUS(status);
  problem = WIFEXITED(status) ? fmt::format("cannot run {}", command[0])
                              : fmt::format("{} died by signal {}", command[0], WTERMSIG(status));
  return -1;
}

}  // namespace

int draw_plots(const std::vector<fs::path>& reports, const fs::path& out, std::string& problem) {
  const fs::path script = fs::path(MKBENCH_SOURCE_DIR) / "scripts" / "plot_report.py";
  if (!fs::exists(script)) {
    problem = fmt::format("{} is not there", script.string());
    return -1;
  }
  std::vector<std::string> command = {plotting_python(), script.string()};
  for (const fs::path& report : reports) command.push_back(report.string());
  command.push_back("--out");
  command.push_back(out.string());
  return spawn(command, problem);
}

void require_plot_arguments(Options& options) {
  if (options.arguments.empty())
    bad_usage("mkbench plot: name at least one report.json or report folder");
}

int plot_command(const Options& options, const Invocation&) {
  std::vector<fs::path> reports;
  for (const std::string& argument : options.arguments) {
    const fs::path path =
        fs::is_directory(argument) ? fs::path(argument) / "report.json" : fs::path(argument);
    if (!fs::is_regular_file(path)) {
      throw Error(ErrorKind::kBadInput,
                  fmt::format("mkbench plot: {}: no such report", path.string()));
    }
    reports.push_back(path);
  }
  const fs::path out =
      options.out.empty() ? reports.front().parent_path() / "plots" : fs::path(options.out);
  std::string problem;
  const int status = draw_plots(reports, out, problem);
  if (status < 0) throw Error(ErrorKind::kRuntime, "mkbench plot: " + problem);
  if (status == 0) fmt::print("{}\n", out.string());
  constexpr int kBadReport = 2, kNothingToPlot = 3;  // of the script
  if (status == kBadReport || status == kNothingToPlot) return exit_code(Verdict::kBadInput);
  return status == 0 ? 0 : 1;
}

}  // namespace mkbench
