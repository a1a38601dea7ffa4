// The errors that calls must end with.
#pragma once

#include <string>

#include "references/base/error.h"
#include "tests/support/catch2.h"

namespace mkbench::testing {

// The one line of the Error of `kind` that `call` ends with; "accepted" where it ends without an error.
template <typename Call>
std::string error_line(ErrorKind kind, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    const std::string message = error.what();
    CHECK(error.kind() == kind);
    CHECK(message.find('\n') == std::string::npos);
    return message;
  }
  return "accepted";
}

template <typename Call>
std::string error_line(const Call& call) {
  return error_line(ErrorKind::kBadInput, call);
}

}  // namespace mkbench::testing
