#include "harness/plugin/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string_view>

#include "harness/engines/plugin_file.h"
#include "references/base/file_form.h"

namespace mkbench {
namespace {

constexpr size_t kLongestName = 40;
constexpr const char* kWayOut = "compile it against this mkbench's references/engine_abi.h";

void check_name(const char* name, const std::string& path) {
  const std::string_view text = name == nullptr ? "" : name;
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  };
  if (!text.empty() && text.size() <= kLongestName &&
      std::all_of(text.begin(), text.end(), allowed)) {
    return;
  }
  std::string shown(text.substr(0, kLongestName));
  std::replace_if(shown.begin(), shown.end(), std::not_fn(allowed), '?');
  refuse_plugin(
      path, fmt::format("name: found '{}', wanted 1 to {} of letters, digits, '.', '_', '-'", shown,
                        kLongestName));
}

void check_functions(const mkbench_engine_abi& table, const std::string& path) {
  struct Function {
    const char* name;
    bool there;
  };
  const Function functions[] = {{"open", table.open != nullptr},
                                {"close", table.close != nullptr},
                                {"reset", table.reset != nullptr},
                                {"prefill", table.prefill != nullptr},
                                {"decode", table.decode != nullptr}};
  for (const Function& function : functions) {
    if (!function.there) {
      refuse_plugin(path, fmt::format("function {}: found NULL, wanted a function", function.name));
    }
  }
}

// Copies and checks what mkbench_engine_table() returned.
mkbench_engine_abi checked_table(const mkbench_engine_abi* found, const std::string& path) {
  if (found == nullptr) refuse_plugin(path, "table: found NULL, wanted a table");
  if (found->version != MKBENCH_ENGINE_ABI_VERSION) {
    refuse_plugin(path, fmt::format("version of the engine ABI: found {}, wanted {}: {}",
                                    found->version, MKBENCH_ENGINE_ABI_VERSION, kWayOut));
  }
  // A table may end before optional functions; one that ends here has not set its size.
  if (found->size < offsetof(mkbench_engine_abi, decode))
    refuse_plugin(path,
                  fmt::format("size: found {}, wanted sizeof(mkbench_engine_abi)", found->size));
  const mkbench_engine_abi table = mkbench_own(found);
  check_name(table.name, path);
  check_functions(table, path);
  if (table.precision < MKBENCH_PRECISION_BF16 || table.precision > MKBENCH_PRECISION_FP16) {
    refuse_plugin(path, fmt::format("precision: found {}, wanted {} to {}", table.precision,
                                    MKBENCH_PRECISION_BF16, MKBENCH_PRECISION_FP16));
  }
  return table;
}

// The beginning of a file; shorter if the file is.
std::string head_of(const std::string& path) {
  std::string head(kFormBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(file.gcount()));
  return head;
}

// What keeps a file from being a library of this machine; empty for one that dlopen() may try. It maps
// a library that was cut off, and the process dies where it reads the missing pages.
std::string no_library(const std::string& path) {
  const std::string head = head_of(path);
  ElfW(Ehdr) found{}, own{};
  if (!head.starts_with(ELFMAG) || head.size() < sizeof found) {
    const std::string form = file_form(head);
    return "no shared library" + (form.empty() ? "" : ": " + form);
  }
  std::memcpy(&found, head.data(), sizeof found);
  std::memcpy(&own, head_of("/proc/self/exe").data(), sizeof own);
  if (found.e_machine != own.e_machine)
    return fmt::format("it is built for another processor (ELF machine {}, this one is {})",
                       found.e_machine, own.e_machine);
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  const uint64_t whole = found.e_shoff + uint64_t{found.e_shentsize} * found.e_shnum;
  if (!error && bytes < whole)
    return fmt::format("it is cut off: {} bytes, its header tells of {}", bytes, whole);
  return {};
}

// dlopen()'s reason, with the way out where a library that it needs is not found.
std::string why_not_loaded(const std::string& path, std::string_view reason) {
  const bool names_it = reason.find(path) != std::string_view::npos;
  if (names_it || reason.find("cannot open shared object file") == std::string_view::npos)
    return std::string(reason);
  return fmt::format(
      "{} (a library that it needs: add its folder to LD_LIBRARY_PATH, or link with -Wl,-rpath)",
      reason);
}

}  // namespace

mkbench_engine_abi load_plugin(const std::string& path) {
  check_plugin_file(path);
  // dlopen() would search the system's library folders for a name without a slash.
  const std::string absolute = std::filesystem::absolute(engine_path(path)).string();
  if (const std::string problem = no_library(absolute); !problem.empty())
    refuse_plugin(path, "it cannot be loaded: " + problem);
  void* library = dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    refuse_plugin(path, "it cannot be loaded: " +
                            why_not_loaded(absolute, reason != nullptr ? reason : "no reason"));
  }
  void* symbol = dlsym(library, MKBENCH_ENGINE_ABI_SYMBOL);
  if (symbol == nullptr) {
    refuse_plugin(path,
                  fmt::format("exported function: found none, wanted {} of references/engine_abi.h",
                              MKBENCH_ENGINE_ABI_SYMBOL));
  }
  const auto entry = reinterpret_cast<decltype(&mkbench_engine_table)>(symbol);
  return checked_table(entry(), path);
}

}  // namespace mkbench
