#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "harness/report/junit.h"
#include "harness/report/render.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const char* what) {
  throw Error(ErrorKind::kRuntime,
              fmt::format("report: cannot {} {}: {}", what, path.string(), std::strerror(errno)));
}

// Writes a file whole or not at all: under a temporary name, flushed to the disk, then renamed.
void write_file(const fs::path& path, const void* data, size_t bytes) {
  const fs::path temporary = path.string() + ".partial";
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) fail(temporary, "create");
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      ::close(file);
      fail(temporary, "write");
    }
    at += written;
    bytes -= static_cast<size_t>(written);
  }
  if (::fsync(file) != 0 || ::close(file) != 0) fail(temporary, "flush");
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail(path, "rename onto");
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw Error(ErrorKind::kRuntime, fmt::format("report: cannot create folder {}: {}",
                                                 folder.string(), error.message()));
  }
}

}  // namespace

void write_text(const fs::path& path, const std::string& text) {
  write_file(path, text.data(), text.size());
}

void write_report(const Report& report, const fs::path& folder) {
  make_folder(folder);
  write_text(folder / "report.md", render_markdown(report));
  write_text(folder / "junit.xml", render_junit(report));
  // Written last: a folder that holds report.json is complete.
  write_text(folder / "report.json", render(report, "json"));
}

}  // namespace mkbench
