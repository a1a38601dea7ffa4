#include "harness/host/serve.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "harness/wire/build_id.h"
#include "harness/wire/channel.h"
#include "references/base/error.h"

namespace mkbench {
namespace {

// Answers the second channel while the main thread is inside a call.
void answer_progress(Server& server) {
  for (char asked = 0; read(kProgressFd, &asked, 1) == 1;) {
    const FromHost told = asked == kAskHang ? FromHost(server.hang()) : FromHost(server.progress());
    if (!send_frame(kProgressFd, to_json(told))) return;
  }
}

FromHost answer(Server& server, const std::string& frame) {
  try {
    return server.answer(call_from_json(nlohmann::json::parse(frame, nullptr, false)));
  } catch (const Error& error) {
    return Failed{error.kind(), std::string("call not understood: ") + error.what()};
  }
}

}  // namespace

int serve(const HostProgram& program) {
  if (fcntl(kCallFd, F_GETFD) < 0 || fcntl(kStderrFd, F_GETFD) < 0) {
    fmt::print(stderr, "{}: is started by mkbench, not by hand\n", program.name);
    return 2;
  }
  for (const int fd : {kCallFd, kProgressFd, kArenaFd}) fcntl(fd, F_SETFD, FD_CLOEXEC);
  dup2(kStderrFd, STDERR_FILENO);
  dup2(kStderrFd, STDOUT_FILENO);  // keeps the parent's stdout for results
  close(kStderrFd);
  std::signal(SIGPIPE, SIG_IGN);
  Arena arena(kArenaFd);
  Server server(program, arena, [](const FromHost& told) { send_frame(kCallFd, to_json(told)); });
  std::thread(answer_progress, std::ref(server)).detach();
  send_frame(kCallFd, to_json(FromHost(Hello{build_id(), program.name})));
  FrameReader reader(kCallFd);
  for (;;) {
    const FrameReader::Got got = reader.read(-1);
    if (got == FrameReader::Got::kNothing) continue;
    if (got != FrameReader::Got::kFrame) break;
    if (!send_frame(kCallFd, to_json(answer(server, reader.frame())))) break;
  }
  _exit(0);
}

}  // namespace mkbench
