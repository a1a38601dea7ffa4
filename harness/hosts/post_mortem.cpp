#include "harness/hosts/post_mortem.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>

#include "harness/device/program_output.h"
#include "harness/flow/interrupt.h"
#include "harness/hosts/host_process.h"
#include "harness/report/report.h"
#include "references/base/json_fields.h"

namespace mkbench {
namespace {

constexpr double kStackSeconds = 20;
// How long a host may take to report on a call that stands still.
constexpr std::chrono::seconds kAnswerTime{3};
constexpr int kAnswerPollMs = 100;

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
  if (find_in(path_folders(), tool).empty()) {
    dump.why = "not on PATH";
    return dump;
  }
  std::vector<std::string> command = {tool, "-batch", "-nx"};
  for (const std::string& ask : asks) command.insert(command.end(), {"-ex", ask});
  command.insert(command.end(), {"-p", std::to_string(pid)});
  const auto interrupted = [] { return interrupt_count() > 0; };
  dump.text = program_output(command, {.seconds = kStackSeconds, .stop = interrupted}).text;
  // A tool that may not attach still prints its greeting, but no frame.
  if (dump.text.find("\n#0") != std::string::npos) return dump;
  dump.why = interrupted()
                 ? "interrupted before it showed a stack"
                 : fmt::format("it showed no stack within {} s; attaching may not be permitted",
                               kStackSeconds);
  return dump;
}

// hang.json of a run.
class HangFile {
 public:
  // Names the file in the report's line. Returns why the file could not be written, or an empty text.
  std::string keep(const std::filesystem::path& folder, HangReport& report) {
    reports_.push_back(report);
    if (folder.empty()) return "";
    if (name_.empty()) {  // a resumed run keeps its folder's earlier file
      name_ = "hang.json";
      for (int i = 2; std::filesystem::exists(folder / name_); ++i)
        name_ = fmt::format("hang-{}.json", i);
    }
    nlohmann::json all = {{"schema", {{"id", "mkbench.hang"}, {"version", "1.0.0"}}},
                          {"hangs", nlohmann::json::array()}};
    for (const HangReport& one : reports_) all["hangs"].push_back(json_fields::write(one));
    try {
      const auto replace = nlohmann::json::error_handler_t::replace;
      write_text(folder / name_, all.dump(2, ' ', false, replace) + "\n");
    } catch (const Error& error) {
      return error.what();
    }
    report.line += "; see " + name_;
    return "";
  }

 private:
  std::string name_;  // empty before the first report
  std::vector<HangReport> reports_;
};

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

// Asks the host's second thread; nullopt if it does not answer.
std::optional<HangTold> HostProcess::ask_hang() {
  const Clock::time_point limit = Clock::now() + kAnswerTime;
  if (!write_all(progress_fd_, &kAskHang, 1)) return std::nullopt;
  while (Clock::now() < limit) {
    const FrameReader::Got got = told_->read(kAnswerPollMs);
    if (got == FrameReader::Got::kNothing) continue;
    if (got != FrameReader::Got::kFrame) return std::nullopt;
    try {
      FromHost answer = answer_from_json(nlohmann::json::parse(told_->frame(), nullptr, false));
      if (auto* told = std::get_if<HangTold>(&answer)) return std::move(*told);
      asked_progress_ = false;  // this was the late answer to ask_progress()
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

// Collects what is known of the call, passes it to on_hang(), and returns its summary in one line.
std::string HostProcess::post_mortem(const char* what, double seconds, bool killed) {
  HangReport report{
      .engine = command_.holds, .call = what, .seconds = seconds, .killed = killed, .line = ""};
  if (const std::optional<HangTold> told = hello_ ? ask_hang() : std::nullopt) {
    report.answered = true;
    report.told = *told;
  }
  explain_hang(report);
  if (killed) report.stacks = take_stacks(pid_);
  explain_stacks(report);
  on_hang(report);
  return report.line;
}

OnHang keep_hangs(const std::filesystem::path& folder,
                  std::function<void(const std::string&)> say) {
  return [&folder, say = std::move(say), file = std::make_shared<HangFile>()](HangReport& report) {
    const std::string lost = file->keep(folder, report);
    say(report.line);
    if (!lost.empty()) say("warning: the post-mortem is not kept: " + lost);
  };
}

}  // namespace mkbench
