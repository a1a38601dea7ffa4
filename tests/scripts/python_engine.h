// What the tests of engines in Python share: a small model, an engine's file, and its host.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "harness/hosts/hosts.h"
#include "references/snapshot.h"
#include "tests/support/micro_model.h"

namespace mkbench {

namespace fs = std::filesystem;

inline const fs::path kRoot = MKBENCH_SOURCE_DIR;

// A model of six ids, an engine's file, and a host that holds an engine of it.
struct PythonEngine {
  // `body`: lines of a class that is the counting engine otherwise; none: the engine itself.
  explicit PythonEngine(const std::string& body = "", double timeout_s = 20)
      : hosts(start_processes(), timeout_s) {
    unsetenv("PYTHONUNBUFFERED");  // by which the host's own buffers would not show
    unsetenv("PYTHONDONTWRITEBYTECODE");
    fs::create_directory(folder.path() / "model");
    testing::write_micro_model(folder.path() / "model");
    request.name = kRoot / "tests/engines/counting.py";
    request.max_context = 40;
    if (!body.empty()) {
      write("import ctypes, math, os, sys, time\nsys.path.append('" +
            (kRoot / "tests/engines").string() + "')\nimport counting\n\n\n" +
            "class Engine(counting.Counting):\n    name = 'altered'\n" + body +
            "\n\nmake_engine = Engine\n");
    }
  }
  void write(const std::string& text) {
    request.name = folder.path() / "altered.py";
    testing::write_file(request.name, text);
  }
  Engine& open() {
    weights = load_folder(folder.path() / "model", "micro");
    engine = hosts.open(request, weights);
    return *engine;
  }
  HostEngine& proxy() { return dynamic_cast<HostEngine&>(*engine); }

  testing::TemporaryFolder folder;
  Hosts hosts;
  EngineRequest request;
  ModelWeights weights;
  std::unique_ptr<Engine> engine;
};

// The error that a call ends with.
template <typename Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorKind::kRuntime, "nothing was thrown"};
}

// What the counting engine emits after `ids`.
inline int32_t mix(const std::vector<int32_t>& ids) {
  int64_t sum = 0;
  for (size_t at = 0; at < ids.size(); ++at) sum += static_cast<int64_t>(at + 1) * (ids[at] + 7);
  return static_cast<int32_t>(sum % 6);
}

}  // namespace mkbench
