// naive_cpu.cpp as the sound engine that the including file changes: it defines change(), which
// replaces functions of the sound engine's table.
#pragma once

#define mkbench_engine_table sound_table
#include "tests/plugins/naive_cpu.cpp"
#undef mkbench_engine_table

namespace {
void change(mkbench_engine_abi& table);
}

extern "C" MKBENCH_ENGINE_EXPORT const mkbench_engine_abi* mkbench_engine_table(
    const mkbench_abi_sizes* host) {
  const mkbench_engine_abi* sound = sound_table(host);
  if (sound == nullptr) return nullptr;
  static const mkbench_engine_abi table = [&] {
    mkbench_engine_abi changed = *sound;
    change(changed);
    return changed;
  }();
  return &table;
}
