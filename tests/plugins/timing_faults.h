// The faults of timing: what an engine can do to look faster than it is. Each is one change of the
// sound example that the including file brings, timing_faults.cpp (CPU) or timing_faults.cu (CUDA).
// The library's own file name says which: copies of one library differ in nothing else. The expected
// verdicts stand in harness/selftest/timing_faults.cpp, and `mkbench selftest --timing` checks them.
//
// Most faults act where the clock runs and nowhere else. They know it by the number of tokens: no
// part of parity decodes kTimedTokens at once. A real engine could know it just as well.
//
// The including file defines, besides its sound example:
//   int32_t position_of(e), pending_of(e), void stand_at(e, position, pending)   the place in the sequence
//   int32_t max_context_of(e)
//   std::vector<int32_t> read_ids(ids, n), void write_ids(ids, values)   ids of decode()
//   int32_t* scratch_ids()   room for kTimedTokens of them
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace timing_faults {

constexpr int32_t kTimedTokens = 31;

const mkbench_engine_abi* sound = nullptr;  // set when the library is loaded

using Ids = std::vector<int32_t>;

bool timed(const mkbench_decode* args) {
  return args->n == kTimedTokens && args->forced == nullptr && args->logits == nullptr;
}

// decode() with the input of `args`, but other n and ids.
int32_t decode_into(mkbench_engine* e, const mkbench_decode& args, int32_t n, int32_t* ids) {
  mkbench_decode changed = args;
  changed.n = n;
  changed.ids = ids;
  return sound->decode(e, &changed);
}

// The prompt of the last prefill(), for faults that look it up later.
Ids prompt;
int32_t keep_prompt(mkbench_engine* e, const int32_t* ids, int32_t n) {
  prompt.assign(ids, ids + n);
  return sound->prefill(e, ids, n);
}
bool stands_at_prompt(const mkbench_engine* e) {
  return position_of(e) + 1 == static_cast<int32_t>(prompt.size());
}

// Gives back `known` in place of the work.
int32_t give(mkbench_engine* e, const Ids& known, int32_t* ids) {
  write_ids(ids, known);
  stand_at(e, position_of(e) + static_cast<int32_t>(known.size()), known.back());
  return MKBENCH_OK;
}

// T1: remembers what followed an input, and gives it back when the input comes again.
int32_t remember(mkbench_engine* e, const Ids& input, const mkbench_decode* args) {
  static std::map<Ids, Ids> followed;
  Ids& known = followed[input];
  if (!known.empty()) return give(e, known, args->ids);
  const int32_t status = sound->decode(e, args);
  known = read_ids(args->ids, kTimedTokens);
  return status;
}

int32_t decode_by_prompt(mkbench_engine* e, const mkbench_decode* args) {
  if (!timed(args) || !stands_at_prompt(e)) return sound->decode(e, args);
  return remember(e, prompt, args);
}

// The careful one looks at the last id too, and so finds nothing that it remembers.
int32_t decode_by_input(mkbench_engine* e, const mkbench_decode* args) {
  if (!timed(args) || !stands_at_prompt(e)) return sound->decode(e, args);
  Ids input = prompt;
  input.back() = args->late_id >= 0 ? args->late_id : pending_of(e);
  return remember(e, input, args);
}

// T2: decodes ahead inside prefill(), and hands the ids out when the clock runs.
Ids ahead;
int32_t prefill_and_decode(mkbench_engine* e, const int32_t* ids, int32_t n) {
  const int32_t status = keep_prompt(e, ids, n);
  ahead.clear();
  while (status == MKBENCH_OK && ahead.size() < kTimedTokens &&
         position_of(e) < max_context_of(e)) {
    int32_t* one = scratch_ids();
    const mkbench_decode by_id{sizeof by_id, 1, -1, nullptr, nullptr, one, nullptr, nullptr};
    if (sound->decode(e, &by_id) != MKBENCH_OK) break;
    ahead.push_back(read_ids(one, 1).front());
  }
  stand_at(e, n - 1, ids[n - 1]);
  return status;
}
int32_t decode_from_ahead(mkbench_engine* e, const mkbench_decode* args) {
  if (!timed(args) || !stands_at_prompt(e) || ahead.size() < kTimedTokens)
    return sound->decode(e, args);
  return give(e, ahead, args->ids);
}

// T3: prefill() keeps its ids and does nothing; the first decode does the work.
Ids deferred;
int32_t prefill_later(mkbench_engine* e, const int32_t* ids, int32_t n) {
  deferred.assign(ids, ids + n);
  stand_at(e, n - 1, ids[n - 1]);
  return MKBENCH_OK;
}
int32_t prefill_and_decode_now(mkbench_engine* e, const mkbench_decode* args) {
  if (!deferred.empty()) {
    const int32_t at = position_of(e), pending = pending_of(e);
    stand_at(e, 0, -1);
    const int32_t status =
        sound->prefill(e, deferred.data(), static_cast<int32_t>(deferred.size()));
    if (status != MKBENCH_OK) return status;
    deferred.clear();
    stand_at(e, at, pending);
  }
  return sound->decode(e, args);
}

// T5: returns before the ids are there. A thread writes all of them, or all but the last.
void write_later(int32_t* ids, const Ids& values) {
  static std::thread writer;
  if (writer.joinable()) writer.join();
  writer = std::thread([=] {
    usleep(5'000);
    write_ids(ids, values);
  });
}
int32_t decode_ids_later(mkbench_engine* e, const mkbench_decode* args) {
  if (!timed(args)) return sound->decode(e, args);
  int32_t* own = scratch_ids();
  const int32_t status = decode_into(e, *args, args->n, own);
  write_later(args->ids, read_ids(own, args->n));
  return status;
}
int32_t decode_last_id_first(mkbench_engine* e, const mkbench_decode* args) {
  const int32_t status = decode_ids_later(e, args);
  if (timed(args)) write_ids(args->ids + args->n - 1, {pending_of(e)});
  return status;
}

// T6: stops early and repeats the last id.
int32_t decode_and_pad(mkbench_engine* e, const mkbench_decode* args) {
  if (!timed(args)) return sound->decode(e, args);
  constexpr int32_t kLeftOut = 8, kDone = kTimedTokens - kLeftOut;
  const int32_t status = decode_into(e, *args, kDone, args->ids);
  write_ids(args->ids + kDone, Ids(kLeftOut, pending_of(e)));
  stand_at(e, position_of(e) + kLeftOut, pending_of(e));
  return status;
}

// T7: threads that keep every core busy while others are timed.
int32_t decode_and_spin(mkbench_engine* e, const mkbench_decode* args) {
  static bool begun = false;
  static std::atomic<unsigned> turns{0};
  for (unsigned i = 0; !begun && i < 2 * std::thread::hardware_concurrency(); ++i) {
    std::thread([] {
      for (;;) turns.fetch_add(1, std::memory_order_relaxed);
    }).detach();
  }
  begun = true;
  return sound->decode(e, args);
}

// T9: every 7th timed decode takes 30 ms longer, as beside a background task.
int32_t decode_unevenly(mkbench_engine* e, const mkbench_decode* args) {
  static int calls = 0;
  if (timed(args) && ++calls % 7 == 0) usleep(30'000);
  return sound->decode(e, args);
}

// T11: crashes in its fourth timed decode.
int32_t decode_and_crash(mkbench_engine* e, const mkbench_decode* args) {
  static int calls = 0;
  if (timed(args) && ++calls == 4) std::raise(SIGSEGV);
  return sound->decode(e, args);
}

// T12: right, but prefill() takes 2 ms for each id.
int32_t prefill_slowly(mkbench_engine* e, const int32_t* ids, int32_t n) {
  usleep(2'000u * static_cast<unsigned>(n));
  return sound->prefill(e, ids, n);
}

// T13: without logits every id from position 25 on is wrong, and the tenth such call does not return.
int32_t decode_wrongly_and_hang(mkbench_engine* e, const mkbench_decode* args) {
  static int calls = 0;
  const int32_t begin = position_of(e);
  const int32_t status = sound->decode(e, args);
  const int32_t n = args->n;
  if (args->logits != nullptr || begin + n <= 25) return status;
  if (++calls == 10) {
    for (;;) pause();
  }
  Ids wrong = read_ids(args->ids, n);
  for (int32_t t = std::max(0, 25 - begin); t < n; ++t) wrong[t] ^= 1;
  write_ids(args->ids, wrong);
  return status;
}

// T15: beyond 32 rows more work is done where logits are asked for, 0.3 ms a token: what an engine
// saves with a window that it leaves when somebody looks. The control takes as long at any row.
int32_t decode_and_catch_up(mkbench_engine* e, const mkbench_decode* args) {
  if (args->logits != nullptr && position_of(e) >= 32)
    usleep(300u * static_cast<unsigned>(args->n));
  return sound->decode(e, args);
}
int32_t decode_with_slow_logits(mkbench_engine* e, const mkbench_decode* args) {
  if (args->logits != nullptr) usleep(300u * static_cast<unsigned>(args->n));
  return sound->decode(e, args);
}

using Change = void (*)(mkbench_engine_abi& table);

// The faults by name; "sound" and "sound_copy" are not changed (T10).
std::map<std::string, Change> changes() {
  using Table = mkbench_engine_abi;
  return {
      {"sound", [](Table&) {}},
      {"sound_copy", [](Table&) {}},
      {"remembers_prompts", [](Table& t) { t.prefill = keep_prompt, t.decode = decode_by_prompt; }},
      {"remembers_inputs", [](Table& t) { t.prefill = keep_prompt, t.decode = decode_by_input; }},
      {"decodes_ahead",
       [](Table& t) { t.prefill = prefill_and_decode, t.decode = decode_from_ahead; }},
      {"defers_prefill",
       [](Table& t) { t.prefill = prefill_later, t.decode = prefill_and_decode_now; }},
      {"ids_later", [](Table& t) { t.decode = decode_ids_later; }},
      {"last_id_first", [](Table& t) { t.decode = decode_last_id_first; }},
      {"pads", [](Table& t) { t.decode = decode_and_pad; }},
      {"spins", [](Table& t) { t.decode = decode_and_spin; }},
      {"uneven", [](Table& t) { t.decode = decode_unevenly; }},
      {"crashes", [](Table& t) { t.decode = decode_and_crash; }},
      {"slow_prefill", [](Table& t) { t.prefill = prefill_slowly; }},
      {"wrong_then_hangs", [](Table& t) { t.decode = decode_wrongly_and_hang; }},
      {"catches_up", [](Table& t) { t.decode = decode_and_catch_up; }},
      {"slow_logits", [](Table& t) { t.decode = decode_with_slow_logits; }},
  };
}

// The name of this library's file up to the first '.'.
std::string own_name(const void* symbol) {
  Dl_info info{};
  dladdr(symbol, &info);
  std::string name = info.dli_fname;
  name = name.substr(name.rfind('/') + 1);
  return name.substr(0, name.find('.'));
}

// The sound table with the change of the library's name; null where there is no such fault.
// `more`: faults that need to know the example's memory.
const mkbench_engine_abi* changed_table(const mkbench_engine_abi* example, const void* symbol,
                                        const std::map<std::string, Change>& more) {
  sound = example;
  static mkbench_engine_abi table = *example;
  std::map<std::string, Change> all = changes();
  all.insert(more.begin(), more.end());
  const auto found = all.find(own_name(symbol));
  if (found == all.end()) return nullptr;
  found->second(table);
  return &table;
}

}  // namespace timing_faults
