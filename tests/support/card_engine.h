// What plain and ring both must do on a card, whatever their kernels are.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "references/engine.h"
#include "references/oracle.h"
#include "tests/support/catch2.h"
#include "tests/support/thrown.h"

namespace mkbench::testing {

inline bool no_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) != cudaSuccess || count == 0;
}

struct Run {
  std::vector<int32_t> ids;
  std::vector<float> logits;
  bool operator==(const Run&) const = default;
};

// Resets and poisons the engine, prefills the prompt and decodes n tokens with logits.
inline Run run(Engine& e, const std::vector<int32_t>& prompt, int n, int vocab) {
  Run r;
  r.logits.resize(static_cast<size_t>(n) * static_cast<size_t>(vocab));
  e.reset();
  e.poison();
  e.prefill(prompt);
  r.ids = e.decode(n, nullptr, r.logits.data());
  return r;
}

// Requires equal bits whatever came before, in one launch or one a token, with and without logits,
// and beside a second engine. Returns what `prompt` gives.
inline Run require_repeats(Engine& e, Engine& fresh, const std::vector<int32_t>& prompt,
                           const std::vector<int32_t>& other, int n, int vocab) {
  const Run first = run(e, prompt, n, vocab);
  REQUIRE(std::count(first.ids.begin(), first.ids.end(), -1) == 0);
  for (int i = 0; i < 20; ++i) REQUIRE(run(e, prompt, n, vocab) == first);
  const Run second = run(e, other, n, vocab);
  REQUIRE(second.ids != first.ids);
  REQUIRE(run(e, prompt, n, vocab) == first);  // the other prompt has left no trace
  e.reset();
  e.prefill(prompt);
  REQUIRE(e.decode(n) == first.ids);  // without logits: the timed launch
  e.reset();
  e.prefill(prompt);
  std::vector<int32_t> one_by_one;
  for (int i = 0; i < n; ++i) one_by_one.push_back(e.decode(1)[0]);
  REQUIRE(one_by_one == first.ids);
  for (int i = 0; i < 3; ++i) {  // two engines, used alternately, share no state
    REQUIRE(run(fresh, prompt, n, vocab) == first);
    REQUIRE(run(e, other, n, vocab) == second);
    REQUIRE(run(fresh, other, n, vocab) == second);
  }
  return first;
}

// Requires times that fit together and the last position, from an engine that has prefilled 10 ids.
inline void require_times_and_progress(Engine& e) {
  const int64_t launches = e.launch_count();
  e.decode(200);
  REQUIRE(e.launch_count() == launches + 1);
  const DecodeTimes t = e.last_times();
  REQUIRE(t.per_token_ms.size() == 200);
  REQUIRE(t.device_ms > 0);
  REQUIRE(t.device_ms <= t.event_ms * 1.01 + 0.02);
  REQUIRE(t.event_ms <= t.host_ms * 1.01 + 0.02);
  REQUIRE(t.sm_ghz > 0.2);
  REQUIRE(t.sm_ghz < 4);
  REQUIRE(e.progress().position == 9 + 199);
}

// Rows 0-4 are zero and all others equal, so the lowest row of the largest logit is 0 or 5. `offset`
// centres the values of a row, so that both occur.
inline std::vector<Bf16> head_of_two_values(const ModelShape& s, float offset) {
  const auto hidden = static_cast<size_t>(s.hidden);
  std::vector<Bf16> head(static_cast<size_t>(s.vocab) * hidden, Bf16{0});
  for (size_t i = 5 * hidden; i < head.size(); ++i)
    head[i] = to_bf16(0.01f * static_cast<float>(i % hidden) - offset);
  return head;
}

// Requires the lower of two equal logits, of an engine whose head is head_of_two_values().
inline void require_lowest_index_wins(Engine& e, int vocab) {
  const auto width = static_cast<size_t>(vocab);
  std::vector<float> logits(32 * width);
  e.set_pending(7);
  const auto ids = e.decode(32, nullptr, logits.data());
  for (size_t t = 0; t < ids.size(); ++t) {
    const auto row = std::span(logits).subspan(t * width, width);
    REQUIRE(row[5] == row[width - 1]);
    REQUIRE(ids[t] == (row[5] > 0 ? 5 : 0));
    REQUIRE(ids[t] == argmax_lowest(row));
  }
}

// Requires finite logits for `n` tokens behind `ids`, to the last position, and equal ids without
// logits.
inline void require_stays_inside(Engine& e, const std::vector<int32_t>& ids, int n, int vocab) {
  std::vector<float> logits(static_cast<size_t>(n) * static_cast<size_t>(vocab));
  e.prefill(ids);
  const auto tokens = e.decode(n, nullptr, logits.data());
  REQUIRE(e.position() == static_cast<int>(ids.size()) - 1 + n);
  REQUIRE(std::count(tokens.begin(), tokens.end(), -1) == 0);
  REQUIRE(std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
  e.reset();
  e.poison();
  e.prefill(ids);
  REQUIRE(e.decode(n) == tokens);
}

// Requires no token and the end of the sequence, from an engine whose head has a NaN and that has
// prefilled 10 ids.
inline void require_ends_at_nan(Engine& e) {
  REQUIRE(e.decode(8) == std::vector<int32_t>(8, -1));
  REQUIRE(e.position() == 10);  // with the NaN step's own row, without those of later steps
  REQUIRE(e.last_times().per_token_ms.empty());
  REQUIRE_THROWS_AS(e.decode(1), Error);  // nothing is pending
}

// Requires that an engine that goes back has the bits of `fresh`, which is given the rows below alone:
// at the prompt's end, within decodes and within the batched prompt. Wants two new engines, a prompt
// of more than 62 ids and room for 42 more.
inline void require_rewinds(Engine& e, Engine& fresh, const std::vector<int32_t>& prompt,
                            int vocab) {
  const auto decode = [vocab](Engine& engine) {
    Run r{{}, std::vector<float>(12 * static_cast<size_t>(vocab))};
    engine.set_pending(7);
    r.ids = engine.decode(12, nullptr, r.logits.data());
    return r;
  };
  const int end = static_cast<int>(prompt.size()) - 1;
  e.prefill(prompt);
  std::vector<int32_t> fed = prompt;  // ids of all rows, then the pending one
  for (const int32_t id : e.decode(30)) fed.push_back(id);
  int batched = end;  // rows from the batched prompt; those above are from steps
  for (const int position : {end + 30, end, end + 5, end + 5, end + 17, 50, 61, 0}) {
    INFO("position " << position);
    e.rewind(position);
    REQUIRE(e.position() == position);
    REQUIRE_THROWS_AS(e.decode(1), Error);  // nothing is pending
    REQUIRE(e.last_times().per_token_ms.empty());
    for (const int outside : {-1, position + 1}) {
      const Thrown thrown = thrown_by([&] { e.rewind(outside); });
      REQUIRE(thrown.kind == ErrorKind::kBadInput);
      REQUIRE(thrown.says("rewind: position " + std::to_string(outside) + " is not in [0, "));
    }
    batched = std::min(batched, position);
    fresh.reset();
    fresh.poison();
    if (batched > 0) {
      fresh.prefill(std::span(fed).first(static_cast<size_t>(batched) + 1));
    } else {
      fresh.set_pending(fed[0]);
    }
    if (position > batched) fresh.decode(position - batched, &fed[static_cast<size_t>(batched)]);
    const Snapshot found = e.save(), wanted = fresh.save();
    REQUIRE(found.kv_checksum == wanted.kv_checksum);
    REQUIRE(found.derived == wanted.derived);
    const Run next = decode(e);
    REQUIRE(next == decode(fresh));
    fed.resize(static_cast<size_t>(position));
    fed.push_back(7);
    fed.insert(fed.end(), next.ids.begin(), next.ids.end());
  }
}

// Requires that an engine of 16 positions refuses what it cannot do and never clamps it.
inline void require_refuses_requests(Engine& e, int vocab) {
  REQUIRE_THROWS_AS(e.decode(1), Error);  // nothing is pending
  for (const int32_t id : {-1, vocab, INT32_MAX}) {
    REQUIRE_THROWS_AS(e.prefill(std::vector<int32_t>{1, id}), Error);
    REQUIRE_THROWS_AS(e.set_pending(id), Error);
  }
  REQUIRE_THROWS_AS(e.prefill({}), Error);
  e.prefill(std::vector<int32_t>{1, 2, 3});
  REQUIRE_THROWS_AS(e.decode(0), Error);
  REQUIRE_THROWS_AS(e.decode(15), Error);
  REQUIRE(e.position() == 2);
  REQUIRE(e.decode(14).size() == 14);
  REQUIRE_THROWS_AS(e.decode(1), Error);
}

}  // namespace mkbench::testing
