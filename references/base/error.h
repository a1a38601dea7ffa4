// The one exception type of mkbench. Every failure that a user can cause or must be told about has
// a kind.
#pragma once

#include <stdexcept>
#include <string>

namespace mkbench {

// What went wrong, in the terms that choose a verdict and an exit code (harness/report/verdict.h).
enum class ErrorKind {
  kBadInput,           // usage, model folder, config, weights
  kInvalidReference,   // any defect of a committed or given reference file
  kEnvUnfit,           // memory, toolkit, driver: the machine cannot run this
  kUnsupportedDevice,  // no usable GPU, or none that this binary has code for
  kCuda,               // a CUDA call failed
  kHang,               // a bounded wait ran out (kernel or host twin)
  kIntegrity,          // what must not change has changed: a checksum, a guard, poison
  kRuntime,            // anything else
};

// A one-line message names file, field, found and wanted where they exist.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace mkbench
