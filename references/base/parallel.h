// A loop over [0, n) in chunks that several threads take in turn; with one thread everything runs
// in the caller.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <thread>
#include <vector>

#include "references/base/usable_cores.h"

namespace mkbench {

// The number of threads to use for a setting of `wanted`: 0 or less means usable_cores(root), rounded
// down, but at least 1.
inline int thread_count(int wanted, const std::filesystem::path& root = "/") {
  return wanted > 0 ? wanted : std::max(1, static_cast<int>(usable_cores(root)));
}

// Calls body(begin, end) for consecutive chunks of at most `chunk` indices. `body` must not throw.
template <class Body>
void parallel_chunks(int64_t n, int64_t chunk, int threads, const Body& body) {
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t begin; (begin = next.fetch_add(chunk)) < n;)
      body(begin, std::min(n, begin + chunk));
  };
  const int64_t chunks = (n + chunk - 1) / chunk;
  std::vector<std::jthread> team;
  for (int64_t t = 1; t < std::min<int64_t>(threads, chunks); ++t) team.emplace_back(work);
  work();
}

}  // namespace mkbench
