// load_probe FOLDER: loads a model folder and prints the outcome. The program links neither
// libtorch nor CUDA, so that it runs under tight limits.
//   Exit 0 and "loaded SHA256" on stdout, or exit 2 and a one-line message on stderr; any other end
//   is a defect.
//   --shrink-to BYTES FOLDER   opens the folder's model.safetensors, truncates it, then reads its
//                              tensors
//   --judge FOLDER...          prints one JSON line a folder: what the loader and what inspect_model()
//                              make of it
//   --headers FILE...          prints one JSON line a file: its tensors, or the message
//   --limited ...              the same under tight limits, with stderr on stdout
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "references/base/error.h"
#include "references/inspection.h"
#include "references/safetensors.h"
#include "references/snapshot.h"

namespace {

// Largest allocation that a file of a few kilobytes may cause, whatever its header claims.
constexpr std::size_t kLargestAllocation = 64 << 20;
constexpr int kAllocationExit = 98;

void* allocate(std::size_t bytes) {
  if (bytes > kLargestAllocation) {
    constexpr char kText[] = "load_probe: allocation over 64 MiB\n";
    if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) _exit(kAllocationExit + 1);
    _exit(kAllocationExit);
  }
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace mkbench {
namespace {

void load(const std::string& folder) {
  const ModelWeights weights = load_folder(folder, folder);
  // The views must be readable too: hashed through them, the weights must have the hash of the
  // loader's own pass.
  if (hash_weights(weights) != weights.sha256)
    throw Error(ErrorKind::kRuntime, "views and file differ");
  std::cout << "loaded " << weights.sha256 << "\n";
}

void read_after_shrinking(const std::string& folder, off_t bytes) {
  const std::filesystem::path path = std::filesystem::path(folder) / "model.safetensors";
  const SafetensorsFile file(path);
  if (truncate(path.c_str(), bytes) != 0)
    throw Error(ErrorKind::kRuntime, "cannot truncate " + path.string());
  for (const TensorEntry& tensor : file.header().tensors) {
    std::vector<std::byte> bytes_read(static_cast<size_t>(tensor.bytes()));
    file.read(tensor, 0, bytes_read);
  }
  file.check_unchanged();
  std::cout << "loaded\n";
}

nlohmann::json judge(const std::string& folder) {
  nlohmann::json result = {{"refusal", ""}, {"findings", nlohmann::json::array()}};
  try {
    const ModelWeights weights = load_folder(folder, folder);
    result["sha256"] = hash_weights(weights);
    result["notes"] = weights.notes;
  } catch (const Error& error) {
    result["refusal"] = error.what();
  }
  try {
    for (const ModelFinding& f : inspect_model({nullptr, folder, folder, {}}, true).findings)
      result["findings"].push_back({{"severity", enum_text(f.severity)},
                                    {"field", f.field},
                                    {"found", f.found},
                                    {"text", f.text}});
  } catch (const Error& error) {
    result["findings"].push_back({{"severity", "fatal"}, {"field", ""}, {"text", error.what()}});
  }
  return result;
}

nlohmann::json describe_header(const std::string& path) {
  try {
    const SafetensorsFile file(path);
    nlohmann::json tensors = nlohmann::json::object();
    for (const TensorEntry& t : file.header().tensors) {
      tensors[t.name] = {
          {"dtype", t.dtype}, {"shape", t.shape}, {"begin", t.begin}, {"end", t.end}};
    }
    return {{"tensors", tensors}};
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

constexpr rlim_t kAddressSpace = 256 << 20;
// Numbers of linux/capability.h: without these two capabilities, root reads only what the modes of
// its files allow.
constexpr int kCapDacOverride = 1, kCapDacReadSearch = 2;

// Runs this program again without its first argument.
int run_limited(char* argv[]) {
  dup2(STDOUT_FILENO, STDERR_FILENO);
#ifndef __SANITIZE_ADDRESS__  // ASan reserves terabytes of address space for its shadow
  const rlimit limit{kAddressSpace, kAddressSpace};
  setrlimit(RLIMIT_AS, &limit);
#endif
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  prctl(PR_CAPBSET_DROP, kCapDacOverride);
  prctl(PR_CAPBSET_DROP, kCapDacReadSearch);
  execv("/proc/self/exe", argv + 1);
  return 127;
}

int run(const std::vector<std::string>& arguments) {
  try {
    if (arguments.size() == 1) {
      load(arguments[0]);
    } else if (arguments.size() == 3 && arguments[0] == "--shrink-to") {
      read_after_shrinking(arguments[2], std::stol(arguments[1]));
    } else if (arguments.size() > 1 && arguments[0] == "--headers") {
      for (size_t i = 1; i < arguments.size(); ++i)
        std::cout << describe_header(arguments[i]).dump() << "\n";
    } else if (arguments.size() > 1 && arguments[0] == "--judge") {
      for (size_t i = 1; i < arguments.size(); ++i) std::cout << judge(arguments[i]).dump() << "\n";
    } else {
      std::cerr << "usage: load_probe [--shrink-to BYTES] FOLDER | --headers FILE... | --judge "
                   "FOLDER...\n";
      return 1;
    }
    return 0;
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return error.kind() == ErrorKind::kBadInput ? 2 : 1;
  }
}

}  // namespace
}  // namespace mkbench

int main(int argc, char* argv[]) {
  if (argc > 1 && std::string(argv[1]) == "--limited") return mkbench::run_limited(argv);
  return mkbench::run(std::vector<std::string>(argv + 1, argv + argc));
}
