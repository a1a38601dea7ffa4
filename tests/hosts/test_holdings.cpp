// Growth of an engine's process from sequence to sequence.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

#include "harness/hosts/holdings.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

constexpr int kSequences = Holdings::kSequences;
constexpr int64_t kLeast = 256 << 10;

// What is said after `looks` looks: the i-th finds holding(i), at position(i).
std::string said_after(
    int looks, const std::function<Holding(int)>& holding, int64_t weights_bytes = 0,
    const std::function<int(int)>& position = [](int) { return 9; }) {
  Holdings holdings(weights_bytes);
  std::string said;
  for (int i = 0; i < looks; ++i) {
    CHECK(said == "");
    said = holdings.look(holding(i), position(i));
  }
  return said;
}

TEST_CASE("what grows with every sequence is named after kSequences of them, not before") {
  const auto children = [](int i) { return Holding{.processes = 2 + i}; };
  CHECK(said_after(kSequences, children) == "");
  CHECK(said_after(kSequences + 1, children) ==
        "its calls leave processes behind: 2 before the last 16 sequences, 18 after them");
  CHECK(said_after(kSequences + 1, [](int i) { return Holding{.threads = 3 + 2 * i}; }) ==
        "its calls leave threads behind: 3 before the last 16 sequences, 35 after them");
  // However long nothing had grown before: two of the first four sequences are enough.
  const auto late = [](int i) { return Holding{.threads = std::max(3, i - 37)}; };
  CHECK(said_after(42 + kSequences - 4 + 1, late) ==
        "its calls leave threads behind: 3 before the last 16 sequences, 17 after them");
}

TEST_CASE("a child or thread in every second sequence is named, in every third it is not") {
  CHECK(said_after(kSequences + 1, [](int i) { return Holding{.processes = i / 2}; }) != "");
  CHECK(said_after(3 * kSequences, [](int i) { return Holding{.processes = i / 3}; }) == "");
}

TEST_CASE("a pool that is made once, at once or step by step, is not named") {
  CHECK(said_after(3 * kSequences, [](int i) { return Holding{.threads = i == 0 ? 1 : 64}; }) ==
        "");
  CHECK(said_after(3 * kSequences, [](int i) { return Holding{.threads = std::min(i, 13)}; }) ==
        "");
  // Children that come and go.
  CHECK(said_after(3 * kSequences, [](int i) { return Holding{.processes = i % 8}; }) == "");
}

TEST_CASE("memory counts from 1 % of the weights a sequence, and from 256 KiB on a small model") {
  const auto by = [](int64_t step) {
    return [step](int i) { return Holding{.bytes = 7 + i * step}; };
  };
  CHECK(said_after(kSequences + 1, by(kLeast)) ==
        "its calls leave memory behind: 0.26 MB a sequence, for 16 sequences of one length; wanted "
        "less than 0.26 MB (1 % of the weights, at least 256 KiB)");
  CHECK(said_after(kSequences + 1, by(kLeast - 1)) == "");
  CHECK(said_after(kSequences + 1, by(10 * kLeast), 1000 * kLeast) != "");
  CHECK(said_after(kSequences + 1, by(10 * kLeast - 1), 1000 * kLeast) == "");
}

TEST_CASE("memory is compared among sequences of one length, processes among all") {
  const auto grown = [](int i) { return Holding{.bytes = i * 4 * kLeast}; };
  const auto changes_at = [](int where) { return [where](int i) { return i < where ? 5 : 6; }; };
  CHECK(said_after(kSequences + 1, grown, 0, changes_at(1)) == "");
  CHECK(said_after(kSequences + 2, grown, 0, changes_at(1)) != "");
  CHECK(said_after(3 * kSequences, grown, 0, [](int i) { return i % 2; }) == "");
  const auto children = [](int i) { return Holding{.processes = i}; };
  CHECK(said_after(kSequences + 1, children, 0, [](int i) { return i % 2; }) != "");
}

TEST_CASE("a process's children, threads and memory are read") {
  const Holding before = holding_of(getpid());
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  bool end = false;
  std::mutex mutex;
  std::condition_variable changed;
  std::thread thread([&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return end; });
  });
  constexpr size_t kBytes = 8 << 20;
  const std::vector<char> memory(kBytes, 'x');
  const Holding now = holding_of(getpid());
  const Holding of_child = holding_of(child);
  CHECK((of_child.threads == 1 && of_child.processes == 0));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  {
    const std::lock_guard lock(mutex);
    end = true;
  }
  changed.notify_all();
  thread.join();
  CHECK(now.processes == before.processes + 1);
  CHECK(now.threads == before.threads + 1);
  CHECK(now.bytes - before.bytes >= static_cast<int64_t>(kBytes) / 2);
  CHECK(now.bytes - before.bytes < static_cast<int64_t>(kBytes) * 2);
  CHECK((holding_of(child).threads == 0 && holding_of(child).bytes == 0));
}

}  // namespace
}  // namespace mkbench
