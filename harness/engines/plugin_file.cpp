#include "harness/engines/plugin_file.h"

#include <fmt/format.h>

#include <filesystem>

#include "references/base/error.h"
#include "references/base/json_strict.h"
#include "references/base/one_line.h"
#include "references/base/printable.h"

namespace mkbench {

void refuse_plugin(const std::string& path, const std::string& why) {
  throw Error(ErrorKind::kBadInput, fmt::format("engine {}: {}", path, why));
}

std::string engine_name(const std::string& path) {
  const bool is_text =
      find_invalid_utf8(path) == std::string_view::npos && one_line(path, path.size()) == path;
  return is_text ? path : printable(path);
}

std::string engine_path(const std::string& name) {
  std::error_code error;
  if (std::filesystem::exists(name, error)) return name;
  return bytes_of_printable(name).value_or(name);
}

void check_plugin_file(const std::string& name) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(engine_path(name), error);
  if (std::filesystem::is_regular_file(status)) return;
  refuse_plugin(name, std::filesystem::exists(status)
                          ? "file: found something else, wanted a regular file"
                          : "file: found none");
}

}  // namespace mkbench
