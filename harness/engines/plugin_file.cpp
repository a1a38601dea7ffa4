#include "harness/engines/plugin_file.h"

#include <fmt/format.h>

#include <filesystem>

#include "references/base/error.h"

namespace mkbench {

void refuse_plugin(const std::string& path, const std::string& why) {
  throw Error(ErrorKind::kBadInput, fmt::format("engine {}: {}", path, why));
}

void check_plugin_file(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::is_regular_file(status)) return;
  refuse_plugin(path, std::filesystem::exists(status)
                          ? "file: found something else, wanted a regular file"
                          : "file: found none");
}

}  // namespace mkbench
