#include "references/base/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "references/base/error.h"

namespace mkbench {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISCHR(mode)) return "a character device";
  if (S_ISBLK(mode)) return "a block device";
  return "a socket or other special file";
}

}  // namespace

RegularFile::RegularFile(const std::filesystem::path& path) : path_(path.string()) {
  // O_NONBLOCK, because opening a FIFO without a writer would wait for ever.
  descriptor_ = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor_ < 0) bad_input(path_, fmt::format("cannot open: {}", std::strerror(errno)));
  std::string problem;
  if (fstat(descriptor_, &opened_) != 0) {
    problem = fmt::format("cannot stat: {}", std::strerror(errno));
  } else if (S_ISDIR(opened_.st_mode)) {
    problem = fmt::format("cannot read: {}", std::strerror(EISDIR));
  } else if (!S_ISREG(opened_.st_mode)) {
    problem = fmt::format("is {}, wanted a regular file", kind_of(opened_.st_mode));
  }
  if (!problem.empty()) {
    close(descriptor_);
    bad_input(path_, problem);
  }
}

RegularFile::~RegularFile() { close(descriptor_); }

void RegularFile::read_at(uint64_t offset, void* out, size_t bytes) const {
  char* to = static_cast<char*>(out);
  for (size_t filled = 0; filled < bytes;) {
    const ssize_t got =
        pread(descriptor_, to + filled, bytes - filled, static_cast<off_t>(offset + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) bad_input(path_, fmt::format("cannot read: {}", std::strerror(errno)));
    if (got == 0)
      bad_input(path_,
                fmt::format("ends at byte {} while it is read: it had {} bytes when it was opened",
                            offset + filled, size()));
    filled += static_cast<size_t>(got);
  }
}

void RegularFile::check_unchanged() const {
  struct stat now {};
  if (fstat(descriptor_, &now) != 0)
    bad_input(path_, fmt::format("cannot stat: {}", std::strerror(errno)));
  if (now.st_size != opened_.st_size)
    bad_input(path_, fmt::format("changed since it was opened: {} bytes, {} then", now.st_size,
                                 opened_.st_size));
  if (now.st_mtim.tv_sec != opened_.st_mtim.tv_sec ||
      now.st_mtim.tv_nsec != opened_.st_mtim.tv_nsec)
    bad_input(path_, "was written to since it was opened");
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 1 << 16> part{};
  for (ssize_t got = 0;
       (got = pread(fd, part.data(), part.size(), static_cast<off_t>(text.size()))) != 0;) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    text.append(part.data(), static_cast<size_t>(got));
  }
  return text;
}

}  // namespace mkbench
