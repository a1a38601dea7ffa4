// The error that a call throws, for one check of its kind and its words.
#pragma once

#include <optional>
#include <string>

#include "references/base/error.h"
#include "tests/support/catch2.h"

namespace mkbench::testing {

struct Thrown {
  std::optional<ErrorKind> kind;  // empty: nothing was thrown
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

// The one line of the Error of `kind` that `call` ends with; "accepted" where it ends without an error.
template <typename Call>
std::string error_line(ErrorKind kind, const Call& call) {
  const Thrown thrown = thrown_by(call);
  if (!thrown.kind) return "accepted";
  CHECK(thrown.kind == kind);
  CHECK(!thrown.says("\n"));
  return thrown.message;
}

template <typename Call>
std::string error_line(const Call& call) {
  return error_line(ErrorKind::kBadInput, call);
}

}  // namespace mkbench::testing
