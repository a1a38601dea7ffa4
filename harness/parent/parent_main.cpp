#include "harness/parent/parent_main.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "harness/flow/interrupt.h"
#include "harness/parent/host_process.h"
#include "harness/parent/options.h"
#include "harness/report/known_errors.h"
#include "harness/report/verdict.h"
#include "references/base/data_root.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

// Goes on as mkbench-all, which lies beside this program.
[[noreturn]] void become_all(const std::vector<std::string>& argv) {
  const auto program = program_folder() / "mkbench-all";
  std::vector<char*> arguments;
  for (const std::string& word : argv) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  throw Error(ErrorKind::kEnvUnfit,
              fmt::format("--in-process: {}: {}", program.string(), std::strerror(errno)));
}

// Ends what this run has started; a shell may have given this process children of its own before.
struct LeftProcesses {
  const std::vector<pid_t> before = child_processes();
  ~LeftProcesses() { end_left_processes(before); }
};

// Whoever closed a standard stream must not find a socket in its place.
void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) return;
  }
}

int run_command_line(const std::vector<std::string>& argv, const StartHosts& start_hosts,
                     bool in_process) {
  const std::vector<std::string> args(argv.begin() + 1, argv.end());
  const ParsedCommandLine parsed =
      parse_command_line(args, process_environment(), process_environment_names());
  if (parsed.early_exit) {
    fmt::print("{}", parsed.early_exit->text);
    return parsed.early_exit->exit_code;
  }
  const Options& options = parsed.options;
  for (const std::string& warning : options.warnings)
    fmt::print(stderr, "mkbench: warning: {}\n", warning);
  if (options.in_process && !in_process) become_all(argv);
  open_standard_streams();
  install_interrupt_handlers();
  // What a host started and left behind becomes a child of this process, not of init.
  const LeftProcesses ended_last;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  return options.command->run(options, {argv, start_hosts(options.python), in_process});
}

}  // namespace

int parent_main(const std::vector<std::string>& argv, const StartHosts& start_hosts,
                bool in_process) {
  try {
    return run_command_line(argv, start_hosts, in_process);
  } catch (const Interrupted&) {
    return exit_code(Verdict::kInterrupted);
  } catch (const Error& error) {
    fmt::print(stderr, "mkbench: error: {}\n", error.what());
    for (const std::string& advice : advice_lines({error.what()}))
      fmt::print(stderr, "mkbench: {}\n", advice);
    return exit_code(verdict_of(error.kind()));
  } catch (const std::exception& error) {
    fmt::print(stderr, "mkbench: error: {}\n", error.what());
    return exit_code(Verdict::kRuntimeError);
  }
}

}  // namespace mkbench
