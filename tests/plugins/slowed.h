// One sound engine that takes longer by a known share of its own time, in every decode(). The
// library's own file name says by how much: sound, sound_copy, slow_1, slow_2, slow_5 (percent); a
// symbolic link has its target's. All of them are copies of one file, so they differ in nothing else.
// `mkbench selftest --timing` compares them. pace_1 and pace_6 take 1 and 6 milliseconds a token
// whatever their own time is: on a busy machine too, one is six times slower than the other.
//
// The including file defines, besides its sound example:
//   int32_t decode_and_wait(share, work)   calls work(), then waits for `share` of its time
#pragma once

#include <dlfcn.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <thread>

namespace slowed {

const mkbench_engine_abi* sound = nullptr;  // set when the library is loaded

struct Wait {
  double share = 0;                     // of the honest time
  std::chrono::milliseconds a_token{};  // decode() takes no less
} wait;

int32_t decode(mkbench_engine* e, const mkbench_decode* args) {
  const auto end = std::chrono::steady_clock::now() + args->n * wait.a_token;
  const int32_t status = decode_and_wait(wait.share, [&] { return sound->decode(e, args); });
  std::this_thread::sleep_until(end);
  return status;
}

// The sound table with the wait that the library's name asks for; null for another name.
const mkbench_engine_abi* slowed_table(const mkbench_engine_abi* example, const void* symbol) {
  using std::chrono::milliseconds;
  static const std::map<std::string, Wait> waits = {{"sound", {}},
                                                    {"sound_copy", {}},
                                                    {"slow_1", {.share = 0.01}},
                                                    {"slow_2", {.share = 0.02}},
                                                    {"slow_5", {.share = 0.05}},
                                                    {"pace_1", {.a_token = milliseconds(1)}},
                                                    {"pace_6", {.a_token = milliseconds(6)}}};
  Dl_info info{};
  dladdr(symbol, &info);
  const std::string name = std::filesystem::canonical(info.dli_fname).filename();
  const auto found = waits.find(name.substr(0, name.find('.')));
  if (example == nullptr || found == waits.end()) return nullptr;
  sound = example;
  wait = found->second;
  static mkbench_engine_abi table = *example;
  table.decode = decode;
  table.can &= ~static_cast<decltype(table.can)>(MKBENCH_ONE_LAUNCH);  // the wait may be a launch
  return &table;
}

}  // namespace slowed
