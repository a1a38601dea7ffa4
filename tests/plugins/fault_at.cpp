// Preloaded into one program (its children do without it): does FAULT_ACTION at the FAULT_NTH call of FAULT_CALL that
// concerns FAULT_TEXT. A call concerns a text that is part of the file's path (open, write, fsync, rename) or of what is
// sent or printed (send, fwrite). An action is `signal N`, which comes before the call (in write: after half of the
// bytes), or `errno N`, with which this call and all later ones that concern the text fail.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Fault {
  std::string call = setting("FAULT_CALL"), text = setting("FAULT_TEXT"),
              action = setting("FAULT_ACTION");
  int left = std::atoi(setting("FAULT_NTH").c_str());
  int number = std::atoi(action.substr(action.find(' ') + 1).c_str());
  bool fails = action.starts_with("errno");
  Fault() { unsetenv("LD_PRELOAD"); }
};

// Made before main(), so that no child inherits the variable.
Fault fault;  // NOLINT(cert-err58-cpp)

bool is_due(const char* call, std::string_view about) {
  if (fault.call != call || about.find(fault.text) == std::string_view::npos) return false;
  return --fault.left == 0 || (fault.fails && fault.left < 0);
}

// Acts if this call is the one; true if the call must fail.
bool strikes(const char* call, std::string_view about) {
  if (!is_due(call, about)) return false;
  if (!fault.fails) {
    std::raise(fault.number);
    return false;
  }
  errno = fault.number;
  return true;
}

std::string path_of(int fd) {
  char path[4096];
  const ssize_t length =
      readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof(path));
  return {path, static_cast<size_t>(length < 0 ? 0 : length)};
}

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const auto mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  if (strikes("open", path)) return -1;
  return next<int(const char*, int, ...)>("open")(path, flags, mode);
}

ssize_t write(int fd, const void* data, size_t bytes) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  const std::string path = fault.call == "write" ? path_of(fd) : "";
  if (fault.left == 1 && path.find(fault.text) != std::string::npos) {
    const ssize_t half = real(fd, data, bytes / 2);
    strikes("write", path);
    return half;
  }
  return strikes("write", path) ? -1 : real(fd, data, bytes);
}

int fsync(int fd) { return strikes("fsync", path_of(fd)) ? -1 : next<int(int)>("fsync")(fd); }

int rename(const char* from, const char* to) {
  return strikes("rename", to) ? -1 : next<int(const char*, const char*)>("rename")(from, to);
}

ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  static auto* const real = next<ssize_t(int, const void*, size_t, int)>("send");
  return strikes("send", {static_cast<const char*>(data), bytes}) ? -1
                                                                  : real(fd, data, bytes, flags);
}

size_t fwrite(const void* data, size_t size, size_t count, FILE* file) {
  static auto* const real = next<size_t(const void*, size_t, size_t, FILE*)>("fwrite");
  return strikes("fwrite", {static_cast<const char*>(data), size * count})
             ? 0
             : real(data, size, count, file);
}

}  // extern "C"
