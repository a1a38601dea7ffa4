#include "harness/wire/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

namespace mkbench {

bool write_all(int fd, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t n = send(fd, from, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == ENOTSOCK) n = write(fd, from, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    from += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool send_frame(int fd, const nlohmann::json& message) {
  std::string frame(sizeof(uint32_t), '\0');
  frame += message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const auto size = static_cast<uint32_t>(frame.size() - sizeof(uint32_t));
  std::memcpy(frame.data(), &size, sizeof(size));
  return write_all(fd, frame.data(), frame.size());
}

// Takes the next whole frame from the bytes read so far.
FrameReader::Got FrameReader::take_frame() {
  uint32_t size = 0;
  if (bytes_.size() < sizeof(size)) return Got::kNothing;
  std::memcpy(&size, bytes_.data(), sizeof(size));
  if (size > kMostFrameBytes) {
    frame_ = bytes_.substr(0, 80);
    return Got::kRubbish;
  }
  if (bytes_.size() < sizeof(size) + size) return Got::kNothing;
  frame_ = bytes_.substr(sizeof(size), size);
  bytes_.erase(0, sizeof(size) + size);
  return Got::kFrame;
}

FrameReader::Got FrameReader::read(int wait_ms) {
  if (const Got got = take_frame(); got != Got::kNothing) return got;
  pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
  const int ready = poll(&entry, 1, wait_ms);
  if (ready <= 0) return Got::kNothing;  // time is up, or a signal came
  std::array<char, 65536> buffer;
  const ssize_t n = ::read(fd_, buffer.data(), buffer.size());
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return Got::kNothing;
  if (n <= 0) return Got::kEnd;
  bytes_.append(buffer.data(), static_cast<size_t>(n));
  return take_frame();
}

}  // namespace mkbench
