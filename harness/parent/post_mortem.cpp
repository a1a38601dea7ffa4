#include "harness/parent/post_mortem.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "harness/device/program_output.h"
#include "harness/parent/run_folder.h"
#include "references/base/json_fields.h"

namespace mkbench {
namespace {

constexpr char kStackSeconds[] = "20";

bool is_installed(const std::string& program) {
  const auto folders = path_folders();
  return std::any_of(folders.begin(), folders.end(), [&](const std::filesystem::path& folder) {
    return access((folder / program).c_str(), X_OK) == 0;
  });
}

// Whether a process has the driver's library in its memory.
bool uses_cuda(pid_t pid) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    if (line.find("libcuda.so") != std::string::npos) return true;
  }
  return false;
}

StackDump stacks_by(const std::string& tool, pid_t pid, const std::vector<std::string>& asks) {
  StackDump dump{.tool = tool, .text = "", .why = ""};
  if (!is_installed(tool)) {
    dump.why = "not on PATH";
    return dump;
  }
  std::vector<std::string> command = {"timeout", "-k", "1", kStackSeconds, tool, "-batch", "-nx"};
  for (const std::string& ask : asks) command.insert(command.end(), {"-ex", ask});
  command.insert(command.end(), {"-p", std::to_string(pid)});
  dump.text = program_output(command).text;
  // A tool that may not attach still prints its greeting.
  if (dump.text.find("\n#0") != std::string::npos) return dump;
  dump.why =
      fmt::format("it showed no stack within {} s; attaching may not be permitted", kStackSeconds);
  return dump;
}

}  // namespace

std::vector<StackDump> take_stacks(pid_t pid) {
  std::vector<StackDump> stacks{
      stacks_by("gdb", pid, {"set pagination off", "thread apply all backtrace 30"})};
  if (!uses_cuda(pid)) return stacks;
  stacks.push_back(stacks_by("cuda-gdb", pid,
                             {"set pagination off", "info cuda kernels", "info cuda blocks",
                              "thread apply all backtrace 30"}));
  return stacks;
}

void HangFile::add(const HangReport& report) {
  if (name_.empty()) {  // a run that goes on in its folder keeps the file that is there
    name_ = "hang.json";
    for (int i = 2; std::filesystem::exists(folder_ / name_); ++i)
      name_ = fmt::format("hang-{}.json", i);
  }
  reports_.push_back(report);
  nlohmann::json all = {{"schema", {{"id", "mkbench.hang"}, {"version", "1.0.0"}}},
                        {"hangs", nlohmann::json::array()}};
  for (const HangReport& one : reports_) all["hangs"].push_back(json_fields::write(one));
  write_text(folder_ / name_,
             all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace mkbench
