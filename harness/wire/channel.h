// Messages from a host to its parent: one JSON object a line, over a pipe of their own.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "harness/wire/messages.h"

namespace mkbench {

using TakeMessage = std::function<void(const FromHost&)>;

// Where a host's messages go. send() may be called from several threads.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  virtual void send(const FromHost& message) = 0;
};

// Writes lines to a pipe. Where the parent is gone the process ends.
class PipeSink : public MessageSink {
 public:
  explicit PipeSink(int fd) : fd_(fd) {}
  void send(const FromHost& message) override;

 private:
  int fd_;
  std::mutex mutex_;
};

// Hands messages to a function of the same process (--in-process, tests).
class CallbackSink : public MessageSink {
 public:
  explicit CallbackSink(TakeMessage take) : take_(std::move(take)) {}
  void send(const FromHost& message) override;

 private:
  TakeMessage take_;
  std::mutex mutex_;
};

// Puts bytes of a pipe together into lines and hands on the message of each; Garbage for a line that
// is none.
class LineReader {
 public:
  void feed(const char* data, size_t bytes, const TakeMessage& take);

 private:
  std::string rest_;
};

// Writes all of `text`; false when the other end is gone.
bool write_all(int fd, const std::string& text);

}  // namespace mkbench
