#include "harness/engines/registry.h"

#include <algorithm>

#include "harness/engines/plugin_file.h"
#include "references/base/data_root.h"

namespace mkbench {
namespace {

using enum PrecisionClass;

constexpr char kHfSettings[] = "SDPA attention, all else as PyTorch has it; reports say how";

constexpr EngineRow kRows[] = {
    {.name = kRingName,
     .help = "one launch, weights stream through shared memory (sm_90 and later, not every "
             "model)",
     .host = HostKind::kCuda,
     .precision = kFp32Accumulate,
     .roles = kCandidate,
     .cuda = true},
    {.name = "plain",
     .help = "one cooperative launch decodes n tokens (sm_80 and later)",
     .host = HostKind::kCuda,
     .precision = kFp32Accumulate,
     .roles = kCandidate,
     .cuda = true},
    {.name = "host-twin",
     .help = "plain's schedule as tasks on CPU threads",
     .host = HostKind::kCuda,
     .precision = kFp32Accumulate,
     .roles = kCandidate,
     .cpu = true},
    {.name = kJudgeName,
     .help = "libtorch, op by op, in Hugging Face's order and rounding",
     .settings = "TF32 off, reduced-precision bf16 reductions off, cuBLAS workspace fixed",
     .host = HostKind::kTorch,
     .precision = kBf16,
     .roles = kYardstick | kJudge,
     .cuda = true,
     .cpu = true},
    {.name = "graph",
     .help = "eager with attention over buckets of KV rows, some operators fused, and one CUDA "
             "graph for each token",
     .host = HostKind::kTorch,
     .precision = kBf16,
     .roles = kCandidate | kYardstick,
     .cuda = true},
    {.name = "graph-serial",
     .help = "one CUDA graph for each token, of plain's phases as kernels (sm_90 and later)",
     .host = HostKind::kCuda,
     .precision = kFp32Accumulate,
     .roles = kCandidate | kYardstick,
     .cuda = true},
    {.name = "graph-pdl",
     .help =
         "graph-serial whose kernels begin while the one before runs, and request their weights "
         "(programmatic dependent launch; sm_90 and later)",
     .host = HostKind::kCuda,
     .precision = kFp32Accumulate,
     .roles = kCandidate | kYardstick,
     .cuda = true},
    {.name = "compiled",
     .help = "eager's step compiled by AOTInductor on first use, on a GPU inside a CUDA graph; "
             "skipped where it cannot be built",
     .host = HostKind::kTorch,
     .precision = kBf16,
     .roles = kCandidate | kYardstick,
     .cuda = true,
     .cpu = true,
     .compiles = true},
    {.name = kHfName,
     .help = "Hugging Face transformers with its growing KV cache, one forward pass for each "
             "token; skipped where Python lacks transformers",
     .settings = kHfSettings,
     .host = HostKind::kPython,
     .precision = kBf16,
     .roles = kCandidate | kYardstick | kJudge,
     .file = "baselines/hf_decoder.py",
     .cuda = true,
     .cpu = true},
    {.name = kHfStaticName,
     .help = "hf with transformers' static KV cache, on a GPU one CUDA graph for each token",
     .settings = kHfSettings,
     .host = HostKind::kPython,
     .precision = kBf16,
     .roles = kCandidate | kYardstick,
     .file = "baselines/hf_static_decoder.py",
     .cuda = true,
     .cpu = true},
    {.name = kCeilingName,
     .help = "reads a copy of the weights and KV rows and does nothing else; takes part in "
             "decode tests on a GPU that read far more than L2 holds",
     .host = HostKind::kCuda,
     .precision = kBf16,
     .roles = kCeiling,
     .cuda = true},
};

}  // namespace

std::span<const EngineRow> engine_rows() { return kRows; }

const EngineRow* find_engine(std::string_view name) {
  const auto* found = std::find_if(std::begin(kRows), std::end(kRows),
                                   [&](const EngineRow& r) { return r.name == name; });
  return found == std::end(kRows) ? nullptr : found;
}

bool rounds_logits(std::string_view name) {
  const EngineRow* row = find_engine(name);
  return row != nullptr && row->precision == kBf16;
}

PrecisionClass precision_of(std::string_view name, const EngineCapabilities& told) {
  const EngineRow* row = find_engine(name);
  return row != nullptr ? row->precision : told.precision;
}

std::vector<std::string> engine_names(Role role) {
  std::vector<std::string> names;
  for (const EngineRow& row : kRows) {
    if ((row.roles & role) != 0) names.emplace_back(row.name);
  }
  return names;
}

HostKind host_kind(const std::string& engine) {
  const EngineRow* row = find_engine(run_of(engine).engine);
  if (row != nullptr) return row->host;
  return is_python_engine(engine) ? HostKind::kPython : HostKind::kCuda;
}

std::string resolve_engine(const std::string& name, bool ring_runs) {
  if (name != kMegakernel) return name;
  return ring_runs ? kRingName : "plain";
}

std::string default_engine(bool cuda, bool outline) {
  return outline ? kHfStaticName : cuda ? kMegakernel : "host-twin";
}

EngineRun run_of(const std::string& name) {
  using enum EngineRequest::Precision;
  for (const std::string& judge : engine_names(kJudge)) {
    if (name == truth_run(judge)) return {judge, kFp32};
    if (name == head_fp32_run(judge)) return {judge, kHeadFp32};
  }
  return {name};
}

EngineRequest in_host(EngineRequest request) {
  const EngineRun run = run_of(request.name);
  const EngineRow* row = find_engine(run.engine);
  request.precision = run.precision;
  if (row != nullptr && !row->file.empty()) request.name = (data_root() / row->file).string();
  return request;
}

}  // namespace mkbench
