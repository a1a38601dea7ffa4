// A socket between a parent and a host: frames of one JSON object each, every frame preceded by its
// length in bytes (u32, little-endian).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace mkbench {

// File descriptors with which every host starts.
inline constexpr int kCallFd = 3;      // calls and answers
inline constexpr int kProgressFd = 4;  // the second channel: a byte asks, a frame answers
inline constexpr int kArenaFd = 5;     // arena.h
// What the parent writes to kProgressFd: kAskProgress for ProgressTold, kAskHang for HangTold.
inline constexpr char kAskProgress = '?', kAskHang = '!';
// The parent's stderr. A host starts with a file as its stderr, so that the parent can read why it
// failed to start, and replaces it with this descriptor before it sends Hello.
inline constexpr int kStderrFd = 6;

inline constexpr size_t kMostFrameBytes = size_t{64} << 20;

// Sends one frame; false if the other end is gone. Bytes that are not UTF-8 are replaced, because a
// message about a failure must not fail itself.
bool send_frame(int fd, const nlohmann::json& message);

// Puts frames together from the bytes of a socket.
class FrameReader {
 public:
  explicit FrameReader(int fd) : fd_(fd) {}

  enum class Got { kFrame, kNothing, kEnd, kRubbish };
  // Waits up to `wait_ms` for a frame (-1: without a limit). kRubbish: the bytes are no frame, and
  // frame() then holds the start of them.
  Got read(int wait_ms);
  const std::string& frame() const { return frame_; }

 private:
  Got take_frame();

  int fd_;
  std::string bytes_, frame_;
};

// Writes all bytes; false if the other end is gone.
bool write_all(int fd, const void* data, size_t bytes);

}  // namespace mkbench
