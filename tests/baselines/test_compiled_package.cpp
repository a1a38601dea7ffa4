// Where the package of `compiled` comes from. Programs that stand in for Python make it.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "baselines/compiled_package.h"
#include "tests/support/catch2.h"
#include "tests/support/micro_model.h"
#include "tests/support/scoped_variable.h"
#include "tests/support/thrown.h"

using namespace mkbench;
using namespace mkbench::testing;

namespace fs = std::filesystem;

namespace {

PackageKey tiny_key() {
  return {.shape = kTiny,
          .eps = 1e-6,
          .cuda = false,
          .gpu = 0,
          .architecture = "flags: a b",
          .torch_version = "2.11.0",
          .torch_cuda_version = "13.0"};
}

// The message of the Error(kNotBuilt) that compiled_package() throws.
std::string not_built() {
  return error_line(ErrorKind::kNotBuilt, [] { compiled_package(tiny_key()); });
}

// A program that stands in for Python: $OUT is the package that was asked for.
fs::path fake_python(const fs::path& folder, const std::string& body) {
  const fs::path path = folder / "python";
  std::ofstream(path)
      << "#!/bin/sh\nwhile [ $# -gt 0 ]; do [ \"$1\" = --out ] && OUT=\"$2\"; shift; done\n"
      << body << '\n';
  chmod(path.c_str(), 0755);
  return path;
}

size_t files_in(const fs::path& folder) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("a package that cannot be built says what was missing") {
  const TemporaryFolder folder;
  const ScopedVariable cache("XDG_CACHE_HOME", folder.path().c_str());
  const fs::path packages = folder.path() / "mkbench" / "compiled";
  SECTION("no Python") {
    const ScopedVariable python("MKBENCH_PYTHON", "/nowhere/python3");
    CHECK_THAT(not_built(),
               ContainsText("cannot run /nowhere/python3 (MKBENCH_PYTHON): No such file"));
    CHECK(files_in(packages) == 0);
  }
  SECTION("a tool of the script's") {
    const ScopedVariable python(
        "MKBENCH_PYTHON",
        fake_python(folder.path(), "echo first; echo 'compile_step.py: found no tool' >&2; exit 3")
            .c_str());
    CHECK(not_built() == "compiled: it cannot be built here: found no tool");
    CHECK(files_in(packages) == 0);
  }
  SECTION("a compilation that fails") {
    const ScopedVariable python(
        "MKBENCH_PYTHON",
        fake_python(folder.path(), "echo begun; echo 'Error: no code'; echo; exit 1").c_str());
    const std::string why = not_built();
    CHECK_THAT(why, ContainsText("compile_step.py left with exit status 1: Error: no code"));
    const std::string log = why.substr(why.rfind(' ') + 1);
    std::string first;
    std::getline(std::ifstream(log) >> std::ws, first);
    CHECK(first == "begun");
    CHECK(files_in(packages) == 1);
  }
  SECTION("a script that dies, and one that makes nothing") {
    {
      const ScopedVariable python("MKBENCH_PYTHON",
                                  fake_python(folder.path(), "kill -9 $$").c_str());
      CHECK_THAT(not_built(), ContainsText("died by signal 9: no output"));
    }
    const ScopedVariable python("MKBENCH_PYTHON", fake_python(folder.path(), "exit 0").c_str());
    CHECK_THAT(not_built(), ContainsText("made no "));
  }
  SECTION("no folder for it") {
    const ScopedVariable nowhere("XDG_CACHE_HOME", nullptr), home("HOME", nullptr);
    CHECK_THAT(not_built(), ContainsText("HOME: found it unset"));
  }
}

TEST_CASE("a package is built once for all that decides what it holds") {
  const TemporaryFolder folder;
  const ScopedVariable cache("XDG_CACHE_HOME", folder.path().c_str());
  const ScopedVariable python(
      "MKBENCH_PYTHON",
      fake_python(folder.path(),
                  "echo x >> '" + (folder.path() / "runs").string() + "'; echo package > \"$OUT\"")
          .c_str());
  const fs::path first = compiled_package(tiny_key());
  CHECK(compiled_package(tiny_key()) == first);
  PackageKey other_card = tiny_key();
  other_card.gpu = 1;
  CHECK(compiled_package(other_card) == first);
  CHECK(fs::file_size(folder.path() / "runs") == 2);  // "x\n"
  const auto place = [](void (*change)(PackageKey&)) {
    PackageKey key = tiny_key();
    change(key);
    return compiled_package(key);
  };
  const std::vector<fs::path> others = {
      place([](PackageKey& k) { k.eps = 1e-5; }),
      place([](PackageKey& k) { k.cuda = true; }),
      place([](PackageKey& k) { k.shape.layers = 5; }),
      place([](PackageKey& k) { k.shape.vocab = 260; }),
      place([](PackageKey& k) { k.architecture = "flags: a b c"; }),
      place([](PackageKey& k) { k.torch_version = "2.11.1"; }),
      place([](PackageKey& k) { k.torch_cuda_version = "12.8"; })};
  for (size_t i = 0; i < others.size(); ++i) {
    CHECK(others[i] != first);
    for (size_t j = 0; j < i; ++j) CHECK(others[i] != others[j]);
  }
  CHECK(fs::file_size(folder.path() / "runs") == 2 * (1 + others.size()));
}
