#include "harness/plugin/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string_view>

#include "harness/engines/plugin_file.h"

namespace mkbench {
namespace {

constexpr mkbench_abi_sizes kOurs = MKBENCH_ABI_SIZES;
constexpr size_t kLongestName = 40;
constexpr uint32_t kBitsOfV1 = MKBENCH_CAN_LOGITS | MKBENCH_CAN_FORCED;

// In the order in which a library is asked.
constexpr std::array kOffered = {&kOurs, &mkbench_abi_v2_sizes, &mkbench_abi_v1_sizes};

// "3, 2 or 1"
std::string offered_versions(const char* word) {
  return fmt::format("{}, {} {} {}", kOffered[0]->version, kOffered[1]->version, word,
                     kOffered[2]->version);
}

// Checks the sizes that a library says it was compiled with; returns those of mkbench in its
// version.
const mkbench_abi_sizes& check_sizes(const mkbench_abi_sizes& found, const std::string& path) {
  // The version is compared first: in another version the other words may mean something else.
  const auto version = std::find_if(kOffered.begin(), kOffered.end(), [&](const auto* sizes) {
    return sizes->version == found.version;
  });
  if (version == kOffered.end()) {
    refuse_plugin(path, fmt::format("version of the engine ABI: found {}, wanted {}", found.version,
                                    offered_versions("or")));
  }
  const mkbench_abi_sizes& wanted = **version;
  struct Size {
    const char* name;
    uint32_t mkbench_abi_sizes::*member;
  };
  constexpr Size kSizes[] = {{"mkbench_engine_abi", &mkbench_abi_sizes::abi},
                             {"mkbench_model", &mkbench_abi_sizes::model},
                             {"mkbench_tensor", &mkbench_abi_sizes::tensor},
                             {"mkbench_open", &mkbench_abi_sizes::open}};
  for (const Size& size : kSizes) {
    if (found.*size.member == wanted.*size.member) continue;
    refuse_plugin(path, fmt::format("sizeof({}): found {}, wanted {}", size.name,
                                    found.*size.member, wanted.*size.member));
  }
  return wanted;
}

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

// Copies and checks what mkbench_engine_table() returned. The table of an older version is the
// beginning of ours, so what it lacks stays 0 or NULL.
mkbench_engine_abi checked_table(const mkbench_engine_abi* found, const std::string& path) {
  mkbench_engine_abi table{};
  std::memcpy(&table, found, check_sizes(found->sizes, path).abi);
  if (table.sizes.version == mkbench_abi_v1_sizes.version) table.can &= kBitsOfV1;
  check_name(table.name, path);
  check_functions(table, path);
  if (table.precision < MKBENCH_PRECISION_BF16 || table.precision > MKBENCH_PRECISION_LOSSY) {
    refuse_plugin(path, fmt::format("precision: found {}, wanted {} to {}", table.precision,
                                    MKBENCH_PRECISION_BF16, MKBENCH_PRECISION_LOSSY));
  }
  return table;
}

}  // namespace

mkbench_engine_abi load_plugin(const std::string& path) {
  check_plugin_file(path);
  // dlopen() would search the system's library folders for a name without a slash.
  const std::string absolute = std::filesystem::absolute(path).string();
  void* library = dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    refuse_plugin(path,
                  fmt::format("it cannot be loaded: {}", reason != nullptr ? reason : "no reason"));
  }
  void* symbol = dlsym(library, MKBENCH_ENGINE_ABI_SYMBOL);
  if (symbol == nullptr) {
    refuse_plugin(path,
                  fmt::format("exported function: found none, wanted {} of references/engine_abi.h",
                              MKBENCH_ENGINE_ABI_SYMBOL));
  }
  const auto entry = reinterpret_cast<decltype(&mkbench_engine_table)>(symbol);
  const mkbench_engine_abi* table = nullptr;
  for (const mkbench_abi_sizes* sizes : kOffered) {
    if (table == nullptr) table = entry(sizes);
  }
  if (table == nullptr) {
    refuse_plugin(path,
                  fmt::format("it was built for another version of the engine ABI: it refuses "
                              "versions {} of mkbench",
                              offered_versions("and")));
  }
  return checked_table(table, path);
}

}  // namespace mkbench
