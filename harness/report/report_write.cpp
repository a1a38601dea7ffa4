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

// Writes a file under a temporary name, flushes it to the disk and renames it.
void replace_file(const fs::path& path, const fs::path& temporary, const std::string& text) {
  const char* at = text.data();
  size_t bytes = text.size();
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) fail(temporary, "create");
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
  int flushed = 0;
  do {
    flushed = ::fsync(file);
  } while (flushed != 0 && errno == EINTR);
  const int reason = errno;
  if (::close(file) != 0 || flushed != 0) {
    if (flushed != 0) errno = reason;
    fail(temporary, "flush");
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail(path, "rename onto");
  flush_folder(path.parent_path());
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

void flush_folder(const fs::path& folder) {
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

void write_text(const fs::path& path, const std::string& text) {
  const fs::path temporary = path.string() + std::string(kPartialEnding);
  try {
    replace_file(path, temporary, text);
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    throw;
  }
}

void write_report(const Report& report, const fs::path& folder) {
  make_folder(folder);
  write_text(folder / "report.md", render_markdown(report));
  write_text(folder / "junit.xml", render_junit(report));
  // Written last: a folder that holds report.json is complete.
  write_text(folder / "report.json", render(report, "json"));
}

}  // namespace mkbench
