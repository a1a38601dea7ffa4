#include "harness/wire/channel.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace mkbench {

bool write_all(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

void PipeSink::send(const FromHost& message) {
  // Texts of other libraries may hold bytes that are not UTF-8; a message about a failure must not
  // fail itself.
  const std::string line =
      to_json(message).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const std::lock_guard lock(mutex_);
  if (!write_all(fd_, line)) _exit(1);
}

void CallbackSink::send(const FromHost& message) {
  const std::lock_guard lock(mutex_);
  take_(message);
}

void LineReader::feed(const char* data, size_t bytes, const TakeMessage& take) {
  rest_.append(data, bytes);
  size_t begin = 0;
  for (size_t end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', begin)) {
    const std::string line = rest_.substr(begin, end - begin);
    begin = end + 1;
    const nlohmann::json j = nlohmann::json::parse(line, nullptr, false);
    take(j.is_object() ? message_from_json(j)
                       : FromHost(Garbage{line.substr(0, 200), "found no JSON object"}));
  }
  rest_.erase(0, begin);
}

}  // namespace mkbench
