// What an engine hands to the card in one decode, recorded by the driver and not by the engine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "references/base/fields.h"

namespace mkbench {

// A piece of work of the card, or a call with which the host waited for the card.
struct LaunchRecord {
  enum class What { kKernel, kCopy, kMemset, kWait };
  What what = What::kKernel;
  bool in_graph = false;
  uint32_t call = 0;  // the host's call that began it; shared by all nodes of one graph launch
  uint64_t begin_ns = 0, end_ns = 0;  // end_ns is 0 if the end was not seen
};

struct LaunchTrace {
  std::string problem{};  // why nothing was recorded; else empty
  int tokens = 0;         // of the recorded decode
  int64_t kernels = 0;    // launches outside of graphs
  int64_t graph_launches = 0, graph_nodes = 0;
  int64_t copies = 0, memsets = 0, synchronisations = 0;
  double wall_ms = 0, busy_ms = 0;  // span of the card's work; the part in which it worked

  int64_t launches() const { return kernels + graph_launches; }
};

// Sums up the records of one decode, in any order. Waits of the host are counted; wall_ms and
// busy_ms cover only the card's work.
LaunchTrace sum_launches(const std::vector<LaunchRecord>& records);

constexpr std::string_view struct_name(Tag<LaunchTrace>) { return "launch_trace"; }
template <typename V>
void describe_fields(V& v, Tag<LaunchTrace>) {
  using T = LaunchTrace;
  v.field("problem", &T::problem, "why nothing was recorded; else empty");
  v.field("tokens", &T::tokens, "tokens of the recorded decode");
  v.field("kernels", &T::kernels, "kernel launches outside of graphs");
  v.field("graph_launches", &T::graph_launches, "launches of graphs");
  v.field("graph_nodes", &T::graph_nodes, "kernels, copies and memsets that graphs ran");
  v.field("copies", &T::copies, "copies outside of graphs");
  v.field("memsets", &T::memsets, "memsets outside of graphs");
  v.field("synchronisations", &T::synchronisations, "waits of the host for the card");
  v.field("wall_ms", &T::wall_ms, "from the begin of the card's first work to the end of its last");
  v.field("busy_ms", &T::busy_ms, "the part of wall_ms in which the card worked");
}

}  // namespace mkbench
