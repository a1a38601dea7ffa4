#include "harness/parent/run_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "harness/parent/build_info.h"
#include "harness/parent/resume.h"
#include "references/base/error.h"

namespace mkbench {

namespace fs = std::filesystem;

namespace {

// Returns the file's name.
std::string write_traceback(const fs::path& folder, const std::string& engine,
                            const std::string& traceback) {
  const std::string stem = "traceback-" + fs::path(engine).stem().string();
  std::string name = stem + ".txt";
  for (int i = 2; fs::exists(folder / name); ++i) name = fmt::format("{}-{}.txt", stem, i);
  write_text(folder / name, traceback);
  return name;
}

}  // namespace

std::string utc_now(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  gmtime_r(&now, &parts);
  char text[64];
  std::strftime(text, sizeof(text), format, &parts);
  return text;
}

fs::path make_output_folder(const std::string& asked, const std::string& asked_by) {
  std::error_code error;
  fs::path folder = asked;
  if (asked.empty()) {
    const std::string name = "mkbench-report-" + utc_now("%Y%m%d-%H%M%S");
    folder = name;
    for (int i = 2; fs::exists(folder); ++i) folder = fmt::format("{}-{}", name, i);
  } else if (fs::exists(folder) && !(fs::is_directory(folder) && fs::is_empty(folder, error))) {
    throw Error(
        ErrorKind::kBadInput,
        fmt::format(
            "{} {}: is there already and not an empty folder; reports are never overwritten",
            asked_by, asked));
  }
  fs::create_directories(folder, error);
  if (error) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("{} {}: {}", asked_by, folder.string(), error.message()));
  }
  return folder;
}

void write_tracebacks(const fs::path& folder, const std::map<std::string, Failed>& tracebacks,
                      CaseReport& report) {
  for (EngineReport& e : report.engines) {
    const auto told = tracebacks.find(e.flow_name);
    if (told == tracebacks.end()) continue;
    for (std::string& reason : e.reasons) {
      if (reason.find(told->second.message) == std::string::npos) continue;
      try {
        reason += "; " + write_traceback(folder, e.flow_name, told->second.traceback);
      } catch (const Error& error) {
        reason += fmt::format("; no traceback: {}", error.what());
      }
      break;
    }
  }
}

nlohmann::json describe_run(const Options& options, const std::vector<std::string>& argv,
                            const std::string& output) {
  const BuildInfo build = build_info();
  std::vector<std::string> shown = argv;  // the report does not show where the program lies
  if (!shown.empty()) shown[0] = std::filesystem::path(shown[0]).filename().string();
  nlohmann::json meta = describe_identity(options);
  meta.update({{"argv", shown},
               {"started", utc_now("%Y-%m-%dT%H:%M:%SZ")},
               {"version", build.version},
               {"git_sha", build.git_sha},
               {"dirty", build.dirty},
               {"build_type", build.build_type},
               {"compiler", build.compiler},
               {"cuda_compiler", build.cuda_compiler},
               {"seed", options.seed},
               {"prompt_seed", options.prompt_seed},
               {"output", output},
               {"options", options_to_json(options)}});
  return meta;
}

void check_paths(const Options& options) {
  const fs::path junit = options.junit;
  if (!options.junit.empty()) {
    const fs::path folder = junit.parent_path();
    if (!folder.empty() && !fs::is_directory(folder)) {
      throw Error(ErrorKind::kBadInput,
                  fmt::format("--junit {}: there is no folder {}", options.junit, folder.string()));
    }
    if (fs::is_directory(junit)) {
      throw Error(ErrorKind::kBadInput,
                  fmt::format("--junit {}: found a folder, wanted a file", options.junit));
    }
    if (access(folder.empty() ? "." : folder.c_str(), W_OK) != 0) {
      throw Error(ErrorKind::kBadInput, fmt::format("--junit {}: cannot write to its folder: {}",
                                                    options.junit, std::strerror(errno)));
    }
  }
  if (!options.reference.empty() && !fs::is_directory(options.reference)) {
    throw Error(
        ErrorKind::kBadInput,
        fmt::format("--reference {}: found {}, wanted a folder that holds "
                    "<model>/reference*.json",
                    options.reference, fs::exists(options.reference) ? "a file" : "nothing"));
  }
}

}  // namespace mkbench
