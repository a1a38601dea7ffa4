#include "kernels/plain/graph/phase_graph.h"

#include <algorithm>
#include <array>

#include "kernels/cuda_check.h"
#include "kernels/phase.h"
#include "kernels/plain/graph/kernels.h"

namespace mkbench::plain {

struct PhaseGraph::Graphs {
  cudaGraphExec_t rows = nullptr;   // a step without the LM head
  cudaGraphExec_t token = nullptr;  // a whole step
  ~Graphs() {
    for (cudaGraphExec_t graph : {rows, token}) {
      if (graph != nullptr) cudaGraphExecDestroy(graph);
    }
  }
};

namespace {

// The kernel before, whose wait has just ended, reads its vector first: its loads would queue behind the next
// kernel's copies (NVIDIA H200, Qwen3-0.6B: 504 us a token, without the pause 522). By the global timer, which steps
// by 32 ns there.
constexpr unsigned kPauseNs = 600;

int attribute(cudaDeviceAttr which, int gpu) {
  int value = 0;
  MKBENCH_CUDA(cudaDeviceGetAttribute(&value, which, gpu));
  return value;
}

// The shared memory of a block that is to share a multiprocessor with one of the kernel before it.
int half_of_shared(int gpu) {
  return std::min(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu),
                  attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, gpu) / 2 -
                      attribute(cudaDevAttrReservedSharedMemoryPerBlock, gpu));
}

LaunchConfig config_of(const GraphKernel& found, int blocks, int row_bytes = 0) {
  return {found.kernel, blocks, found.threads, found.shared_bytes + row_bytes};
}

// The kernel of a phase of a layer.
LaunchConfig layer_launch(Phase phase, const ModelShape& s, int blocks, int gpu) {
  const GraphKernels kernels = graph_kernels_for(s);
  const auto staged = [&](int matrices, int rows, int cols) {
    const int most = matrices * ((rows + blocks - 1) / blocks);
    const LaunchConfig config = config_of(kernels.staged, blocks, 2 * most * cols);
    const bool fits = kernels.staged.kernel != nullptr && most <= kMostStagedRows &&
                      config.shared_bytes <= half_of_shared(gpu);
    return fits ? config : config_of(kernels.registers, blocks);
  };
  switch (phase) {
    case Phase::kQkv:
      return staged(1, s.qkv_width(), s.hidden);
    case Phase::kOProj:
      return staged(1, s.hidden, s.q_width());
    case Phase::kGateUp:
      return staged(2, s.intermediate, s.hidden);
    case Phase::kDown:
      return staged(1, s.hidden, s.intermediate);
    default:
      return config_of(kernels.registers, blocks);
  }
}

// Grants a kernel its shared memory. All kernels ask for the same division of a multiprocessor's memory between L1
// and shared: with another one, a block could not begin before the other kernel's block has ended.
void grant(const GraphKernel& kernel, int shared_bytes) {
  MKBENCH_CUDA(cudaFuncSetAttribute(kernel.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    shared_bytes));
  MKBENCH_CUDA(cudaFuncSetAttribute(kernel.kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                    cudaSharedmemCarveoutMaxShared));
}

// Captures kernels, each of which may begin before the one that was captured before it has ended.
class Capture {
 public:
  explicit Capture(bool overlap) : overlap_(overlap) {
    MKBENCH_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    MKBENCH_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  }
  ~Capture() { cudaStreamDestroy(stream_); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  void launch(const LaunchConfig& launch, Phase phase, int layer) {
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(launch.blocks));
    config.blockDim = dim3(static_cast<unsigned>(launch.threads));
    config.dynamicSmemBytes = static_cast<size_t>(launch.shared_bytes);
    config.stream = stream_;
    config.attrs = &early;
    config.numAttrs = overlap_ && !first_ ? 1 : 0;
    unsigned pause_ns = overlap_ ? kPauseNs : 0;
    void* arguments[] = {&phase, &layer, &pause_ns};
    MKBENCH_CUDA(cudaLaunchKernelExC(&config, launch.kernel, arguments));
    first_ = false;
  }

  cudaGraphExec_t end() const {
    cudaGraph_t graph = nullptr;
    MKBENCH_CUDA(cudaStreamEndCapture(stream_, &graph));
    cudaGraphExec_t executable = nullptr;
    const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    MKBENCH_CUDA(made);
    return executable;
  }

 private:
  const bool overlap_;
  bool first_ = true;
  cudaStream_t stream_ = nullptr;
};

constexpr Phase layer_phase(int i) { return static_cast<Phase>(static_cast<int>(Phase::kQkv) + i); }
// The kernels of a layer's phases, in order.
using LayerLaunches = std::array<LaunchConfig, kPhasesPerLayer>;

cudaGraphExec_t capture(const ModelShape& shape, const LayerLaunches& phases, bool head,
                        bool overlap) {
  const GraphKernels kernels = graph_kernels_for(shape);
  const int blocks = phases[0].blocks;
  Capture capture(overlap);
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int i = 0; i < kPhasesPerLayer; ++i) capture.launch(phases[i], layer_phase(i), layer);
  }
  if (head) capture.launch(config_of(kernels.head, blocks), Phase::kLmHead, shape.layers);
  // Block 0 alone works, but on the grid of the others: gridDim tells it how many blocks have a best row.
  capture.launch(config_of(kernels.registers, blocks), Phase::kCount, shape.layers);
  return capture.end();
}

}  // namespace

LaunchConfig graph_launch(const ModelShape& shape, int blocks) {
  return config_of(graph_kernels_for(shape).registers, blocks);
}

PhaseGraph::PhaseGraph(const ModelShape& shape, int blocks, int gpu, bool overlap)
    : graphs_(std::make_unique<Graphs>()) {
  const GraphKernels kernels = graph_kernels_for(shape);
  grant(kernels.registers, kernels.registers.shared_bytes);
  grant(kernels.head, kernels.head.shared_bytes);
  if (kernels.staged.kernel != nullptr) grant(kernels.staged, half_of_shared(gpu));
  LayerLaunches phases;
  for (int i = 0; i < kPhasesPerLayer; ++i)
    phases[i] = layer_launch(layer_phase(i), shape, blocks, gpu);
  graphs_->rows = capture(shape, phases, false, overlap);
  graphs_->token = capture(shape, phases, true, overlap);
}

PhaseGraph::~PhaseGraph() = default;

void PhaseGraph::launch(const LaunchParams& p) const {
  MKBENCH_CUDA(cudaMemcpyToSymbolAsync(graph_params_symbol(), &p, sizeof p, 0,
                                       cudaMemcpyHostToDevice, nullptr));
  for (int step = 0; step < p.steps; ++step)
    MKBENCH_CUDA(cudaGraphLaunch(step < p.first_output ? graphs_->rows : graphs_->token, nullptr));
}

}  // namespace mkbench::plain
