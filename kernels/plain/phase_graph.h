// A decode step as a CUDA graph: plain's phases, a kernel each. With `overlap` a kernel begins while the
// one before it runs (programmatic dependent launch), and requests its weights before it waits.
#pragma once

#include <memory>

#include "kernels/launch_checks.h"
#include "kernels/plain/params.h"

namespace mkbench::plain {

// Throws Error(kCuda) from the constructor and launch().
class PhaseGraph {
 public:
  // `launch` is that of a kernel of graph_kernels.h, which has been granted its shared memory.
  PhaseGraph(const LaunchConfig& launch, int layers, bool overlap);
  ~PhaseGraph();
  PhaseGraph(const PhaseGraph&) = delete;
  PhaseGraph& operator=(const PhaseGraph&) = delete;

  // Queues p.steps steps on the default stream, a graph each. *p.arrivals, which is 0 before, counts the
  // steps that have ended. One engine of a process may have steps queued at a time, because the
  // parameters are a variable of the device code.
  void launch(const LaunchParams& p) const;

 private:
  struct Graphs;
  std::unique_ptr<Graphs> graphs_;
};

}  // namespace mkbench::plain
