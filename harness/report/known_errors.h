// Messages of CUDA, the driver, torch, pip and containers that can prevent the first run on a
// rented machine: what each means, and what to type. doctor, failing runs, `mkbench list errors`
// and docs/troubleshooting.md read this table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "references/base/error.h"

namespace mkbench {

// A row of known_errors.json.
struct KnownError {
  std::string name;         // "no-kernel-image"; unique
  std::string error_class;  // what has to change: "wheel", "CUDA", "driver", "image", "memory",
                            // "model", or "system": what the system permits
  std::string message;      // as the user sees it, in one line
  std::vector<std::string> parts;  // any of them identifies the message, in upper or lower case
  std::string cause;               // one sentence without its full stop
  std::string command;             // what to type
};

// PyPI's wheel of this version is built for CUDA 12.8: it has code for sm_70 to sm_120, and drivers
// of version 570 and later run it.
inline constexpr std::string_view kTorchRequirement = "torch==2.9.1";

// In the order in which they are tried: more specific rows stand before more general ones.
std::span<const KnownError> known_errors();

// The first row one of whose parts occurs in `text`; null if there is none.
const KnownError* find_known_error(std::string_view text);

// The kind of an engine's failure: ENV_UNFIT if the system did not permit what it tried, else `kind`.
ErrorKind kind_of(ErrorKind kind, std::string_view text);

// "wheel: <cause>; try: <command>", in one line.
std::string advice_text(const KnownError& error);

// A line "advice: ..." for each row that is found in one of the texts, each row once. A message of
// mkbench that already says what to do gets none.
std::vector<std::string> advice_lines(const std::vector<std::string>& texts);

// The table as Markdown: message, class, cause, command.
std::string render_known_errors();

}  // namespace mkbench
