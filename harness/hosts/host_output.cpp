#include "harness/hosts/host_output.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "harness/wire/channel.h"
#include "references/base/one_line.h"

namespace mkbench {
namespace {

constexpr off_t kMostWords = 64 << 10;  // a sanitizer's report has some kilobytes
constexpr off_t kFreeAtOnce = 1 << 20;

// "==123==ERROR: AddressSanitizer: ..." or "==123==ASan runtime does not come first ...".
bool is_finding(std::string_view line) {
  return line.starts_with("==") && (line.find("Sanitizer: ") != std::string_view::npos ||
                                    line.find("ASan runtime") != std::string_view::npos);
}

}  // namespace

HostOutput::HostOutput() : fd_(memfd_create("mkbench-output", MFD_CLOEXEC)) {
  if (fd_ >= 0) fcntl(fd_, F_SETFL, O_APPEND);  // also after a program that has emptied /dev/stderr
}

HostOutput::~HostOutput() { close_file(); }

void HostOutput::close_file() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void HostOutput::forward() {
  struct stat info {};
  if (fd_ < 0 || fstat(fd_, &info) != 0) return;
  if (info.st_size < forwarded_) forwarded_ = call_ = freed_ = 0;
  std::array<char, 4096> text;
  while (forwarded_ < info.st_size) {
    const auto most = std::min<off_t>(info.st_size - forwarded_, text.size());
    const ssize_t n = pread(fd_, text.data(), static_cast<size_t>(most), forwarded_);
    if (n <= 0) return;
    write_all(STDERR_FILENO, text.data(), static_cast<size_t>(n));
    forwarded_ += n;
  }
}

void HostOutput::begin_call() {
  forward();
  call_ = forwarded_;
  if (call_ - freed_ < kFreeAtOnce) return;
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, freed_, call_ - freed_);
  freed_ = call_;
}

std::string HostOutput::last_words() {
  forward();
  std::string text(static_cast<size_t>(std::min(forwarded_ - call_, kMostWords)), '\0');
  const ssize_t n =
      pread(fd_, text.data(), text.size(), forwarded_ - static_cast<off_t>(text.size()));
  const std::string said = last_words_of({text.data(), n > 0 ? static_cast<size_t>(n) : 0});
  return said.empty() ? "" : "; its last words: " + said;
}

std::string file_start(int fd) {
  std::array<char, 600> text{};
  const ssize_t n = pread(fd, text.data(), text.size(), 0);
  std::string line(text.data(), n > 0 ? static_cast<size_t>(n) : 0);
  while (!line.empty() && line.back() == '\n') line.pop_back();
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

std::string last_words_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (is_finding(line)) return one_line(std::string(line), 400);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) lines.emplace_back(line);
  }
  std::string words;
  for (size_t at = lines.size() - std::min<size_t>(lines.size(), 2); at < lines.size(); ++at)
    words += (words.empty() ? "" : " ") + lines[at];
  return one_line(words, 400);
}

}  // namespace mkbench
