#include "references/base/data_root.h"

#include <cstdlib>
#include <string_view>

#include "references/base/error.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

// Both come from the build; a wheel is built without a source tree's path.
constexpr std::string_view kSourceTree = MKBENCH_SOURCE_DIR, kBuildPython = MKBENCH_BUILD_PYTHON;

std::string variable_or(const char* name, std::string_view otherwise) {
  const char* value = std::getenv(name);
  return std::string(value != nullptr && *value != '\0' ? std::string_view(value) : otherwise);
}

}  // namespace

fs::path program_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error)
    throw Error(ErrorKind::kEnvUnfit, "/proc: " + error.message() + ": mount -t proc proc /proc");
  return program.parent_path();
}

bool is_installed() {
  static const bool installed = fs::exists(program_folder() / "scripts" / "host.py");
  return installed;
}

fs::path data_root() {
  return is_installed() || kSourceTree.empty() ? program_folder() : fs::path(kSourceTree);
}

std::string own_python() {
  return is_installed() ? variable_or("MKBENCH_OWN_PYTHON", kBuildPython)
                        : std::string(kBuildPython);
}

std::string advice_here(const std::string& advice) {
  const bool elsewhere = is_installed() && advice.find("scripts/") != std::string::npos;
  return elsewhere ? "in a clone of mkbench: " + advice : advice;
}

std::string python_of_scripts() { return variable_or("MKBENCH_PYTHON", own_python()); }

}  // namespace mkbench
