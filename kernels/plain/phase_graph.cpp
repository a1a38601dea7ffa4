#include "kernels/plain/phase_graph.h"

#include "kernels/cuda_check.h"
#include "kernels/phase.h"
#include "kernels/plain/graph_kernels.h"

namespace mkbench::plain {

struct PhaseGraph::Graphs {
  cudaGraphExec_t rows = nullptr;   // a step without the LM head
  cudaGraphExec_t token = nullptr;  // a whole step
};

namespace {

class CapturedStream {
 public:
  CapturedStream() {
    MKBENCH_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    MKBENCH_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  }
  ~CapturedStream() { cudaStreamDestroy(stream_); }
  CapturedStream(const CapturedStream&) = delete;
  CapturedStream& operator=(const CapturedStream&) = delete;

  void launch(const LaunchConfig& launch, bool overlap, Phase phase, int layer) const {
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(launch.blocks));
    config.blockDim = dim3(static_cast<unsigned>(launch.threads));
    config.dynamicSmemBytes = static_cast<size_t>(launch.shared_bytes);
    config.stream = stream_;
    config.attrs = &early;
    config.numAttrs = overlap ? 1 : 0;
    void* arguments[] = {&phase, &layer};
    MKBENCH_CUDA(cudaLaunchKernelExC(&config, launch.kernel, arguments));
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
  cudaStream_t stream_ = nullptr;
};

cudaGraphExec_t capture(const LaunchConfig& launch, int layers, bool head, bool overlap) {
  const CapturedStream stream;
  for (int layer = 0; layer < layers; ++layer) {
    for (int i = 0; i < kPhasesPerLayer; ++i) {
      // A step's first kernel has none of its step before it.
      const auto phase = static_cast<Phase>(static_cast<int>(Phase::kQkv) + i);
      stream.launch(launch, overlap && (layer > 0 || i > 0), phase, layer);
    }
  }
  if (head) stream.launch(launch, overlap, Phase::kLmHead, layers);
  stream.launch(launch, overlap, Phase::kCount, layers);
  return stream.end();
}

}  // namespace

PhaseGraph::PhaseGraph(const LaunchConfig& launch, int layers, bool overlap)
    : graphs_(std::make_unique<Graphs>()) {
  graphs_->rows = capture(launch, layers, false, overlap);
  graphs_->token = capture(launch, layers, true, overlap);
}

PhaseGraph::~PhaseGraph() {
  for (cudaGraphExec_t graph : {graphs_->rows, graphs_->token}) cudaGraphExecDestroy(graph);
}

void PhaseGraph::launch(const LaunchParams& p) const {
  MKBENCH_CUDA(cudaMemcpyToSymbolAsync(graph_params_symbol(), &p, sizeof p, 0, cudaMemcpyHostToDevice,
                                       nullptr));
  for (int step = 0; step < p.steps; ++step)
    MKBENCH_CUDA(cudaGraphLaunch(step < p.first_output ? graphs_->rows : graphs_->token, nullptr));
}

}  // namespace mkbench::plain
