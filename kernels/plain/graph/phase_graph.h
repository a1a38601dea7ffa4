// A decode step as a CUDA graph: plain's phases, a kernel each. With `overlap` a kernel begins while the
// one before it runs (programmatic dependent launch), and requests its weights before it waits.
#pragma once

#include <memory>

#include "kernels/launch_checks.h"
#include "kernels/plain/params.h"

namespace mkbench::plain {

// The launch of attention, and of phases whose rows do not fit into shared memory, which needs more of a
// multiprocessor than the others; a null kernel if none is compiled for this layer shape.
LaunchConfig graph_launch(const ModelShape& shape, int blocks);

// Throws Error(kCuda) from the constructor and launch().
class PhaseGraph {
 public:
  // Kernels must be compiled for the shape. `blocks`: the grid of each kernel.
  PhaseGraph(const ModelShape& shape, int blocks, int gpu, bool overlap);
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
