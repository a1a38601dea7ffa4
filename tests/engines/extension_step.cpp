// The C++ side of extension_decoder.py: Qwen3's greedy steps on torch tensors, rounded as HF transformers
// rounds them in bf16. With WITH_CUDA the RMSNorm is the kernel of extension_norm.cu.
#include <torch/extension.h>

#include <optional>
#include <tuple>
#include <vector>

using torch::Tensor;

#ifdef WITH_CUDA
// x [rows, width] and weight [width], bf16 on one card -> bf16 [rows, width].
Tensor rms_norm_on_card(const Tensor& x, const Tensor& weight, double eps);
#endif

namespace {

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
#ifdef WITH_CUDA
  if (x.is_cuda()) return rms_norm_on_card(x, weight, eps);
#endif
  const Tensor wide = x.to(torch::kFloat);
  const Tensor scale = torch::rsqrt(wide.square().mean(-1, true) + eps);
  return weight * (wide * scale).to(torch::kBFloat16);
}

struct Shape {
  int64_t heads, kv_heads, dim, max_context;
  double eps;
};

// The weights and the KV cache of one layer. qkv holds the rows of q_proj, then those of k_proj, then
// those of v_proj; gate_up those of gate_proj, then those of up_proj.
struct Layer {
  Tensor input_norm, qkv, q_norm, k_norm, out, post_norm, gate_up, down;
  Tensor k_cache, v_cache;  // bf16 [kv_heads, max_context, dim]
};

class Model {
 public:
  // layers: of each the first eight tensors of Layer. inverse: fp32 [dim / 2].
  Model(const std::vector<std::vector<Tensor>>& layers, Tensor embedding, Tensor norm, Tensor head,
        const Tensor& inverse, std::tuple<int64_t, int64_t, int64_t, int64_t, double> shape)
      : embedding_(std::move(embedding)), norm_(std::move(norm)), head_(std::move(head)) {
    std::tie(shape_.heads, shape_.kv_heads, shape_.dim, shape_.max_context, shape_.eps) = shape;
    for (const std::vector<Tensor>& t : layers) {
      TORCH_CHECK(t.size() == 8, "a layer: found ", t.size(), " tensors, wanted 8");
      const auto cache = [&] {
        return torch::zeros({shape_.kv_heads, shape_.max_context, shape_.dim},
                            embedding_.options());
      };
      layers_.push_back({t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], cache(), cache()});
    }
    const auto device = embedding_.device();
    const Tensor angle =
        torch::outer(torch::arange(shape_.max_context, inverse.options()), inverse).repeat({1, 2});
    cos_ = angle.cos().to(torch::kBFloat16);
    sin_ = angle.sin().to(torch::kBFloat16);
    vocab_ = torch::arange(head_.size(0), torch::dtype(torch::kLong).device(device));
  }

  int64_t position() const { return position_; }
  void rewind(int64_t position) { position_ = position; }
  void set_pending(const Tensor& id) { pending_ = id; }

  // Writes the KV rows of `ids` [rows], which begin at the position.
  void feed(const Tensor& ids) { forward(ids); }

  // n steps; their ids, int64 [n]. forced [n] are their inputs instead; logits fp32 [n, vocab].
  Tensor decode(int64_t n, const std::optional<Tensor>& forced, std::optional<Tensor> logits) {
    std::vector<Tensor> ids;
    for (int64_t step = 0; step < n; ++step) {
      const Tensor h = forward(forced ? forced->narrow(0, step, 1) : pending_);
      const Tensor row = torch::linear(rms_norm(h, norm_, shape_.eps), head_).view({-1});
      if (logits) logits->select(0, step).copy_(row);
      // The lowest id among equals, which bf16 logits often are.
      pending_ = torch::where(row == row.max(), vocab_, vocab_.size(0)).min().view({1});
      ids.push_back(pending_);
    }
    return torch::cat(ids);
  }

 private:
  // The hidden state [1, hidden] of the last of `ids`.
  Tensor forward(const Tensor& ids) {
    const int64_t rows = ids.size(0);
    TORCH_CHECK(position_ + rows <= shape_.max_context, "KV rows: found ", position_ + rows,
                ", wanted at most ", shape_.max_context);
    Tensor h = torch::embedding(embedding_, ids);
    for (Layer& layer : layers_) {
      h = h + attention(layer, rms_norm(h, layer.input_norm, shape_.eps));
      const std::vector<Tensor> both =
          torch::linear(rms_norm(h, layer.post_norm, shape_.eps), layer.gate_up).chunk(2, -1);
      h = h + torch::linear(torch::silu(both[0]) * both[1], layer.down);
    }
    position_ += rows;
    return h.narrow(0, rows - 1, 1);
  }

  // heads [n, rows, dim], each a vector of its own: norm, then RoPE.
  Tensor placed(const Tensor& heads, const Tensor& weight) const {
    const int64_t rows = heads.size(1);
    const Tensor x =
        rms_norm(heads.reshape({-1, shape_.dim}), weight, shape_.eps).view(heads.sizes());
    const std::vector<Tensor> halves = x.chunk(2, -1);
    const Tensor turned = torch::cat({-halves[1], halves[0]}, -1);
    return x * cos_.narrow(0, position_, rows) + turned * sin_.narrow(0, position_, rows);
  }

  Tensor attention(Layer& layer, const Tensor& x) {
    const int64_t rows = x.size(0), kv = shape_.kv_heads;
    const std::vector<Tensor> qkv = torch::linear(x, layer.qkv)
                                        .view({rows, shape_.heads + 2 * kv, shape_.dim})
                                        .transpose(0, 1)
                                        .split_with_sizes({shape_.heads, kv, kv});
    layer.k_cache.narrow(1, position_, rows).copy_(placed(qkv[1], layer.k_norm));
    layer.v_cache.narrow(1, position_, rows).copy_(qkv[2]);
    const int64_t seen = position_ + rows;
    // Row r sees the rows up to position_ + r.
    std::optional<Tensor> mask;
    if (rows > 1) {
      mask = torch::ones({rows, seen}, x.options().dtype(torch::kBool)).tril(position_);
    }
    const Tensor mixed = at::scaled_dot_product_attention(
        placed(qkv[0], layer.q_norm).unsqueeze(0), layer.k_cache.narrow(1, 0, seen).unsqueeze(0),
        layer.v_cache.narrow(1, 0, seen).unsqueeze(0), mask, 0.0, false, std::nullopt, true);
    return torch::linear(mixed[0].transpose(0, 1).reshape({rows, -1}), layer.out);
  }

  Shape shape_{};
  Tensor embedding_, norm_, head_, cos_, sin_, vocab_, pending_;
  std::vector<Layer> layers_;
  int64_t position_ = 0;
};

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  pybind11::class_<Model>(m, "Model")
      .def(pybind11::init<const std::vector<std::vector<Tensor>>&, Tensor, Tensor, Tensor,
                          const Tensor&, std::tuple<int64_t, int64_t, int64_t, int64_t, double>>())
      .def_property_readonly("position", &Model::position)
      .def("rewind", &Model::rewind)
      .def("set_pending", &Model::set_pending)
      .def("feed", &Model::feed)
      .def("decode", &Model::decode);
}
