// One sound engine that takes longer by a known share of its own time, in every decode(). The
// library's own file name says by how much: sound, sound_copy, slow_1, slow_2, slow_5, slow_400
// (percent); a symbolic link has its target's. All of them are copies of one file, so they differ in
// nothing else. `mkbench selftest --timing` compares them, but for the last.
//
// The including file defines, besides its sound example:
//   int32_t decode_and_wait(share, work)   calls work(), then waits for `share` of its time
#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <map>
#include <string>

namespace slowed {

const mkbench_engine_abi* sound = nullptr;  // set when the library is loaded
double share = 0;                           // of the honest time

int32_t decode(mkbench_engine* e, const mkbench_decode* args) {
  return decode_and_wait(share, [&] { return sound->decode(e, args); });
}

// The sound table with the wait that the library's name asks for; null for another name.
const mkbench_engine_abi* slowed_table(const mkbench_engine_abi* example, const void* symbol) {
  static const std::map<std::string, double> shares = {{"sound", 0},     {"sound_copy", 0},
                                                       {"slow_1", 0.01}, {"slow_2", 0.02},
                                                       {"slow_5", 0.05}, {"slow_400", 4.0}};
  Dl_info info{};
  dladdr(symbol, &info);
  const std::string name = std::filesystem::canonical(info.dli_fname).filename();
  const auto found = shares.find(name.substr(0, name.find('.')));
  if (example == nullptr || found == shares.end()) return nullptr;
  sound = example;
  share = found->second;
  static mkbench_engine_abi table = *example;
  table.decode = decode;
  table.can &= ~static_cast<decltype(table.can)>(MKBENCH_ONE_LAUNCH);  // the wait may be a launch
  return &table;
}

}  // namespace slowed
