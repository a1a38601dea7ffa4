// Messages from a host to its parent: one JSON object a line, over a pipe that carries nothing
// else.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "harness/wire/messages.h"

namespace mkbench {

using TakeMessage = std::function<void(const FromHost&)>;

// Takes the messages of a host. send() may be called from several threads.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  virtual void send(const FromHost& message) = 0;
};

// Writes messages as lines to a pipe. The process ends when the parent is gone.
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

// Cuts the bytes of a pipe into lines and hands on the message of each line; a line that is no
// message becomes Garbage.
class LineReader {
 public:
  void feed(const char* data, size_t bytes, const TakeMessage& take);

 private:
  std::string rest_;
};

// Writes all of `text`; false when the other end is gone.
bool write_all(int fd, const std::string& text);

}  // namespace mkbench
