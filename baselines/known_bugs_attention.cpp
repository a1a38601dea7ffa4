// Scores, masks, softmax, heads, and which KV rows are read.
#include <ATen/ATen.h>

#include <cmath>
#include <cstdint>

#include "baselines/bug_table.h"

namespace mkbench {
namespace {

using at::Tensor;
using X = const Tensor&;

void add_scores(BugTable& t) {
  const ModelShape& s = t.config.shape;
  const double scale = std::sqrt(static_cast<double>(s.head_dim));
  const auto factor = [&](auto name, const std::string& text, double value) {
    t.add(name, text, {.score_factor = value});
  };
  factor("scale_missing", "scores without 1 / sqrt(head_dim)", scale);
  factor("scale_twice", "scores times 1 / head_dim: 1 / sqrt(head_dim) twice", 1 / scale);
  factor("scale_inverse", "scores times sqrt(head_dim)", scale * scale);
  factor("softmax_base_2", "softmax with 2^x for e^x", std::log(2.0));
  factor("softmax_log2e", "scores times log2(e), and softmax with e^x", 1 / std::log(2.0));
  const auto width = [&](auto name, const std::string& text, double value) {
    if (value != s.head_dim)
      factor(name, "scores times 1 / sqrt(" + text + ")", scale / std::sqrt(value));
  };
  width("scale_hidden", "hidden", s.hidden);
  width("scale_heads", "heads", s.heads);
  width("scale_half", "head_dim / 2", s.head_dim / 2.0);
  if (s.hidden != s.head_dim * s.heads)
    width("scale_hidden_heads", "hidden / heads", static_cast<double>(s.hidden) / s.heads);
  for (const double dim : {32.0, 64.0, 80.0, 128.0, 256.0})
    if (2 * dim != s.head_dim) width("scale_fixed", number(dim), dim);
}

using Seen = std::function<Tensor(X i, X j, X decoded)>;

void add_masks(BugTable& t) {
  const auto mask = [&](auto name, const std::string& text, Seen seen) {
    t.add(name, text, {.seen = std::move(seen)});
  };
  const Seen older = [](X i, X j, X) { return (j < i) | ((i == 0) & (j == 0)); };
  mask("cache_length", "attention leaves out the newest KV row", older);
  mask("cache_length_decode", "attention leaves out the newest KV row in decoded steps",
       [](X i, X j, X decoded) { return (j <= i) & ((j < i) | (i == 0) | (i < decoded)); });
  const auto all = [](X i, X) { return i >= 0; };
  t.add("newest_row_late", "the newest KV row is read before it is written, as zeros",
        {.seen = [](X i, X j, X) { return j < i; }, .zero_row = all});
  t.add("zero_row_seen", "attention reads one KV row too many, which holds zeros",
        {.zero_row = all});
  const Seen behind_first = [](X i, X j, X) { return (j <= i) & ((j > 0) | (i == 0)); };
  t.add("kv_row_before",
        "KV rows are written one position too early, and the last one that is read holds zeros",
        {.seen = behind_first, .zero_row = all});
  mask("next_row_seen", "rows of the prompt see the row behind them",
       [](X i, X j, X decoded) { return (j <= i + 1) & ((j < decoded) | (j <= i)); });
  mask("no_causal_mask", "rows of the prompt see the whole prompt",
       [](X i, X j, X decoded) { return (j <= i) | ((i < decoded) & (j < decoded)); });
  mask("first_row_unseen", "attention leaves out KV row 0", behind_first);
  mask("prompt_forgotten", "decoded rows do not see the prompt's",
       [](X i, X j, X decoded) { return (j <= i) & ((i < decoded) | (j >= decoded)); });
  mask("decoded_unseen", "decoded rows see the prompt's and their own alone",
       [](X i, X j, X decoded) { return (j <= i) & ((j < decoded) | (j == i)); });
  for (const int n : t.counts_of_rows(2)) {
    const std::string count = std::to_string(n);
    mask("window", "attention sees the last " + count + " rows alone",
         [n](X i, X j, X) { return (j <= i) & (j > i - n); });
    mask("every_nth_unseen", "attention leaves out every row n * " + count + " - 1",
         [n](X i, X j, X) { return (j <= i) & ((j.remainder(n) != n - 1) | (i == 0)); });
    mask("first_rows_alone", "attention sees rows 0 to " + std::to_string(n - 1) + " alone",
         [n](X i, X j, X) { return (j <= i) & (j < n); });
    mask("last_tile_unseen", "attention leaves out the rows behind the last whole tile of " + count,
         [n](X i, X j, X) { return (j <= i) & ((j < ((i + 1) / n).floor() * n) | (i + 1 < n)); });
    if (n < t.rows / 2) {
      mask("half_tiles_unseen",
           "attention leaves out the second " + count + " rows of each " + std::to_string(2 * n),
           [n](X i, X j, X) { return (j <= i) & (j.remainder(2 * n) < n); });
    }
  }
}

void add_softmax(BugTable& t) {
  const auto softmax = [&](auto name, const std::string& text, auto shares, bool rare = true) {
    t.add(name, text, {.softmax = shares}, rare ? BugTable::kRare : BugTable::kFrequent);
  };
  const auto exp = [](X scores) { return (scores - scores.amax(-1, true)).exp(); };
  softmax("softmax_sum", "softmax without the division by its sum", exp, false);
  softmax("softmax_plus_one", "softmax divides by its sum plus 1", [exp](X scores) {
    const Tensor e = exp(scores);
    return e / (e.sum(-1, true) + 1);
  });
  softmax("newest_key_zero", "the newest row of K is read as zeros, and that of V is right",
          [](X scores) {
            const Tensor changed = scores.clone();
            changed.diagonal(0, -2, -1).zero_();
            return at::softmax(changed, -1);
          });
  softmax("newest_value_zero", "the newest row of V is read as zeros, and that of K is right",
          [](X scores) {
            const Tensor shares = at::softmax(scores, -1);
            shares.diagonal(0, -2, -1).zero_();
            return shares;
          });
  for (const int n : {2, 4, 8, 16, 32}) {
    const std::string count = std::to_string(n);
    softmax("split_maxima",
            "rows are split in " + count + " (row % " + count +
                "), each less its own maximum, and merged without scaling",
            [n](X scores) {
              Tensor parts = scores.clone();
              const int64_t splits = std::min(int64_t{n}, scores.size(-1));
              for (int64_t split = 0; split < splits; ++split) {
                Tensor part = parts.slice(-1, split, parts.size(-1), splits);
                const Tensor most = part.amax(-1, true);
                part.copy_((part - at::where(most.isinf(), at::zeros_like(most), most)).exp());
              }
              return parts / parts.sum(-1, true);
            });
  }
  // Online softmax: tiles of rows in turn, each less the largest score so far.
  for (const int n : {1, 2, 4, 8, 16, 32, 64}) {
    if (n >= t.rows) continue;
    const auto online = [n](X scores) {
      Tensor most = std::get<0>(scores.cummax(-1));
      const int64_t rows = scores.size(-1);
      const Tensor tile = at::arange(rows, scores.options().dtype(at::kLong)).floor_divide(n);
      most = most.index_select(-1, (tile * n + n - 1).clamp_max(rows - 1));
      return at::where(scores.isinf(), at::zeros_like(scores), (scores - most).exp());
    };
    const std::string tiles = "online softmax in tiles of " + std::to_string(n) + ": ";
    softmax("online_unscaled", tiles + "neither sum nor output is scaled to the new maximum",
            [online](X scores) {
              const Tensor parts = online(scores);
              return parts / parts.sum(-1, true);
            });
    softmax("online_output_unscaled", tiles + "the output is not scaled to the new maximum",
            [online, exp](X scores) { return online(scores) / exp(scores).sum(-1, true); });
    softmax("online_sum_unscaled", tiles + "the sum is not scaled to the new maximum",
            [online, exp](X scores) { return exp(scores) / online(scores).sum(-1, true); });
  }
  for (const PartOfSum& part : parts_of_sum(t.rows)) {
    if (part.of_all) continue;  // the number of rows grows
    const auto kept = [part](X x) { return part.kept(x); };
    softmax("softmax_sum_part", "softmax's sum leaves out " + part.left_out + " (rows)",
            [exp, kept](X scores) {
              const Tensor e = exp(scores);
              return e / kept(e).sum(-1, true);
            });
    softmax("value_sum_part", "the sum over V leaves out " + part.left_out + " (rows)",
            [kept](X scores) { return kept(at::softmax(scores, -1)); });
  }
}

Tensor late(X x) { return at::cat({x.narrow(2, 0, 1), x.narrow(2, 0, x.size(2) - 1)}, 2); }

void add_heads(BugTable& t) {
  const ModelShape& s = t.config.shape;
  const int64_t kv = s.kv_heads, group = s.gqa_group();
  const auto edit = [&](auto name, auto text, void (*edited)(Heads&)) {
    t.add(name, text, {.heads = edited});
  };
  edit("keys_late", "K of the row before", [](Heads& h) { h.k = late(h.k); });
  edit("values_late", "V of the row before", [](Heads& h) { h.v = late(h.v); });
  edit("keys_for_values", "attention reads K's rows for V", [](Heads& h) { h.v = h.k; });
  edit("cache_of_layer_before", "attention reads the KV rows of the layer before", [](Heads& h) {
    if (h.k_before.defined()) h.k = h.k_before, h.v = h.v_before;
  });
  if (s.qk_norm) {
    edit("value_normed", "k_norm of V too",
         [](Heads& h) { h.v = rms_normed(h.v, h.weights.k_norm, h.eps); });
  }
  if (s.qkv_bias) {
    Hooks hooks{
        .heads = [q = s.q_width(), w = s.kv_width(), heads = int64_t{s.heads}, kv](Heads& h) {
          X bias = h.weights.qkv_bias;
          h.q = h.q + bias.narrow(0, 0, q).view({1, heads, 1, -1});
          h.k = h.k + bias.narrow(0, q, w).view({1, kv, 1, -1});
        }};
    hooks.weights = [end = s.q_width() + s.kv_width()](LayerTensors& w, auto&, int) {
      w.qkv_bias = w.qkv_bias.clone();
      w.qkv_bias.narrow(0, 0, end).zero_();
    };
    t.add("bias_after_rope", "the biases of q and k are added after RoPE", hooks);
  }
  for (const PartOfSum& part : parts_of_sum(s.head_dim)) {
    t.rare("score_part", "sums of q * k leave out " + part.left_out,
           {.heads = [part](Heads& h) { h.k = part.kept(h.k); }});
  }
  if (kv == 1) return;
  using Map = std::function<int64_t(int64_t)>;
  const auto map = [&](const std::string& name, const std::string& text, const Map& of) {
    const auto of_k = [=](int64_t h, bool v) { return v ? h / group : of(h); };
    const auto of_v = [=](int64_t h, bool v) { return v ? of(h) : h / group; };
    t.add(name, "query head h reads kv head " + text,
          {.kv_head = [of](int64_t h, bool) { return of(h); }});
    t.add(name + "_of_keys", "query head h reads K of kv head " + text, {.kv_head = of_k});
    t.add(name + "_of_values", "query head h reads V of kv head " + text, {.kv_head = of_v});
  };
  if (group > 1) map("gqa_map", "h % " + std::to_string(kv), [kv](int64_t h) { return h % kv; });
  map("gqa_first", "0", [](int64_t) { return 0; });
  map("gqa_next", "h / " + std::to_string(group) + " + 1",
      [=](int64_t h) { return (h / group + 1) % kv; });
  if (group > 1 && group != kv) {
    map("gqa_divisor", "h / " + std::to_string(kv),
        [kv](int64_t h) { return std::min(h / kv, kv - 1); });
  }
  t.add("next_value_head", "kv head 0 reads V of head 1",
        {.kv_head = [=](int64_t h, bool v) { return v && h / group == 0 ? 1 : h / group; }});
}

}  // namespace

void add_attention_bugs(BugTable& table) {
  add_scores(table);
  add_masks(table);
  add_softmax(table);
  add_heads(table);
}

}  // namespace mkbench
