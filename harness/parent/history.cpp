#include "harness/parent/history.h"

#include <fmt/format.h>

#include "harness/parent/clock_file.h"
#include "harness/parent/python_script.h"
#include "harness/report/render.h"
#include "references/base/error.h"
#include "references/base/sha256.h"
#include "references/user_folders.h"

namespace mkbench {
namespace {

using nlohmann::json;

std::string commit_of(const Report& report) {
  constexpr size_t kShown = 12;
  const std::string commit = json_text(report.meta, {"git_sha"}).substr(0, kShown);
  const bool dirty = report.meta.value("dirty", json()) == true;
  return commit.empty() ? "no commit" : commit + (dirty ? "+" : "");
}

}  // namespace

std::filesystem::path history_file() {
  const std::filesystem::path data = user_data_dir();
  if (data.empty()) {
    throw Error(ErrorKind::kRuntime,
                "history: no folder for it: neither XDG_DATA_HOME nor HOME is set");
  }
  return data / "history.sqlite";
}

void add_to_history(const Report& report, const std::filesystem::path& file,
                    const std::string& label, bool on_stdout) {
  if (report.interrupted) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("history: {}: verdict.interrupted: found true, wanted a finished run",
                            file.string()));
  }
  const ClockMachine machine = clock_machine(report.environment, !is_cpu_report(report));
  const json run = {{"report_sha256", sha256_file(file)},
                    {"started", json_text(report.meta, {"started"})},
                    {"git_sha", json_text(report.meta, {"git_sha"})},
                    {"label", label.empty() ? commit_of(report) : label},
                    {"device", machine.device},
                    {"uuid", machine.uuid},
                    {"driver", machine.driver},
                    {"verdict", std::string(verdict_name(report.verdict))}};
  const PythonScript script{.name = "history.py",
                            .arguments = {history_file().string(), "add", file.string()},
                            .input = run.dump(-1, ' ', false, json::error_handler_t::replace) +
                                     "\n" + render_jsonl(report),
                            .prints_result = on_stdout};
  std::string problem;
  const int status = run_script(script, problem);
  if (status < 0) throw Error(ErrorKind::kRuntime, "history: " + problem);
  if (status > 0)
    throw Error(ErrorKind::kBadInput, fmt::format("history: {} was not added", file.string()));
}

int end_in_history(const Report& report, const std::filesystem::path& file, int status,
                   const std::function<void(const std::string&)>& say) {
  try {
    add_to_history(report, file, "", false);
    return status;
  } catch (const Error& error) {
    say(std::string("error: ") + error.what());
    return status != 0 ? status : exit_code(verdict_of(error.kind()));
  }
}

}  // namespace mkbench
