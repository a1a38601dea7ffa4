// naive_cpu.cpp as the sound engine that the including file changes: it defines change(), which
// replaces functions of the sound engine's table.
#pragma once

#define mkbench_engine_table sound_table
#include "tests/plugins/naive_cpu.cpp"
#undef mkbench_engine_table

namespace {
void change(mkbench_engine_abi& table);
}

extern "C" MKBENCH_ENGINE_EXPORT const mkbench_engine_abi* mkbench_engine_table() {
  static const mkbench_engine_abi table = [] {
    mkbench_engine_abi changed = *sound_table();
    change(changed);
    return changed;
  }();
  return &table;
}
