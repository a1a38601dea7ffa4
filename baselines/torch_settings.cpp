#include "baselines/torch_settings.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/version.h>

#include <cstdlib>
#include <exception>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>

#include "baselines/eager.h"

namespace mkbench {
namespace {

constexpr const char* kWorkspaceVariable = "CUBLAS_WORKSPACE_CONFIG";
// libtorch reads the first of these that is set.
constexpr const char* kAllocatorVariables[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};

// Extracts "sm_80 sm_90 ..." from libtorch's build description, which quotes its nvcc flags.
std::string architectures_in(const std::string& build_description) {
  static const std::regex pattern("code=(sm_[0-9]+[af]?|compute_[0-9]+[af]?)");
  std::set<std::string> seen;
  std::string list;
  for (std::sregex_iterator it(build_description.begin(), build_description.end(), pattern), end;
       it != end; ++it) {
    const std::string name = (*it)[1];
    if (!seen.insert(name).second) continue;
    list += (list.empty() ? "" : " ") + name;
  }
  return list;
}

// "NAME=value" of the first variable that is set, else empty.
std::string set_in_environment(std::span<const char* const> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) return std::string(name) + "=" + value;
  }
  return "";
}

// `value` is a bool in older versions of libtorch, and in newer ones an enumeration whose first
// value means "allowed".
template <typename T>
bool allows_reduced_precision(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value;
  } else {
    return static_cast<int>(value) == 0;
  }
}

// libtorch's own number of threads, then the wishes of living CpuThreads objects, oldest first.
std::list<int>& thread_wishes() {
  static std::list<int> wishes;
  return wishes;
}

// Extracts "13.0" from "... CUDA_VERSION=13.0, ..."; empty in a build without CUDA.
std::string cuda_version_in(const std::string& build_description) {
  std::smatch match;
  static const std::regex pattern("CUDA_VERSION=([0-9.]+)");
  return std::regex_search(build_description, match, pattern) ? match[1].str() : "";
}

}  // namespace

void pin_torch_settings() {
  // Eight workspaces of 4 MiB: without a fixed size cuBLAS may choose algorithms differently from
  // run to run. A user's own value stays, and eager_settings() shows it.
  setenv(kWorkspaceVariable, ":4096:8", /*overwrite=*/0);
  // A prefill's scores grow with every chunk. Without expandable segments the allocator keeps a
  // block of each size: 20 GiB after 16,384 rows of Qwen3-0.6B. A user's own setting stays.
  if (set_in_environment(kAllocatorVariables).empty())
    setenv(kAllocatorVariables[1], "expandable_segments:True", /*overwrite=*/0);
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(false);
  context.setAllowTF32CuDNN(false);
  // Sums stay in fp32 to the end, also across split-K partial sums.
  context.setAllowBF16ReductionCuBLAS(false);
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  // Filling would add a kernel to every allocation and make eager slower than users see it.
  context.setDeterministicFillUninitializedMemory(false);
}

CpuThreads::CpuThreads(int threads) : held_(threads > 0) {
  if (!held_) return;
  std::list<int>& wishes = thread_wishes();
  if (wishes.empty()) wishes.push_back(at::get_num_threads());
  wish_ = wishes.insert(wishes.end(), threads);
  at::set_num_threads(threads);
}

CpuThreads::~CpuThreads() {
  if (!held_) return;
  std::list<int>& wishes = thread_wishes();
  wishes.erase(wish_);
  if (wishes.back() != at::get_num_threads()) at::set_num_threads(wishes.back());
  if (wishes.size() == 1) wishes.clear();
}

std::string eager_settings() {
  pin_torch_settings();
  at::Context& context = at::globalContext();
  const char* workspace = std::getenv(kWorkspaceVariable);
  std::ostringstream out;
  out << "allow_tf32=" << context.allowTF32CuBLAS()
      << " cudnn_allow_tf32=" << context.allowTF32CuDNN()
      << " allow_bf16_reduced_precision_reduction="
      << allows_reduced_precision(context.allowBF16ReductionCuBLAS())
      << " deterministic_algorithms=" << context.deterministicAlgorithms()
      << " fill_uninitialized_memory=" << context.deterministicFillUninitializedMemory() << " "
      << kWorkspaceVariable << "=" << (workspace ? workspace : "") << " "
      << set_in_environment(kAllocatorVariables) << " attention=eager"
      << " cpu_threads=" << at::get_num_threads();
  return out.str();
}

TorchFacts torch_facts() {
  TorchFacts facts;
  facts.version = TORCH_VERSION;
  facts.cuda_version = cuda_version_in(at::show_config());
  try {
    // showConfig() queries the driver, then returns the nvcc flags with which libtorch was built.
    facts.architectures = architectures_in(at::detail::getCUDAHooks().showConfig());
  } catch (const std::exception&) {  // no driver, or a build without CUDA
  }
  facts.cuda_available = at::hasCUDA();
  return facts;
}

}  // namespace mkbench
