// naive_cpu.cpp with one misbehaviour, which the library's own file name says up to the first '-' or
// '.': copies of this file named crash.so, hang.so and hang-2.so differ in nothing else. The tables
// of tests/hosts/test_cli_hosts.py give the expected verdicts.
//
// It happens in one decode without logits of MISBEHAVE_TOKENS tokens (7), which only timed blocks
// and their warm-up decode: the call number MISBEHAVE_AT, counted from 1. Number 1 is the warm-up,
// and the default, 3, is the second timed block. Number 0 is the very first decode, which belongs to
// parity. What kInEveryDecode lists happens in every decode.
#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <thread>

#include "tests/plugins/changed_cpu.h"

namespace {

constexpr int kCallFd = 3;  // the host's socket to its parent (harness/wire/channel.h)

std::string own_name() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&mkbench_engine_table), &info);
  std::string name = info.dli_fname;
  name = name.substr(name.rfind('/') + 1);
  return name.substr(0, name.find_first_of("-."));
}

[[noreturn]] void sleep_for_ever() {
  for (;;) pause();
}

// A child that does nothing for ever, in the group of its parent or in one of its own.
void leave_a_child(bool own_session) {
  if (fork() != 0) return;
  if (own_session) setsid();
  sleep_for_ever();
}

// A thread that no signal stops: it waits for a child that does nothing for ever.
void become_unstoppable() {
  std::thread([] {
    if (vfork() == 0) sleep_for_ever();
  }).detach();
  usleep(100'000);
}

void spin() {
  static std::atomic<uint64_t> turns{0};
  for (int i = 0; i < 8; ++i) {
    std::thread([] {
      for (;;) ++turns;
    }).detach();
  }
}

// Ends in std::bad_alloc, which passes the C interface, with a little memory left for the answer.
void take_all_memory() {
  constexpr size_t kChunk = size_t{64} << 20;
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit limit{pages * size_t(getpagesize()) + 4 * kChunk, RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &limit);
  static std::vector<std::vector<char>> taken;
  for (;;) taken.emplace_back(kChunk);
}

void write_to_parent(const std::string& bytes) {
  if (write(kCallFd, bytes.data(), bytes.size()) < 0) std::abort();
}

using Misbehaviour = void (*)(mkbench_engine* e);
const std::map<std::string, Misbehaviour> kDuringDecode = {
    {"crash", [](mkbench_engine*) { std::raise(SIGSEGV); }},
    {"abort", [](mkbench_engine*) { std::abort(); }},
    {"kill", [](mkbench_engine*) { std::raise(SIGKILL); }},
    {"stop", [](mkbench_engine*) { std::raise(SIGSTOP); }},
    {"exit", [](mkbench_engine*) { std::exit(3); }},
    {"hang", [](mkbench_engine*) { sleep_for_ever(); }},
    {"slow",
     [](mkbench_engine* e) {
       for (;; usleep(50'000)) e->running = e->running + 1;
     }},
    {"memory", [](mkbench_engine*) { take_all_memory(); }},
    {"throw", [](mkbench_engine*) { throw std::runtime_error("it passes\nthe interface"); }},
    {"rubbish", [](mkbench_engine*) { write_to_parent("What is this?"); }},
    {"frame", [](mkbench_engine*) { write_to_parent(std::string("\x0b\0\0\0{\"type\":12}", 15)); }},
    {"close", [](mkbench_engine*) { close(kCallFd); }},
    {"print", [](mkbench_engine*) { std::puts("a line on standard output"), std::fflush(stdout); }},
    {"spin", [](mkbench_engine*) { spin(); }},
    {"unstoppable", [](mkbench_engine*) { become_unstoppable(); }},
    {"child", [](mkbench_engine*) { leave_a_child(false); }},
    {"daemon", [](mkbench_engine*) { leave_a_child(true); }},
    // The child keeps the socket open after its parent's death.
    {"orphan", [](mkbench_engine*) { leave_a_child(false), std::raise(SIGSEGV); }},
};

void start_a_thread() {
  std::thread([] { sleep_for_ever(); }).detach();
}

void take_memory(size_t bytes) {
  static std::vector<std::vector<char>> taken;
  taken.emplace_back(bytes, 'x');
}

const std::map<std::string, void (*)(int decode)> kInEveryDecode = {
    {"children", [](int) { leave_a_child(false); }},
    {"daemons",
     [](int) {
       if (fork() == 0) leave_a_child(true), _exit(0);
     }},
    {"threads", [](int) { start_a_thread(); }},
    {"leak", [](int) { take_memory(size_t{1} << 20); }},
    // Kept, and taken in the first decodes alone: threads step by step, memory at once.
    {"pool",
     [](int decode) {
       if (decode < 8) start_a_thread();
       if (decode == 0) take_memory(size_t{64} << 20);
     }},
};

int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

int32_t spoiled_decode(mkbench_engine* e, const mkbench_decode* args) {
  static const int wanted = setting("MISBEHAVE_AT", 3);
  static const int tokens = setting("MISBEHAVE_TOKENS", 7);
  static int calls = 0;
  static bool done = false;
  static int decodes = 0;
  if (const auto found = kInEveryDecode.find(own_name()); found != kInEveryDecode.end())
    found->second(decodes++);
  // The step after a late id may be a call of its own; the one that follows it counts.
  if ((args->n == tokens || args->n == tokens - 1) && args->logits == nullptr) ++calls;
  if (!done && (wanted == 0 || calls == wanted)) {
    done = true;
    const auto found = kDuringDecode.find(own_name());
    if (found != kDuringDecode.end()) found->second(e);
  }
  return decode(e, args);
}

int32_t spoiled_open(const mkbench_open* args, mkbench_engine** engine) {
  if (own_name() == "opencrash") std::raise(SIGSEGV);
  if (own_name() == "openslow") sleep(3);
  return open_engine(args, engine);
}

void change(mkbench_engine_abi& table) {
  table.open = spoiled_open;
  table.decode = spoiled_decode;
  if (own_name() == "keeps") table.reset = [](mkbench_engine*) -> int32_t { return MKBENCH_OK; };
}

}  // namespace
