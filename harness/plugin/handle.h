// One engine that a plugin has opened: its functions, and how their calls end.
#pragma once

#include <cstdint>
#include <string>

#include "harness/plugin/engine.h"
#include "references/base/error.h"
#include "references/engine_abi.h"

namespace mkbench {

// A plugin's text, on one line of bounded length; `text` need not be null-terminated.
std::string plugin_text(const char* text);

class PluginHandle {
 public:
  // Loads the library and makes the device current; opens nothing yet. Throws the errors of
  // make_plugin() about files and devices.
  explicit PluginHandle(const PluginOptions& options);
  ~PluginHandle() { close(); }
  PluginHandle(const PluginHandle&) = delete;
  PluginHandle& operator=(const PluginHandle&) = delete;

  // Opens the engine; `arguments` is read during this call, and what it points to must live until
  // close(). Throws the errors of make_plugin() about open().
  void open(const mkbench_open& arguments);
  void close();

  const mkbench_engine_abi* operator->() const { return &abi_; }
  mkbench_engine* get() const { return engine_; }
  bool can(uint32_t bit) const { return (abi_.can & bit) != 0; }
  const std::string& who() const { return who_; }  // "engine x.so", with which errors begin
  const std::string& device() const { return device_; }

  // Throws Error(kind) if a call has failed: "engine x.so: decode failed (1): <the plugin's text>",
  // then the hint.
  void check(const char* function, int32_t status, ErrorKind kind = ErrorKind::kRuntime,
             const std::string& hint = "") const;
  // Waits for the device work of a call, then throws if that work or the call itself has failed.
  void end_call(const char* function, int32_t status, ErrorKind kind = ErrorKind::kRuntime) const;
  // Waits for the work of the device. Throws Error(kCuda).
  void finish_device() const;

 private:
  const std::string who_;
  const bool cuda_;
  const mkbench_engine_abi abi_;
  const std::string device_;
  mkbench_engine* engine_ = nullptr;
};

}  // namespace mkbench
