// Residual stream, what norms and MLP read, the MLP's product, and embedding and head.
#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <utility>

#include "baselines/bug_table.h"

namespace mkbench {
namespace {

using at::Tensor;
using X = const Tensor&;

// What attention makes of the stream, and then the MLP as it should be.
using FirstHalf = Tensor (*)(X h, const LayerParts& p);
Hooks before_mlp(FirstHalf half) {
  return {.layer = [half](X h, const LayerParts& p) {
    const Tensor a = half(h, p);
    return p.add(a, p.mlp(p.mlp_norm(a)));
  }};
}

// What the layer gives, if h went in, `mixed` came out of attention, and their sum is a.
using SecondHalf = Tensor (*)(X h, X mixed, X a, const LayerParts& p);
Hooks behind_attention(SecondHalf half) {
  return {.layer = [half](X h, const LayerParts& p) {
    const Tensor mixed = p.attention(p.norm(h));
    return half(h, mixed, p.add(h, mixed), p);
  }};
}

void add_stream(BugTable& t) {
  using P = const LayerParts&;
  const auto first = [&](auto name, auto text, FirstHalf half,
                         BugTable::Kind kind = BugTable::kFrequent) {
    t.add(name, text, before_mlp(half), kind);
  };
  const auto second = [&](auto name, auto text, SecondHalf half,
                          BugTable::Kind kind = BugTable::kFrequent) {
    t.add(name, text, behind_attention(half), kind);
  };
  constexpr auto kLayers = BugTable::kInLayersToo;
  first(
      "skip_input_norm", "no norm before attention",
      [](X h, P p) { return p.add(h, p.attention(h)); }, kLayers);
  first(
      "attention_residual_dropped", "attention's residual is dropped",
      [](X h, P p) { return p.attention(p.norm(h)); }, kLayers);
  first(
      "attention_missing", "attention is left out", [](X h, P) { return h; }, kLayers);
  first("residual_twice", "attention's residual is added twice",
        [](X h, P p) { return p.add(2 * h, p.attention(p.norm(h))); });
  first("attention_twice", "attention's output is added twice",
        [](X h, P p) { return p.add(h, 2 * p.attention(p.norm(h))); });
  first("attention_residual_normed", "attention's residual is taken behind its norm",
        [](X h, P p) { return p.add(p.norm(h), p.attention(p.norm(h))); });
  first("attention_output_normed", "attention's output is normed before it is added",
        [](X h, P p) { return p.add(h, p.norm(p.attention(p.norm(h)))); });

  second(
      "skip_post_norm", "no norm before the MLP", [](X, X, X a, P p) { return p.add(a, p.mlp(a)); },
      kLayers);
  second(
      "mlp_residual_dropped", "the MLP's residual is dropped",
      [](X, X, X a, P p) { return p.mlp(p.mlp_norm(a)); }, kLayers);
  second(
      "mlp_missing", "the MLP is left out", [](X, X, X a, P) { return a; }, kLayers);
  second("mlp_residual_twice", "the MLP's residual is added twice",
         [](X, X, X a, P p) { return p.add(2 * a, p.mlp(p.mlp_norm(a))); });
  second("mlp_twice", "the MLP's output is added twice",
         [](X, X, X a, P p) { return p.add(a, 2 * p.mlp(p.mlp_norm(a))); });
  second("mlp_residual_normed", "the MLP's residual is taken behind its norm",
         [](X, X, X a, P p) { return p.add(p.mlp_norm(a), p.mlp(p.mlp_norm(a))); });
  second("mlp_output_normed", "the MLP's output is normed before it is added",
         [](X, X, X a, P p) { return p.add(a, p.mlp_norm(p.mlp(p.mlp_norm(a)))); });
  second("parallel_mlp", "the MLP reads the residual from before attention",
         [](X h, X, X a, P p) { return p.add(a, p.mlp(p.mlp_norm(h))); });
  second(
      "mlp_of_attention_input", "the MLP reads what attention has read",
      [](X h, X, X a, P p) { return p.add(a, p.mlp(p.norm(h))); }, kLayers);
  second("mlp_of_attention_output", "the MLP reads attention's output without the residual",
         [](X, X mixed, X a, P p) { return p.add(a, p.mlp(p.mlp_norm(mixed))); });
  second("stale_residual", "the MLP's output is added to the residual from before attention",
         [](X h, X, X a, P p) { return p.add(h, p.mlp(p.mlp_norm(a))); });
  second("mlp_on_attention_output",
         "the MLP's output is added to attention's, and the stream is lost",
         [](X, X mixed, X a, P p) { return p.add(mixed, p.mlp(p.mlp_norm(a))); });
  second("mlp_on_attention_input", "the MLP's output is added to what attention has read",
         [](X h, X, X a, P p) { return p.add(p.norm(h), p.mlp(p.mlp_norm(a))); });
  second("residual_again", "the stream from before attention is added behind the MLP too",
         [](X h, X, X a, P p) { return p.add(a + h, p.mlp(p.mlp_norm(a))); });
  second("attention_again", "attention's output is added behind the MLP too",
         [](X, X mixed, X a, P p) { return p.add(a + mixed, p.mlp(p.mlp_norm(a))); });

  const auto whole = [&](auto name, auto text, FirstHalf layer,
                         BugTable::Kind kind = BugTable::kFrequent) {
    t.add(name, text, {.layer = layer}, kind);
  };
  whole("residual_normed", "residuals are taken behind the norm", [](X h, P p) {
    const Tensor x = p.norm(h), y = p.mlp_norm(p.add(x, p.attention(x)));
    return p.add(y, p.mlp(y));
  });
  whole("norms_behind", "norms stand behind the sums instead of before attention and MLP",
        [](X h, P p) {
          const Tensor a = p.norm(p.add(h, p.attention(h)));
          return p.mlp_norm(p.add(a, p.mlp(a)));
        });
  whole("mlp_first", "the MLP runs before attention", [](X h, P p) {
    const Tensor a = p.add(h, p.mlp(p.mlp_norm(h)));
    return p.add(a, p.attention(p.norm(a)));
  });
  whole(
      "layer_skipped", "left out", [](X h, P) { return h; }, BugTable::kInLayersAlone);
  whole(
      "layer_twice", "run twice",
      [](X h, P p) {
        Tensor x = h;
        for (int times = 0; times < 2; ++times) {
          const Tensor a = p.add(x, p.attention(p.norm(x)));
          x = p.add(a, p.mlp(p.mlp_norm(a)));
        }
        return x;
      },
      BugTable::kInLayersAlone);
}

void add_products(BugTable& t) {
  const auto product = [&](auto name, auto text, Tensor (*made)(X g, X u)) {
    t.add(name, text, {.product = made});
  };
  const bool silu = t.config.shape.activation == Activation::kSilu;
  if (silu) {
    product("gelu", "GELU for SiLU", [](X g, X u) { return at::gelu(g, "none") * u; });
    product("gelu_tanh", "GELU's tanh form for SiLU",
            [](X g, X u) { return at::gelu(g, "tanh") * u; });
    product("sigmoid", "sigmoid(x) for x * sigmoid(x)", [](X g, X u) { return g.sigmoid() * u; });
    product("quick_gelu", "x * sigmoid(1.702 x) for SiLU",
            [](X g, X u) { return g * (1.702 * g).sigmoid() * u; });
    product("silu_sign", "x * sigmoid(-x) for SiLU: the sign of the exponent",
            [](X g, X u) { return g * (-g).sigmoid() * u; });
    product("silu_base_2", "SiLU with 2^-x for e^-x",
            [](X g, X u) { return g * (std::log(2.0) * g).sigmoid() * u; });
  } else {
    product("silu", "SiLU for GELU's tanh form", [](X g, X u) { return at::silu(g) * u; });
    product("gelu", "GELU for its tanh form", [](X g, X u) { return at::gelu(g, "none") * u; });
  }
  product("relu", "ReLU for the activation", [](X g, X u) { return at::relu(g) * u; });
  product("tanh", "tanh for the activation", [](X g, X u) { return g.tanh() * u; });
  product("no_activation", "the gate without its activation", [](X g, X u) { return g * u; });
  // The rest is made of the model's own activation.
  const auto own = [&](auto name, auto text, auto made) {
    const auto act = [silu](X x) { return silu ? at::silu(x) : at::gelu(x, "tanh"); };
    t.add(name, text, {.product = [=](X g, X u) { return made(act, g, u); }});
  };
  own("up_missing", "the gate is not multiplied by up", [](auto act, X g, X) { return act(g); });
  own("gate_missing", "up alone, without the gate", [](auto, X, X u) { return u; });
  own("product_activated", "the activation of gate * up for the activated gate times up",
      [](auto act, X g, X u) { return act(g * u); });
  own("both_activated", "the activation of up too",
      [](auto act, X g, X u) { return act(g) * act(u); });
  own("gate_plus_up", "the activated gate plus up", [](auto act, X g, X u) { return act(g) + u; });
  own("activated_twice", "the activation twice",
      [](auto act, X g, X u) { return act(act(g)) * u; });
}

void add_embeddings(BugTable& t) {
  const ModelShape& s = t.config.shape;
  const double root = std::sqrt(static_cast<double>(s.hidden));
  t.add("embedding_scaled", "embeddings times sqrt(hidden)", {.embedding_factor = root});
  if (s.embedding_multiplier != 1)
    t.add("embedding_unscaled", "embeddings without the model's multiplier",
          {.embedding_factor = 1 / s.embedding_multiplier});
  if (!t.config.tie_word_embeddings) {
    t.add("embedding_of_head", "embeddings are rows of the LM head",
          {.embedding = [](const ModelTensors& m) { return m.lm_head; }});
    t.add("head_of_embedding", "the embedding for the LM head of a model that is not tied",
          {.head = [](const ModelTensors& m) { return m.embed; }});
  }
  t.add("embedding_transposed", "the embedding is read as [hidden, vocab]",
        {.embedding = [](const ModelTensors& m) {
          return m.embed.reshape({m.embed.size(1), m.embed.size(0)}).t().contiguous();
        }});
  using Ids = std::vector<int32_t>;
  const auto ids = [&](auto name, auto text, void (*edit)(Ids&, int& prompt)) {
    t.add(name, text, {.ids = edit});
  };
  ids("id_late", "decoded steps take the id before theirs", [](Ids& all, int& prompt) {
    for (size_t r = all.size() - 1; r >= static_cast<size_t>(prompt); --r) all[r] = all[r - 1];
  });
  ids("last_id_twice", "the prompt's last id is run twice", [](Ids& all, int& prompt) {
    all.insert(all.begin() + prompt, all[static_cast<size_t>(prompt) - 1]), ++prompt;
  });
  ids("first_id_twice", "the prompt's first id is run twice",
      [](Ids& all, int& prompt) { all.insert(all.begin(), all.front()), ++prompt; });
  ids("first_id_missing", "the prompt's first id is left out", [](Ids& all, int& prompt) {
    if (prompt > 1) all.erase(all.begin()), --prompt;
  });
  ids("last_id_missing", "the prompt's last id is left out", [](Ids& all, int& prompt) {
    if (prompt > 1) all.erase(all.begin() + prompt - 1), --prompt;
  });
  for (const int shift : {1, -1}) {
    t.add("embedding_shifted",
          shift > 0 ? "embeddings of the id one more" : "embeddings of the id one less",
          {.ids = [shift, n = s.vocab](Ids& all, int&) {
            for (int32_t& id : all) id = (id + shift + n) % n;
          }});
  }
}

void add_heads_of_vocabulary(BugTable& t) {
  const int hidden = t.config.shape.hidden;
  for (const int shift : {1, -1}) {
    t.add(
        "head_shifted",
        std::string("logits stand at the id one ") + (shift > 0 ? "more" : "less") + " than theirs",
        {.logits = [shift](X logits) { return logits.roll(shift, -1); }});
  }
  t.add("head_transposed", "the LM head is read as [hidden, vocab]",
        {.head = [](const ModelTensors& m) {
          return m.lm_head.reshape({m.lm_head.size(1), m.lm_head.size(0)}).t();
        }});
  t.add("logits_late", "logits are those of the row before", {.rows_late = 1});
  t.rare("logits_softmax", "softmax of the logits for the logits",
         {.logits = [](X logits) { return at::softmax(logits, -1); }});
  for (const PartOfSum& part : parts_of_sum(hidden)) {
    t.rare("head_part", "sums of the LM head leave out " + part.left_out,
           {.head = [part](const ModelTensors& m) { return part.kept(m.lm_head); }});
  }
}

}  // namespace

void add_layer_bugs(BugTable& table) {
  add_stream(table);
  add_products(table);
}

void add_end_bugs(BugTable& table) {
  add_embeddings(table);
  add_heads_of_vocabulary(table);
}

}  // namespace mkbench
