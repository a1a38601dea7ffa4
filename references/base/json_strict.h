// A strict JSON reader on top of nlohmann, which by itself accepts duplicate keys, byte order marks
// and NUL as the end of input, and turns integers over 64 bits into doubles.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace mkbench {

// Bounds on the memory that a document makes the reader allocate: a hostile document ends in an
// Error, not in swap.
struct JsonLimits {
  size_t bytes = 1 << 20;
  int depth = 32;
  size_t keys = 1 << 16;    // over the whole document
  size_t values = 1 << 20;  // over the whole document
};

// Parses `text`; every message starts with `where` (a path, or a path and a part of the file).
// Besides errors of grammar the parser refuses, with the byte offset or the key: a BOM, ill-formed
// UTF-8, NUL bytes, duplicate keys, integers outside 64 bits (never rounded to a double), and
// documents over `limits`. Throws Error(kBadInput).
nlohmann::json parse_json_strict(std::string_view text, const std::string& where,
                                 const JsonLimits& limits = {});

// Reads a regular file of at most limits.bytes and parses it. Throws Error(kBadInput), with errno's
// text if the file cannot be read.
nlohmann::json read_json_strict(const std::filesystem::path& path, const JsonLimits& limits = {});

// Reads a regular file of at most `max_bytes`. A directory, FIFO or device is refused without
// waiting for it.
std::string read_small_file(const std::filesystem::path& path, size_t max_bytes);

// The first ill-formed byte of `text` as UTF-8 (RFC 3629), or npos.
size_t find_invalid_utf8(std::string_view text);

// `text` in single quotes for a one-line message: control characters are escaped, and the text is
// cut after about `max_bytes`, between two characters.
std::string in_quotes(std::string_view text, size_t max_bytes = 120);

// Describes a JSON value for a message: scalars as written, containers by kind and size.
std::string describe(const nlohmann::json& value);

}  // namespace mkbench
