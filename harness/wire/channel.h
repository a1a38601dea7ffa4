// Messages from a worker to its parent: one JSON object a line, over a pipe of their own.
#pragma once

#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

namespace mkbench {

// Where a worker's messages go. send() may be called from several threads.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  virtual void send(const nlohmann::json& message) = 0;
};

// Writes lines to a pipe. A parent that is gone ends the worker: there is nobody to work for.
class PipeSink : public MessageSink {
 public:
  explicit PipeSink(int fd) : fd_(fd) {}
  void send(const nlohmann::json& message) override;

 private:
  int fd_;
  std::mutex mutex_;
};

// Hands messages to a function of the same process (--in-process, tests).
class CallbackSink : public MessageSink {
 public:
  explicit CallbackSink(std::function<void(const nlohmann::json&)> take) : take_(std::move(take)) {}
  void send(const nlohmann::json& message) override;

 private:
  std::function<void(const nlohmann::json&)> take_;
  std::mutex mutex_;
};

// Puts bytes of a pipe together into lines. A line that is no JSON object becomes a "garbage"
// message.
class LineReader {
 public:
  void feed(const char* data, size_t bytes, const std::function<void(const nlohmann::json&)>& take);

 private:
  std::string rest_;
};

// Writes all of `text`; false when the other end is gone.
bool write_all(int fd, const std::string& text);

}  // namespace mkbench
