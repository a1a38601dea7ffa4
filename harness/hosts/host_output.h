// What a host prints: forwarded to this process's stderr, and its last words for messages.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace mkbench {

// A file without a name, so that a host that prints waits for nobody, and its last words are still
// there after its death.
class HostOutput {
 public:
  HostOutput();
  ~HostOutput();
  HostOutput(const HostOutput&) = delete;
  HostOutput& operator=(const HostOutput&) = delete;

  int fd() const { return fd_; }  // -1 if the file could not be made
  // Copies to stderr what has come since the last time.
  void forward();
  // Forwards; last_words() begins here.
  void begin_call();
  // Forwards; "; its last words: " and last_words_of() what has come since begin_call(), or nothing.
  std::string last_words();
  void close_file();

 private:
  int fd_;
  off_t forwarded_ = 0, call_ = 0, freed_ = 0;
};

// The first 600 bytes of a file, as one line.
std::string file_start(int fd);

// One line: what a sanitizer has found, where `text` has a line of one, else the last two lines that
// are not blank.
std::string last_words_of(std::string_view text);

}  // namespace mkbench
