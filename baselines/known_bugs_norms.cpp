#include <ATen/ATen.h>

#include <string>

#include "baselines/bug_table.h"

namespace mkbench {
namespace {

using at::Tensor;
using X = const Tensor&;

bool of_heads(NormOf of) { return of == NormOf::kQueries || of == NormOf::kKeys; }

// Which norms have a bug.
struct Norms {
  const char *name, *text;
  bool stream, heads;
};

// Norms whose mean of squares is made by `mean`.
template <typename Mean>
Hooks with_mean(const Norms& norms, Mean mean) {
  return {.norm = [=](X x, X weight, double eps, NormOf of) {
    if (!(of_heads(of) ? norms.heads : norms.stream)) return rms_normed(x, weight, eps);
    return x * at::rsqrt(mean(x.pow(2)) + eps) * weight;
  }};
}

void add_means(BugTable& t, const Norms& norms) {
  const ModelShape& s = t.config.shape;
  const std::string text = norms.text;
  const auto add = [&](const std::string& name, const std::string& what, auto mean) {
    t.rare(norms.name + name, text + what, with_mean(norms, mean));
  };
  add("norm_sum", " divide by the root of the sum, not of the mean",
      [](X y) { return y.sum(-1, true); });
  add("norm_unbiased", " divide the sum of n squares by n - 1",
      [](X y) { return y.sum(-1, true) / (y.size(-1) - 1); });
  if (s.hidden != s.head_dim) {
    for (const int width : {s.hidden, s.head_dim})
      add("norm_width", " divide the sum of squares by " + std::to_string(width),
          [width](X y) { return y.sum(-1, true) / width; });
  }
  for (const PartOfSum& part : parts_of_sum(norms.stream ? s.hidden : s.head_dim)) {
    add("norm_sum_part", " sum without " + part.left_out,
        [part](X y) { return part.kept(y).mean(-1, true); });
    if (!norms.stream) continue;
    add("norm_mean_part", " take the mean without " + part.left_out, [part](X y) {
      return part.kept(y).sum(-1, true) / part.kept(at::ones_like(y)).sum(-1, true);
    });
  }
}

using Normed = std::function<Tensor(X x, X weight, double eps)>;

void add_formulas(BugTable& t) {
  const auto all = [&](auto name, const std::string& text, const Normed& normed) {
    t.add(name, text,
          {.norm = [=](X x, X weight, double eps, NormOf) { return normed(x, weight, eps); }});
  };
  for (const double eps : others({1e-5, 1e-6, 0, 1e-8, 1e-12, 1e-4, 1e-3}, t.config.rms_norm_eps)) {
    all("eps", "rms_norm_eps " + number(eps),
        [eps](X x, X weight, double) { return rms_normed(x, weight, eps); });
  }
  all("eps_outside", "norms divide by sqrt(mean) + eps", [](X x, X weight, double eps) {
    return x / (x.pow(2).mean(-1, true).sqrt() + eps) * weight;
  });
  all("norm_plus_one", "1 is added to the weights of all norms",
      [](X x, X weight, double eps) { return rms_normed(x, weight + 1, eps); });
  all("norm_weight_twice", "norms multiply by their weights twice",
      [](X x, X weight, double eps) { return rms_normed(x, weight * weight, eps); });
  all("layer_norm", "LayerNorm, which subtracts the mean, for RMSNorm",
      [](X x, X weight, double eps) { return rms_normed(x - x.mean(-1, true), weight, eps); });
  all("norm_variance", "norms divide by the standard deviation, and the mean stays",
      [](X x, X weight, double eps) {
        return x * at::rsqrt((x - x.mean(-1, true)).pow(2).mean(-1, true) + eps) * weight;
      });
  all("norm_no_root", "norms divide by the mean of squares without the root",
      [](X x, X weight, double eps) { return x / (x.pow(2).mean(-1, true) + eps) * weight; });
  all("norms_unweighted", "norms without their weights",
      [](X x, X weight, double eps) { return rms_normed(x, at::ones_like(weight), eps); });
}

// The norm before the head.
void add_final(BugTable& t) {
  const auto final = [&](auto name, const std::string& text, const Normed& normed) {
    t.add(name, text, {.norm = [=](X x, X weight, double eps, NormOf of) {
            return of == NormOf::kHead ? normed(x, weight, eps) : rms_normed(x, weight, eps);
          }});
  };
  final("skip_final_norm", "no norm before the LM head", [](X x, X, double) { return x; });
  final("final_norm_dropped", "the final norm without its weights",
        [](X x, X weight, double eps) { return rms_normed(x, at::ones_like(weight), eps); });
}

void add_head_norms(BugTable& t) {
  t.add("norm_after_rope", "q_norm and k_norm after RoPE", {.norms_late = true});
  t.add("qk_norm_whole", "q_norm and k_norm over all heads at once instead of each head",
        {.norm = [](X x, X weight, double eps, NormOf of) {
          if (!of_heads(of)) return rms_normed(x, weight, eps);
          return x * at::rsqrt(x.pow(2).mean(at::IntArrayRef({1, 3}), true) + eps) * weight;
        }});
  t.add("qk_norm_divisor",
        "q_norm and k_norm divide each head's sum of squares by all heads' width",
        {.norm = [](X x, X weight, double eps, NormOf of) {
          if (!of_heads(of)) return rms_normed(x, weight, eps);
          const double width = static_cast<double>(x.size(1) * x.size(3));
          return x * at::rsqrt(x.pow(2).sum(-1, true) / width + eps) * weight;
        }});
  const auto first = [](int64_t n) {
    return Hooks{.norm = [n](X x, X weight, double eps, NormOf of) {
      if (!of_heads(of)) return rms_normed(x, weight, eps);
      return at::cat({rms_normed(x.narrow(1, 0, n), weight, eps), x.narrow(1, n, x.size(1) - n)},
                     1);
    }};
  };
  const ModelShape& s = t.config.shape;
  if (s.heads > s.kv_heads)
    t.rare("q_norm_few_heads", "q_norm of as many heads as k has", first(s.kv_heads));
  if (s.heads > 1)
    t.rare("qk_norm_first_head", "q_norm and k_norm of the first head alone", first(1));
}

}  // namespace

void add_norm_bugs(BugTable& table) {
  add_formulas(table);
  add_final(table);
  add_means(table, {"", "norms", true, true});
  if (!table.config.shape.qk_norm) return;
  add_head_norms(table);
  add_means(table, {"stream_", "norms, but not q_norm and k_norm,", true, false});
  add_means(table, {"qk_", "q_norm and k_norm", false, true});
}

}  // namespace mkbench
