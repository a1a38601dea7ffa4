// The error that a call throws, for one check of its kind and its words.
#pragma once

#include <string>

#include "references/base/error.h"

namespace mkbench::testing {

struct Thrown {
  ErrorKind kind = ErrorKind::kRuntime;
  std::string message = "nothing was thrown";
  bool says(const std::string& part) const { return message.find(part) != std::string::npos; }
};

template <typename Work>
Thrown thrown_by(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return {error.kind(), error.what()};
  }
  return {};
}

}  // namespace mkbench::testing
