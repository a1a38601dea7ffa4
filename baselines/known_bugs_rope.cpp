// RoPE and positions.
#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>
#include <numbers>

#include "baselines/bug_table.h"

namespace mkbench {
namespace {

using at::Tensor;
using X = const Tensor&;

Tensor low(X x) { return x.chunk(2, -1)[0]; }
Tensor high(X x) { return x.chunk(2, -1)[1]; }
Tensor even(X x) { return x.slice(-1, 0, x.size(-1), 2); }
Tensor odd(X x) { return x.slice(-1, 1, x.size(-1), 2); }
Tensor paired(X a, X b) { return at::stack({a, b}, -1).flatten(-2); }
// cos and sin have an angle for each dimension; pairs (i, i + half), or (2i, 2i + 1).
Tensor turn_each(X x, X cos, X sin) { return x * cos + at::cat({-high(x), low(x)}, -1) * sin; }
Tensor turn_each_pair(X x, X cos, X sin) { return x * cos + paired(-odd(x), even(x)) * sin; }
struct Turn {
  const char* name;
  std::string text;
  std::function<Tensor(X x, X cos, X sin)> turned;
};

std::vector<Turn> turns(int head_dim) {
  const std::string half = std::to_string(head_dim / 2);
  const std::string halves = "(i, i + " + half + ")", pairs = "RoPE pairs (2i, 2i + 1)";
  return {
      {"rope_interleaved", pairs + " instead of " + halves,
       [](X x, X c, X s) { return paired(even(x) * c - odd(x) * s, odd(x) * c + even(x) * s); }},
      {"rotate_sign", "RoPE turns backwards: the sign of sin, or sin and cos changed places",
       [](X x, X c, X s) { return turn_halves(x, c, -s); }},
      {"rope_missing", "no RoPE", [](X x, X, X) { return x; }},
      {"rope_twice", "RoPE twice",
       [](X x, X c, X s) { return turn_halves(turn_halves(x, c, s), c, s); }},
      {"rope_in_place", "RoPE's second half is computed from the first one's results",
       [](X x, X c, X s) {
         const Tensor a = low(x) * c - high(x) * s;
         return at::cat({a, high(x) * c + a * s}, -1);
       }},
      {"rope_pairs_in_place", pairs + ", and the second from the first one's result",
       [](X x, X c, X s) {
         const Tensor a = even(x) * c - odd(x) * s;
         return paired(a, odd(x) * c + a * s);
       }},
      {"rope_signs_alike", "RoPE adds sin in both halves",
       [](X x, X c, X s) {
         return at::cat({low(x) * c + high(x) * s, high(x) * c + low(x) * s}, -1);
       }},
      {"rope_signs_alike", "RoPE subtracts sin in both halves",
       [](X x, X c, X s) {
         return at::cat({low(x) * c - high(x) * s, high(x) * c - low(x) * s}, -1);
       }},
      {"rope_cos_alone", "RoPE without the terms of sin",
       [](X x, X c, X) {
         return x * at::cat({c, c}, -1);
       }},
      {"rope_angles_repeated", "RoPE pairs " + halves + " with the angles of (2i, 2i + 1)",
       [](X x, X c, X s) {
         return turn_each(x, c.repeat_interleave(2, -1), s.repeat_interleave(2, -1));
       }},
      {"rope_angles_tiled", pairs + " with the angles of " + halves,
       [](X x, X c, X s) {
         return turn_each_pair(x, at::cat({c, c}, -1), at::cat({s, s}, -1));
       }},
      {"rope_pairs_shifted", "RoPE pairs (i, i + " + half + " + 1) instead of " + halves,
       [](X x, X c, X s) {
         const Tensor y = turn_halves(at::cat({low(x), high(x).roll(-1, -1)}, -1), c, s);
         return at::cat({low(y), high(y).roll(1, -1)}, -1);
       }}};
}

// Each for q and k, and for one of them.
void add_turns(BugTable& t) {
  for (const Turn& turn : turns(t.config.shape.head_dim)) {
    t.add(turn.name, turn.text,
          {.turn = [f = turn.turned](X x, X c, X s, bool) { return f(x, c, s); }});
    for (const bool q : {true, false}) {
      t.rare(std::string(turn.name) + (q ? "_of_q" : "_of_k"),
             turn.text + (q ? ", of q alone" : ", of k alone"),
             {.turn = [f = turn.turned, q](X x, X c, X s, bool queries) {
               return queries == q ? f(x, c, s) : turn_halves(x, c, s);
             }});
    }
  }
  const auto first = [&](auto name, auto text, int64_t heads) {
    t.rare(
        name, text, {.turn = [heads](X x, X c, X s, bool) {
          const int64_t rest = x.size(1) - heads;
          return at::cat({turn_halves(x.narrow(1, 0, heads), c, s), x.narrow(1, heads, rest)}, 1);
        }});
  };
  const ModelShape& shape = t.config.shape;
  if (shape.heads > 1) first("rope_first_head", "RoPE of the first head alone", 1);
  if (shape.heads > shape.kv_heads && shape.kv_heads > 1)
    first("rope_few_queries", "RoPE of as many heads of q as k has", shape.kv_heads);
  t.add("rope_of_values", "RoPE of v too", {.heads = [](Heads& h) { h.v = h.turn(h.v); }});
}

void add_scaling(BugTable& t) {
  const Rope& own = t.config.rope;
  if (own.scaling == RopeScaling::kNone) return;
  const auto edit = [&](auto name, auto text, void (*edited)(Rope&)) {
    t.add(name, text, {.rope = edited});
  };
  edit("rope_unscaled", "the RoPE scaling of the config is left out",
       [](Rope& r) { r.scaling = RopeScaling::kNone; });
  edit("rope_scaling_inverse", "RoPE's scaling multiplies by the factor",
       [](Rope& r) { r.factor = 1 / r.factor; });
  if (own.scaling != RopeScaling::kLlama3) return;
  t.add("rope_scaling_swapped",
        "llama3's RoPE scaling divides the high frequencies and leaves the low ones",
        {.frequencies = [f = own.factor](X found, X unscaled) {
          return unscaled * (1 + 1 / f) - found;
        }});
  edit("rope_scaling_linear", "llama3's RoPE scaling divides all frequencies",
       [](Rope& r) { r.scaling = RopeScaling::kLinear; });
  edit("rope_scaling_turns", "llama3's RoPE scaling takes wave lengths without 2 pi", [](Rope& r) {
    r.low_freq_factor /= 2 * std::numbers::pi, r.high_freq_factor /= 2 * std::numbers::pi;
  });
  edit("rope_scaling_hard",
       "llama3's RoPE scaling without the mixed frequencies: the middle ones stay",
       [](Rope& r) { r.high_freq_factor = r.low_freq_factor * 1.0001; });
  edit("rope_scaling_hard", "llama3's RoPE scaling without the mixed frequencies: they are divided",
       [](Rope& r) { r.low_freq_factor = r.high_freq_factor / 1.0001; });
  t.add("rope_scaling_mix",
        "llama3's RoPE scaling mixes the middle frequencies the other way round",
        {.frequencies = [f = own.factor](X found, X unscaled) {
          const Tensor mixed = (found < unscaled * 0.9999) & (found > unscaled / f * 1.0001);
          return at::where(mixed, unscaled * (1 + 1 / f) - found, found);
        }});
  for (const double n : others({512, 8192, 1.0 * t.config.max_positions}, own.original_positions)) {
    t.rare("rope_scaling_positions", "original_max_position_embeddings " + number(n),
           {.rope = [n](Rope& r) { r.original_positions = static_cast<int>(n); }});
  }
  for (const double f : others({2, 4, 8, 16, 32}, own.factor))
    t.rare("rope_scaling_factor", "RoPE scaling factor " + number(f),
           {.rope = [f](Rope& r) { r.factor = f; }});
}

void add_frequencies(BugTable& t) {
  const ModelShape& s = t.config.shape;
  const double dim = s.head_dim;
  for (const double theta : others({1e4, 1e5, 5e5, 1e6, 5e6, 1e7}, t.config.rope.theta))
    t.add("rope_theta", "rope_theta " + number(theta),
          {.rope = [theta](Rope& r) { r.theta = theta; }});
  const auto exponent = [&](auto name, const std::string& text, double factor, double plus = 0) {
    t.add(name, "RoPE frequencies theta^(-" + text + ")",
          {.exponents = [=](X e) { return e * factor + plus; }});
  };
  const bool twice = s.hidden == 2 * s.head_dim;
  exponent("rope_exponent", twice ? "i / head_dim, which is 2i / hidden" : "i / head_dim", 0.5);
  exponent("rope_exponent", "4i / head_dim", 2);
  if (s.hidden != s.head_dim && s.hidden != 2 * s.head_dim)
    exponent("rope_exponent_hidden", "2i / hidden", dim / s.hidden);
  if (s.heads > 2) exponent("rope_exponent_width", "2i / (heads * head_dim)", 1.0 / s.heads);
  exponent("rope_exponent_last", "2i / (head_dim - 2)", dim / (dim - 2));
  exponent("rope_exponent_first", "2(i + 1) / head_dim", 1, 2 / dim);
  if (s.head_dim % 4 == 0) {
    t.add("rope_half", "RoPE of the first half of each head alone",
          {.exponents = [](X e) { return e.slice(0, 0, e.size(0), 2).clone(); }});
    t.rare("rope_first_pairs", "RoPE of the first half of the pairs alone",
           {.frequencies = [](X f, X) {
             return at::cat({low(f), at::zeros_like(low(f))}, -1);
           }});
  }
  const double turn = 2 * std::numbers::pi;
  for (const auto& [factor, what] :
       {std::pair(0.5, "1 / 2"), {turn, "2 pi"}, {1 / turn, "1 / (2 pi)"}}) {
    t.rare("rope_angles", std::string("RoPE's angles times ") + what,
           {.frequencies = [f = factor](X found, X) { return found * f; }});
  }
}

void add_positions(BugTable& t) {
  for (const double shift : {1.0, -1.0}) {
    const std::string by = shift > 0 ? "one more" : "one less";
    t.add("query_position", "the position of q is " + by + " than that of its own k",
          {.query_shift = shift});
    t.add("decode_positions",
          "positions of decoded rows are " + by + " than they follow the prompt's",
          {.positions = [shift](X at, X decoded, X) { return at + shift * (at >= decoded); }});
  }
  Hooks hole = {.positions = [](X at, X decoded, X) { return at + (at >= decoded); }};
  hole.zero_row = [](X i, X decoded) { return i >= decoded; };
  t.add("decode_hole",
        "decoded rows stand one row behind their place, and attention reads the hole as zeros",
        hole);
  const auto restart = [](X at, X decoded, X) { return at - decoded * (at >= decoded); };
  t.add("decode_restarts", "decoded rows count their positions from 0", {.positions = restart});
  Hooks overwritten = {.positions = restart};
  overwritten.seen = [](auto& i, auto& j, auto& decoded) {
    return (j <= i) & ((i < decoded) | (j >= decoded));
  };
  t.add("decode_overwrites", "decoded rows count from 0 and overwrite the prompt's", overwritten);
  t.add("call_positions", "all steps of a decode() call have the position of its first",
        {.positions = [](X at, X decoded, X call) {
          // the compared steps are one call, those before them another
          const Tensor before = at::minimum(at, at::where(at >= decoded, decoded, at));
          return at::where(at >= call, call, before);
        }});
  t.rare("prompt_positions", "all rows of the prompt have position 0",
         {.positions = [](X at, X decoded, X) { return at * (at >= decoded); }});
  for (const int n : t.counts_of_rows(16)) {
    t.rare("positions_wrap", "positions are taken modulo " + std::to_string(n),
           {.positions = [n](X at, X, X) { return at.remainder(n); }});
    t.rare("positions_end", "positions end at " + std::to_string(n - 1),
           {.positions = [n](X at, X, X) { return at.clamp_max(n - 1); }});
  }
}

}  // namespace

void add_rope_bugs(BugTable& table) {
  add_turns(table);
  add_scaling(table);
  add_frequencies(table);
  add_positions(table);
}

}  // namespace mkbench
