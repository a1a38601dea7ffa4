// Converts libtorch's exceptions to mkbench's. Only for .cpp files of this folder, which include
// ATen first, so that no other file includes libtorch.
#pragma once

#include <new>
#include <string>

#include "references/base/error.h"

namespace mkbench {

inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Runs `work` and converts libtorch's exceptions to an Error with one line of text, which begins
// with the engine's name.
template <typename Work>
auto translate_errors(const std::string& name, Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const c10::OutOfMemoryError& e) {
    throw Error(ErrorKind::kEnvUnfit, name + ": " + first_line(e.what_without_backtrace()));
  } catch (const c10::Error& e) {
    const std::string line = first_line(e.what_without_backtrace());
    const auto says = [&line](const char* part) { return line.find(part) != std::string::npos; };
    ErrorKind kind = ErrorKind::kRuntime;
    if (says("no kernel image")) {
      kind = ErrorKind::kUnsupportedDevice;
    } else if (says("can't allocate memory")) {  // libtorch's CPU allocator
      kind = ErrorKind::kEnvUnfit;
    } else if (says("CUDA")) {
      kind = ErrorKind::kCuda;
    }
    throw Error(kind, name + ": " + line);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::kEnvUnfit, name + ": out of host memory");
  }
}

}  // namespace mkbench
