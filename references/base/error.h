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
  kUnsupportedDevice,  // no usable GPU, or no code in this binary for the GPU
  kCuda,               // a CUDA call failed
  kHang,               // a bounded wait timed out, or a call made no progress
  kTimeout,            // a call made progress, but did not end in its time
  kIntegrity,          // protected data has changed: a checksum, a guard, poison
  kRuntime,            // anything else
  kNotBuilt,           // an optional engine cannot be made on this machine, and is skipped
};

// The message is one line; it names file, field, found and wanted value where they exist.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Refuses a file or a field of one: "<where>: <what>".
[[noreturn]] inline void bad_input(const std::string& where, const std::string& what) {
  throw Error(ErrorKind::kBadInput, where + ": " + what);
}

}  // namespace mkbench
