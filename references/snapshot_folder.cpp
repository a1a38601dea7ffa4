#include "references/snapshot_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "references/base/error.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "mkbench-";

fs::path temporary_folder() {
  const char* folder = std::getenv("TMPDIR");
  const fs::path path = folder != nullptr && *folder != '\0' ? folder : "/tmp";
  std::error_code ignored;
  return fs::absolute(path, ignored);
}

[[noreturn]] void fail(const fs::path& path, const char* what, int error) {
  throw Error(ErrorKind::kEnvUnfit,
              fmt::format("{}: cannot {}: {} (TMPDIR says where snapshots are published)",
                          path.string(), what, std::strerror(error)));
}

// Removes links and then the folder; anything else in it is not ours and stays, folder included.
void remove_links(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->is_symlink(error)) unlink(at->path().c_str());
  }
  rmdir(folder.c_str());
}

// The pid in a name "mkbench-<pid>-<n>"; nullopt for any other name.
std::optional<pid_t> pid_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  pid_t pid = 0;
  unsigned number = 0;
  const char* const end = name.data() + name.size();
  const auto first = std::from_chars(name.data(), end, pid);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-' || pid <= 0)
    return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, number);
  return second.ec == std::errc() && second.ptr == end ? std::optional(pid) : std::nullopt;
}

// The owner locks its folder, because its pid means nothing in other containers that share this
// folder of temporary files.
int open_and_lock(const fs::path& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor >= 0 && flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(descriptor);
    return -1;
  }
  return descriptor;
}

void remove_if_stale(const fs::path& folder) {
  const std::optional<pid_t> pid = pid_of(folder.filename().string());
  struct stat info {};
  if (!pid || lstat(folder.c_str(), &info) != 0) return;
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid()) return;
  if (kill(*pid, 0) == 0 || errno != ESRCH) return;
  const int lock = open_and_lock(folder);
  if (lock < 0) return;
  remove_links(folder);
  close(lock);
}

}  // namespace

SnapshotFolder::SnapshotFolder() : pid_(getpid()) {
  static std::atomic<unsigned> next{0};
  const fs::path parent = temporary_folder();
  do {
    path_ = parent / fmt::format("{}{}-{}", kPrefix, pid_, next.fetch_add(1));
    if (mkdir(path_.c_str(), S_IRWXU) == 0) break;
    if (errno != EEXIST) fail(path_, "make this folder", errno);
  } while (true);
  lock_ = open_and_lock(path_);
  if (lock_ < 0) {
    const int error = errno;
    rmdir(path_.c_str());
    fail(path_, "open this folder", error);
  }
}

SnapshotFolder::~SnapshotFolder() {
  if (getpid() == pid_) remove_links(path_);
  close(lock_);
}

void SnapshotFolder::link(const std::string& name, int descriptor) {
  const std::string target = fmt::format("/proc/{}/fd/{}", pid_, descriptor);
  if (symlink(target.c_str(), (path_ / name).c_str()) != 0) fail(path_ / name, "link", errno);
}

void remove_stale_snapshots() {
  std::error_code error;
  for (fs::directory_iterator at(temporary_folder(), error), end; !error && at != end;
       at.increment(error)) {
    remove_if_stale(at->path());
  }
}

}  // namespace mkbench
