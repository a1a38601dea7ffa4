// Tensors of layers that are wrong, in a wrong place or read in a wrong order.
#include <ATen/ATen.h>

#include <string>
#include <utility>

#include "baselines/bug_table.h"

namespace mkbench {
namespace {

using at::Tensor;
using Member = Tensor LayerTensors::*;

Hooks weights(std::function<void(LayerTensors&)> edit) {
  return {.weights = [=](LayerTensors& w, const ModelTensors&, int) { edit(w); }};
}

// The rows of q, k or v among those of all three, as the biases stand.
struct Projection {
  const char* name;
  Member matrix;
  int64_t first, width, heads;

  Tensor bias(const LayerTensors& w) const {
    return w.qkv_bias.defined() ? w.qkv_bias.narrow(0, first, width) : Tensor();
  }
};

std::vector<Projection> projections(const ModelShape& s) {
  const int64_t q = s.q_width(), kv = s.kv_width();
  return {{"q", &LayerTensors::q_proj, 0, q, s.heads},
          {"k", &LayerTensors::k_proj, q, kv, s.kv_heads},
          {"v", &LayerTensors::v_proj, q + kv, kv, s.kv_heads}};
}

// `to` gets the first rows of `from`, and its biases.
void take(LayerTensors& w, const LayerTensors& own, const Projection& to, const Projection& from) {
  w.*to.matrix = (own.*from.matrix).narrow(0, 0, to.width);
  if (!own.qkv_bias.defined()) return;
  w.qkv_bias = w.qkv_bias.clone();
  to.bias(w).copy_(from.bias(own).narrow(0, 0, to.width));
}

void add_projections(BugTable& t) {
  const ModelShape& s = t.config.shape;
  const auto all = projections(s);
  const Projection &q = all[0], &k = all[1], &v = all[2];
  const auto swapped = [](const Projection& a, const Projection& b) {
    return weights([=](LayerTensors& w) {
      const LayerTensors own = w;
      take(w, own, a, b), take(w, own, b, a);
    });
  };
  t.add("kv_swapped", "the weights of K and V changed places", swapped(k, v));
  if (q.width == k.width)
    t.add("qk_swapped", "the weights of Q and K changed places", swapped(q, k));
  for (const auto& [to, from] : {std::pair(v, k), {k, v}, {k, q}, {v, q}}) {
    const std::string first = from.width > to.width ? "the first rows of " : "";
    t.add(std::string(to.name) + "_of_" + from.name,
          std::string(to.name) + " is projected with " + first + from.name + "_proj",
          weights([=](LayerTensors& w) { take(w, LayerTensors(w), to, from); }));
  }
  for (const Projection& p : all) {
    if (p.heads == 1) continue;
    t.add(std::string(p.name) + "_split",
          std::string(p.name) +
              "_proj's output is read as [head_dim, heads] instead of [heads, head_dim]",
          weights([p](LayerTensors& w) {
            const auto regroup = [&](const Tensor& x) {
              return x.unflatten(0, {x.size(0) / p.heads, p.heads})
                  .transpose(0, 1)
                  .flatten(0, 1)
                  .clone();
            };
            w.*p.matrix = regroup(w.*p.matrix);
            if (!w.qkv_bias.defined()) return;
            w.qkv_bias = w.qkv_bias.clone();
            p.bias(w).copy_(regroup(p.bias(w)));
          }));
  }
  if (s.heads > 1) {
    t.add("heads_transposed",
          "o_proj reads heads as [head_dim, heads] instead of [heads, head_dim]",
          weights([heads = int64_t{s.heads}](LayerTensors& w) {
            const Tensor& o = w.o_proj;
            w.o_proj = o.unflatten(1, {o.size(1) / heads, heads}).transpose(1, 2).flatten(1, 2);
          }));
  }
  if (s.q_width() == s.hidden) {
    t.add("o_missing", "attention's output without o_proj", weights([](LayerTensors& w) {
            w.o_proj = at::eye(w.o_proj.size(0), w.o_proj.options());
          }));
  }
}

void add_biases(BugTable& t) {
  const auto all = projections(t.config.shape);
  const auto edit = [&](auto name, const std::string& text, const Projection& p, auto changed) {
    t.add(name, text, weights([=](LayerTensors& w) {
            w.qkv_bias = w.qkv_bias.clone();
            p.bias(w).copy_(changed(p.bias(w)));
          }));
  };
  Projection qkv{"q, k and v", nullptr, 0, all[0].width + 2 * all[1].width, 0};
  for (const Projection& p : {qkv, all[0], all[1], all[2]}) {
    edit("bias_dropped", std::string("no bias of ") + p.name, p,
         [](const Tensor& b) { return at::zeros_like(b); });
    edit("bias_twice", std::string("the bias of ") + p.name + " is added twice", p,
         [](const Tensor& b) { return b * 2; });
  }
  t.add("bias_kv_swapped", "the biases of k and v changed places",
        weights([k = all[1], v = all[2]](LayerTensors& w) {
          w.qkv_bias = at::cat({w.qkv_bias.narrow(0, 0, k.first), v.bias(w), k.bias(w)});
        }));
}

struct NamedMatrix {
  const char* name;
  std::vector<Member> members;
};

std::vector<NamedMatrix> matrices() {
  return {{"q_proj", {&LayerTensors::q_proj}},       {"k_proj", {&LayerTensors::k_proj}},
          {"v_proj", {&LayerTensors::v_proj}},       {"o_proj", {&LayerTensors::o_proj}},
          {"gate_proj", {&LayerTensors::gate_proj}}, {"up_proj", {&LayerTensors::up_proj}},
          {"down_proj", {&LayerTensors::down_proj}}};
}

void add_matrices(BugTable& t) {
  const ModelShape& s = t.config.shape;
  const auto each = [](const NamedMatrix& m, auto changed) {
    return weights([=](LayerTensors& w) {
      for (const Member member : m.members) w.*member = changed(w.*member);
    });
  };
  std::vector<NamedMatrix> all = matrices();
  for (const NamedMatrix& m : all) {
    t.add("transposed", std::string(m.name) + " transposed", each(m, [](const Tensor& x) {
            return x.reshape({x.size(1), x.size(0)}).t();
          }));
  }
  all[0] = {"q, k and v", {all[0].members[0], all[1].members[0], all[2].members[0]}};
  all[4] = {"gate and up", {all[4].members[0], all[5].members[0]}};
  for (const auto& [m, n] : {std::pair(all[0], s.hidden),
                             {all[3], s.q_width()},
                             {all[4], s.hidden},
                             {all[6], s.intermediate}}) {
    for (const PartOfSum& part : parts_of_sum(n)) {
      t.rare("matrix_part", std::string("sums of ") + m.name + " leave out " + part.left_out,
             each(m, [part](const Tensor& x) { return part.kept(x); }));
    }
  }
}

// Which norm has whose weights.
void add_norm_weights(BugTable& t) {
  constexpr Member kInput = &LayerTensors::input_norm, kPost = &LayerTensors::post_attention_norm;
  constexpr Member kQ = &LayerTensors::q_norm, kK = &LayerTensors::k_norm;
  const auto swapped = [](Member a, Member b) {
    return weights([=](LayerTensors& w) { std::swap(w.*a, w.*b); });
  };
  const auto taken = [](Member to, Member from) {
    return weights([=](LayerTensors& w) { w.*to = w.*from; });
  };
  const auto bare = [](Member of) {
    return weights([=](LayerTensors& w) { w.*of = at::ones_like(w.*of); });
  };
  t.add("norms_swapped",
        "the weights of the norms before attention and before the MLP changed places",
        swapped(kInput, kPost));
  t.add("input_norm_of_mlp", "the norm before attention has the weights of that before the MLP",
        taken(kInput, kPost));
  t.add("post_norm_of_attention",
        "the norm before the MLP has the weights of that before attention", taken(kPost, kInput));
  t.add("input_norm_unweighted", "the norm before attention without its weights", bare(kInput));
  t.add("post_norm_unweighted", "the norm before the MLP without its weights", bare(kPost));
  if (!t.config.shape.qk_norm) return;
  const auto none = [](bool q, bool k) {
    return weights([=](LayerTensors& w) {
      if (q) w.q_norm = Tensor();
      if (k) w.k_norm = Tensor();
    });
  };
  t.add("skip_q_norm", "no q_norm", none(true, false), BugTable::kInLayersToo);
  t.add("skip_k_norm", "no k_norm", none(false, true), BugTable::kInLayersToo);
  t.add("skip_qk_norm", "neither q_norm nor k_norm", none(true, true));
  t.add("qk_norms_swapped", "q_norm's weights for k and k_norm's for q", swapped(kQ, kK));
  t.add("q_norm_of_k", "k_norm's weights for q too", taken(kQ, kK));
  t.add("k_norm_of_q", "q_norm's weights for k too", taken(kK, kQ));
  t.add("q_norm_unweighted", "q_norm without its weights", bare(kQ));
  t.add("k_norm_unweighted", "k_norm without its weights", bare(kK));
}

void add_mlp_weights(BugTable& t) {
  t.add("swap_gate_up", "gate and up changed places",
        weights([](LayerTensors& w) { std::swap(w.gate_proj, w.up_proj); }),
        BugTable::kInLayersToo);
  t.add("gate_twice", "gate_proj for up_proj too",
        weights([](LayerTensors& w) { w.up_proj = w.gate_proj; }));
  t.add("up_twice", "up_proj for gate_proj too",
        weights([](LayerTensors& w) { w.gate_proj = w.up_proj; }));
  t.add("gate_up_interleaved",
        "rows of gate and up in one matrix are read in turn, and stand one behind the other",
        weights([](LayerTensors& w) {
          const Tensor all = at::cat({w.gate_proj, w.up_proj});
          w.gate_proj = all.slice(0, 0, all.size(0), 2),
          w.up_proj = all.slice(0, 1, all.size(0), 2);
        }));
  t.add("gate_up_halves",
        "rows of gate and up in one matrix are read one behind the other, and stand in turn",
        weights([](LayerTensors& w) {
          const Tensor all = at::stack({w.gate_proj, w.up_proj}, 1).flatten(0, 1);
          w.gate_proj = all.narrow(0, 0, w.gate_proj.size(0));
          w.up_proj = all.narrow(0, w.gate_proj.size(0), w.gate_proj.size(0));
        }));
}

// Weights of another layer.
void add_other_layers(BugTable& t) {
  const auto of = [](int (*from)(int layer, int last)) {
    return Hooks{.weights = [=](LayerTensors& w, const ModelTensors& m, int l) {
      w = m.layers[static_cast<size_t>(from(l, static_cast<int>(m.layers.size()) - 1))];
    }};
  };
  t.add("first_layer_alone", "every layer has the weights of layer 0",
        of([](int, int) { return 0; }));
  t.add("layers_late", "every layer has the weights of the layer before, and layer 0 its own",
        of([](int l, int) { return std::max(0, l - 1); }));
  t.add("layers_early", "every layer has the weights of the layer behind it, and the last its own",
        of([](int l, int last) { return std::min(last, l + 1); }));
  t.add("layers_reversed", "layers run in reverse", of([](int l, int last) { return last - l; }));
  t.add("layer_before", "with the weights of the layer before",
        of([](int l, int) { return std::max(0, l - 1); }), BugTable::kInLayersAlone);
  t.add("layer_behind", "with the weights of the layer behind it",
        of([](int l, int last) { return std::min(last, l + 1); }), BugTable::kInLayersAlone);
  std::vector<NamedMatrix> members = matrices();
  members.push_back({"input_layernorm", {&LayerTensors::input_norm}});
  members.push_back({"post_attention_layernorm", {&LayerTensors::post_attention_norm}});
  if (t.config.shape.qk_norm) {
    members.push_back({"q_norm", {&LayerTensors::q_norm}});
    members.push_back({"k_norm", {&LayerTensors::k_norm}});
  }
  if (t.config.shape.qkv_bias) members.push_back({"biases", {&LayerTensors::qkv_bias}});
  for (const NamedMatrix& m : members) {
    t.rare("tensor_of_layer_0", std::string("every layer has layer 0's ") + m.name,
           {.weights = [of = m.members[0]](LayerTensors& w, const ModelTensors& all, int) {
             w.*of = all.layers[0].*of;
           }});
  }
}

}  // namespace

void add_weight_bugs(BugTable& table) {
  add_norm_weights(table);
  add_projections(table);
  if (table.config.shape.qkv_bias) add_biases(table);
  add_mlp_weights(table);
  add_other_layers(table);
  add_matrices(table);
}

}  // namespace mkbench
