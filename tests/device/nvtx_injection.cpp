// A profiler in miniature: NVTX loads this library through NVTX_INJECTION64_PATH, and it appends
// one line per call to the file that MKBENCH_NVTX_LOG names, each beginning with the program's name:
// "domain NAME", "category DOMAIN NUMBER NAME", "push DOMAIN NAME", where there is a payload
// "push DOMAIN NAME, payload 3, category 1", and "pop DOMAIN".
#include <nvtx3/nvToolsExt.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <string>

namespace {

std::mutex mutex;
// Handles are pointers to the names; a deque keeps them where they are.
std::deque<std::string> domains;

void log_line(const std::string& line) {
  const std::scoped_lock lock(mutex);
  const char* path = std::getenv("MKBENCH_NVTX_LOG");
  if (path == nullptr) return;
  std::FILE* file = std::fopen(path, "a");
  if (file == nullptr) return;
  std::fprintf(file, "%s %s\n", program_invocation_short_name, line.c_str());
  std::fclose(file);
}

const std::string& name_of(nvtxDomainHandle_t domain) {
  static const std::string fallback = "default";
  return domain == nullptr ? fallback : *reinterpret_cast<const std::string*>(domain);
}

nvtxDomainHandle_t NVTX_API on_domain_create(const char* name) {
  const std::string* kept = nullptr;
  {
    const std::scoped_lock lock(mutex);
    kept = &domains.emplace_back(name);
  }
  log_line("domain " + *kept);
  return reinterpret_cast<nvtxDomainHandle_t>(const_cast<std::string*>(kept));
}

int NVTX_API on_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  std::string line = "push " + name_of(domain) + " " + event->message.ascii;
  if (event->payloadType == NVTX_PAYLOAD_TYPE_INT32)
    line += ", payload " + std::to_string(event->payload.iValue) + ", category " +
            std::to_string(event->category);
  log_line(line);
  return 0;
}

void NVTX_API on_name_category(nvtxDomainHandle_t domain, uint32_t category, const char* name) {
  log_line("category " + name_of(domain) + " " + std::to_string(category) + " " + name);
}

int NVTX_API on_pop(nvtxDomainHandle_t domain) {
  log_line("pop " + name_of(domain));
  return 0;
}

template <typename Function>
void put(NvtxFunctionTable table, unsigned int size, unsigned int slot, Function function) {
  if (slot < size) *table[slot] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

// NVTX's entry point: 1 = accepted.
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_export_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  if (callbacks == nullptr) return 0;
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  put(table, size, NVTX_CBID_CORE2_DomainCreateA, on_domain_create);
  put(table, size, NVTX_CBID_CORE2_DomainRangePushEx, on_push);
  put(table, size, NVTX_CBID_CORE2_DomainRangePop, on_pop);
  put(table, size, NVTX_CBID_CORE2_DomainNameCategoryA, on_name_category);
  return 1;
}
