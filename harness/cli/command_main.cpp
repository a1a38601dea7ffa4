#include "harness/cli/command_main.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "harness/cli/command_line.h"
#include "harness/device/process_tree.h"
#include "harness/flow/interrupt.h"
#include "harness/report/known_errors.h"
#include "harness/report/print_stderr.h"
#include "harness/report/verdict.h"
#include "references/base/data_root.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

// Replaces this process by mkbench-all, from the folder of this program.
[[noreturn]] void become_all(const std::vector<std::string>& argv) {
  const auto program = program_folder() / "mkbench-all";
  std::vector<char*> arguments;
  for (const std::string& word : argv) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(program.c_str(), arguments.data());
  throw Error(ErrorKind::kEnvUnfit,
              fmt::format("--in-process: {}: {}", program.string(), std::strerror(errno)));
}

// Ends the processes that this run started, not those inherited from a shell that used exec.
struct LeftProcesses {
  const std::vector<pid_t> before = child_processes(getpid());
  ~LeftProcesses() {
    const auto was_there = [this](const ProcessSeen& child) {
      return std::find(before.begin(), before.end(), child.pid) != before.end();
    };
    end_children(was_there, std::chrono::seconds(2));
  }
};

// Opens closed standard streams on /dev/null, so that no socket gets their descriptors.
void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) return;
  }
}

// Flushes standard output. If that fails, returns RUNTIME_ERROR's exit code in place of 0.
int after_output(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  if (status != 0) return status;  // the command has reported a failure
  print_stderr("mkbench: error: cannot write to standard output: {}\n", std::strerror(errno));
  return exit_code(Verdict::kRuntimeError);
}

int run_command_line(const std::vector<std::string>& argv, const StartHosts& start_hosts,
                     bool in_process) {
  const std::vector<std::string> args(argv.begin() + 1, argv.end());
  const ParsedCommandLine parsed =
      parse_command_line(args, process_environment(), process_environment_names());
  if (parsed.early_exit) {
    fmt::print("{}", parsed.early_exit->text);
    return after_output(parsed.early_exit->exit_code);
  }
  const CommandSettings& settings = *parsed.settings;
  for (const std::string& warning : parsed.warnings)
    print_stderr("mkbench: warning: {}\n", warning);
  if (settings.in_process && !in_process) become_all(argv);
  open_standard_streams();
  install_interrupt_handlers();
  // A process that a host leaves behind becomes a child of this process, not of init.
  const LeftProcesses ended_last;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  return after_output(
      parsed.command->run(settings, {argv, start_hosts(settings.python), in_process}));
}

}  // namespace

int command_main(const std::vector<std::string>& argv, const StartHosts& start_hosts,
                 bool in_process) {
  try {
    return run_command_line(argv, start_hosts, in_process);
  } catch (const Interrupted&) {
    return exit_code(Verdict::kInterrupted);
  } catch (const Error& error) {
    print_stderr("mkbench: error: {}\n", error.what());
    for (const std::string& advice : advice_lines({error.what()}))
      print_stderr("mkbench: {}\n", advice);
    return exit_code(verdict_of(error.kind()));
  } catch (const std::exception& error) {
    print_stderr("mkbench: error: {}\n", error.what());
    return exit_code(Verdict::kRuntimeError);
  }
}

}  // namespace mkbench
