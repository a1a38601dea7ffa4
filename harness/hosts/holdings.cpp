#include "harness/hosts/holdings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace mkbench {
namespace {

constexpr int kQuarters = 4, kEach = Holdings::kSequences / kQuarters;
// Memory may grow by this share of the weights in a sequence, and on small models by this much.
constexpr double kShareOfWeights = 0.01;
constexpr double kLeastBytes = 256 << 10;

int64_t threads_of(pid_t pid) {
  std::error_code error;
  std::filesystem::directory_iterator tasks(fmt::format("/proc/{}/task", pid), error);
  return error ? 0 : std::distance(begin(tasks), end(tasks));
}

int64_t resident_pages(pid_t pid) {
  int64_t all = 0, resident = 0;
  std::ifstream(fmt::format("/proc/{}/statm", pid)) >> all >> resident;
  return resident;
}

// Whether a holding grew by `step` a sequence or more, in each quarter of the sequences seen.
bool grows(const std::vector<Holding>& seen, int64_t Holding::*what, double step) {
  for (size_t i = 0; i < kQuarters; ++i) {
    const int64_t grown = seen[(i + 1) * kEach].*what - seen[i * kEach].*what;
    if (static_cast<double>(grown) < step * kEach) return false;
  }
  return true;
}

}  // namespace

Holding holding_of(pid_t pid) {
  return {std::ssize(child_processes(pid)), threads_of(pid),
          resident_pages(pid) * sysconf(_SC_PAGESIZE)};
}

std::string Holdings::look(const Holding& now, int position) {
  alike_ = position == position_ ? alike_ + 1 : 1;
  position_ = position;
  seen_.push_back(now);
  if (seen_.size() > kSequences + 1) seen_.erase(seen_.begin());
  if (seen_.size() <= kSequences) return "";
  const auto told = [&](const char* things, int64_t Holding::*what) {
    return fmt::format("its calls leave {} behind: {} before the last {} sequences, {} after them",
                       things, seen_.front().*what, kSequences, now.*what);
  };
  // One in two sequences: a call that leaves something behind need not do so every time.
  constexpr double kCount = 0.5;
  if (grows(seen_, &Holding::processes, kCount)) return told("processes", &Holding::processes);
  if (grows(seen_, &Holding::threads, kCount)) return told("threads", &Holding::threads);
  const double limit = std::max(kLeastBytes, kShareOfWeights * static_cast<double>(weights_bytes_));
  if (alike_ <= kSequences || !grows(seen_, &Holding::bytes, limit)) return "";
  const double mb = static_cast<double>(now.bytes - seen_.front().bytes) / kSequences / 1e6;
  return fmt::format(
      "its calls leave memory behind: {:.2f} MB a sequence, for {} sequences of one length; "
      "wanted less than {:.2f} MB (1 % of the weights, at least 256 KiB)",
      mb, kSequences, limit / 1e6);
}

}  // namespace mkbench
