#include "harness/archive/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "references/base/error.h"

namespace mkbench {

namespace fs = std::filesystem;

namespace {

// Writes a new file and returns its name.
std::string write_traceback(const fs::path& folder, const std::string& engine,
                            const std::string& traceback) {
  const std::string stem = "traceback-" + fs::path(engine).stem().string();
  std::string name = stem + ".txt";
  for (int i = 2; fs::exists(folder / name); ++i) name = fmt::format("{}-{}.txt", stem, i);
  write_text(folder / name, traceback);
  return name;
}

// True for a folder without files. What a run leaves that was killed while it wrote its first report
// does not count.
bool holds_nothing(const fs::path& folder) {
  std::error_code error;
  const auto partial = [](const fs::directory_entry& entry) {
    return entry.path().filename() == "report.json" + std::string(kPartialEnding);
  };
  const fs::directory_iterator entries(folder, error);
  return !error && std::all_of(begin(entries), end(entries), partial);
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

void lock_folder(const fs::path& folder, const char* option) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);  // open until the end
  // On a file system without locks flock() fails with another error.
  if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw Error(ErrorKind::kBadInput, fmt::format("{} {}: another run is writing to it; wait until "
                                                  "that has ended, or name another folder",
                                                  option, folder.string()));
  }
}

fs::path make_output_folder(const std::string& asked) {
  std::error_code error;
  fs::path folder = asked;
  if (asked.empty()) {
    const std::string name = "mkbench-report-" + utc_now("%Y%m%d-%H%M%S");
    folder = name;
    for (int i = 2; !fs::create_directory(folder, error) && !error; ++i)
      folder = fmt::format("{}-{}", name, i);
  } else if (!fs::exists(folder)) {
    fs::create_directories(folder, error);
    flush_folder(folder / "..");
  }
  if (error) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("--out {}: {}", folder.string(), error.message()));
  }
  lock_folder(folder, "--out");
  if (!holds_nothing(folder)) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("--out {}: is there already and not an empty folder; reports are never "
                            "overwritten",
                            asked));
  }
  if (access(folder.c_str(), W_OK) != 0) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("--out {}: cannot write to it: {}", asked, std::strerror(errno)));
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

}  // namespace mkbench
