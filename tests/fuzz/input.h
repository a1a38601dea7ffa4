// What the fuzz targets share. A target is a file with LLVMFuzzerTestOneInput(), which hands bytes of
// a stranger to one reader. The reader may refuse them with the Error that its header promises;
// another exception, a sanitizer's report or a broken promise about what was accepted ends the
// process, which is what the fuzzer looks for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "references/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace mkbench::fuzz {

// Ends the process with a line on stderr: the reader broke a promise.
[[noreturn]] void broken(const std::string& promise);

inline void expect(bool holds, const char* promise) {
  if (!holds) broken(promise);
}

// One of the target's mutations of JSON, else libFuzzer's own; returns the new size. `prefix`: bytes in
// front of the document, of which the first four are its length where there are any. What follows the
// document stays.
size_t mutate_json(uint8_t* data, size_t size, size_t max_size, unsigned seed, size_t prefix);

// Text that a terminal shows as one line: something, UTF-8, and no control character.
bool is_line(std::string_view text);

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Bytes as a regular file in memory, for readers that take a path.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::filesystem::path path() const;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

// Runs `read`. True where it accepted the input, false where it refused it in one line with one of
// `kinds`.
template <typename Read>
bool accepts(std::initializer_list<ErrorKind> kinds, Read&& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    bool promised = false;
    for (const ErrorKind kind : kinds) promised |= error.kind() == kind;
    if (!promised) broken(std::string("an error of another kind: ") + error.what());
    const std::string_view message = error.what();
    if (!is_line(message)) broken("a message that is no line: " + std::string(message));
  } catch (const std::exception& other) {
    broken(std::string("an exception that is no Error: ") + other.what());
  }
  return false;
}

}  // namespace mkbench::fuzz
