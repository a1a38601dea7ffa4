// Hosts that are Python scripts, for tests of the parent's side of a process.
#pragma once

#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "harness/hosts/host_process.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"

namespace mkbench::testing {

// What every script starts with: frames as in harness/wire/channel.h.
inline constexpr char kPrelude[] = R"(
import json, os, signal, struct, subprocess, sys, threading, time
ended = None  # a file that is made when the parent closes its end
def raw(data, fd=3):
    while data:
        data = data[os.write(fd, data):]
def send(message, fd=3):
    data = json.dumps(message).encode()
    raw(struct.pack('<I', len(data)) + data, fd)
def take(size):
    data = b''
    while len(data) < size:
        more = os.read(3, size - len(data))
        if not more:
            if ended: open(ended, 'w').close()
            os._exit(0)
        data += more
    return data
def receive():
    return json.loads(take(struct.unpack('<I', take(4))[0]))
def hello(build='b1'):
    send({'type': 'hello', 'build': build, 'program': 'script'})
def ok(position=0):
    send({'type': 'ok', 'state': {'position': position, 'launches': 0, 'device_bytes': 0}})
def next_call():
    while True:
        call = receive()
        if call['type'] != 'ping':
            return call
        ok()
def answer_progress(tell):
    def loop():
        while os.read(4, 1):
            position, layer, phase = tell()
            send({'type': 'progress', 'position': position, 'layer': layer, 'phase': phase}, 4)
    threading.Thread(target=loop, daemon=True).start()
def serve(answer=ok):
    while True:
        next_call()
        answer()
)";

inline std::filesystem::path new_path() {
  static int number = 0;
  return std::filesystem::temp_directory_path() /
         ("mkbench_host_" + std::to_string(getpid()) + "_" + std::to_string(++number));
}

// What a host leaves behind becomes a child of this process, as it does of mkbench.
inline const int kSubreaper = prctl(PR_SET_CHILD_SUBREAPER, 1);

struct Script {
  std::filesystem::path path = new_path();
  explicit Script(const std::string& body) { std::ofstream(path) << kPrelude << body << "\n"; }
  ~Script() { std::filesystem::remove(path); }
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;
  HostCommand command() const {
    return {.argv = {"/bin/sh", "-c", "exec python3 -I -S \"$0\"", path.string()},
            .build = "b1",
            .holds = "ring"};
  }
};

// A host that runs a script.
struct ScriptHost {
  Script script;
  HostProcess process;
  explicit ScriptHost(const std::string& body) : script(body), process(script.command()) {}
};

// Says hello, and does `body` in the first call.
inline std::string in_call(const std::string& body) { return "hello()\nnext_call()\n" + body; }

inline constexpr CallLimit kAmple{60, 60};

inline int position_of(HostLink& link, const CallLimit& limit = kAmple) {
  return ask<Answered>(link, FinishCall{}, limit).state.position;
}

struct Failure {
  ErrorKind kind;
  std::string text;
  double seconds;
};

inline Failure failure_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    work();
  } catch (const Error& error) {
    const std::chrono::duration<double> s = std::chrono::steady_clock::now() - begin;
    return {error.kind(), error.what(), s.count()};
  }
  FAIL("nothing was thrown");
  return {};
}

inline Failure failure_of(HostLink& link, const CallLimit& limit = kAmple) {
  return failure_of([&] { position_of(link, limit); });
}

}  // namespace mkbench::testing
