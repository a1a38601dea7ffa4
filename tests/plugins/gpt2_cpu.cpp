// A decoder of GPT-2, a model that mkbench_model does not describe: sizes from the text of config.json,
// weights by the names that transformers gives them. All arithmetic is in fp32.
//
//     g++ -O3 -shared -fPIC -I<mkbench's folder> gpt2_cpu.cpp -o engine.so
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "references/step_engine.h"

#ifndef GPT2_EPSILON
#define GPT2_EPSILON 1e-5f  // layer_norm_epsilon of config.json; another value is a bug
#endif

namespace {

using Vector = std::vector<float>;
using mkbench_step::Unfit;

// The integer behind a key of config.json.
int32_t number(const char* config, const std::string& key) {
  const std::string quoted = "\"" + key + "\": ";
  const char* at = std::strstr(config, quoted.c_str());
  if (at == nullptr) throw Unfit("config.json: there is no " + key);
  return std::atoi(at + quoted.size());
}

struct Affine {
  Vector weight, bias;
};

// x * weight + bias, weight [in, out].
Vector product(const Affine& by, const Vector& x) {
  Vector y = by.bias;
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t o = 0; o < y.size(); ++o) y[o] += x[i] * by.weight[i * y.size() + o];
  }
  return y;
}

Vector layer_norm(const Affine& by, const Vector& x) {
  const auto count = float(x.size());
  float mean = 0, variance = 0;
  for (const float value : x) mean += value / count;
  for (const float value : x) variance += (value - mean) * (value - mean) / count;
  Vector y = by.bias;
  for (size_t i = 0; i < x.size(); ++i)
    y[i] += by.weight[i] * (x[i] - mean) / std::sqrt(variance + GPT2_EPSILON);
  return y;
}

struct Layer {
  Affine before_attention, before_mlp, qkv, attention, up, down;
  Vector keys, values;  // [max_context, hidden]
  Vector shown;         // the hidden state behind the layer
};

float gelu(float x) {
  return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}

void add(Vector& to, const Vector& x) {
  for (size_t i = 0; i < x.size(); ++i) to[i] += x[i];
}

struct Gpt2 : mkbench_step::Step {
  static constexpr const char* name = "gpt2-cpu";
  static constexpr int32_t precision = MKBENCH_PRECISION_FP32_ACCUMULATE;

  int32_t hidden = 0, heads = 0, vocab = 0;
  Vector tokens, positions;  // [vocab, hidden], [n_positions, hidden]
  std::vector<Layer> layers;
  Affine last;

  int32_t open(const mkbench_step::Tensors& tensors) {
    const char* config = tensors.args.config_json;
    if (std::strstr(config, "\"model_type\": \"gpt2\"") == nullptr) throw Unfit("wanted a GPT-2");
    hidden = number(config, "n_embd");
    heads = number(config, "n_head");
    vocab = number(config, "vocab_size");
    const auto get = [&](const std::string& key, int64_t rows, int64_t cols = 1) {
      const uint16_t* from = tensors.get("transformer." + key, rows, cols);
      Vector values(size_t(rows * cols));
      std::transform(from, from + values.size(), values.begin(), [](uint16_t bf16) {
        const uint32_t bits = uint32_t{bf16} << 16;
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
      });
      return values;
    };
    const auto affine = [&](const std::string& key, int64_t rows, int64_t cols = 1) {
      return Affine{get(key + ".weight", rows, cols), get(key + ".bias", cols == 1 ? rows : cols)};
    };
    tokens = get("wte.weight", vocab, hidden);
    positions = get("wpe.weight", number(config, "n_positions"), hidden);
    for (int32_t i = 0; i < number(config, "n_layer"); ++i) {
      const std::string at = "h." + std::to_string(i) + ".";
      const Vector rows(size_t(tensors.args.max_context) * hidden);
      layers.push_back({affine(at + "ln_1", hidden), affine(at + "ln_2", hidden),
                        affine(at + "attn.c_attn", hidden, 3 * hidden),
                        affine(at + "attn.c_proj", hidden, hidden),
                        affine(at + "mlp.c_fc", hidden, 4 * hidden),
                        affine(at + "mlp.c_proj", 4 * hidden, hidden), rows, rows, Vector(hidden)});
    }
    last = affine("ln_f", hidden);
    return vocab;
  }

  // Attention of one position over itself and the rows below it.
  Vector attend(Layer& layer, const Vector& qkv, int32_t position) const {
    std::copy_n(&qkv[hidden], hidden, &layer.keys[position * hidden]);
    std::copy_n(&qkv[2 * hidden], hidden, &layer.values[position * hidden]);
    const int32_t width = hidden / heads;
    Vector mixed(hidden), odds(position + 1);
    for (int32_t at = 0; at < hidden; at += width) {
      float sum = 0;
      for (int32_t p = 0; p <= position; ++p) {
        float score = 0;
        for (int32_t i = at; i < at + width; ++i) score += qkv[i] * layer.keys[p * hidden + i];
        sum += odds[p] = std::exp(score / std::sqrt(float(width)));
      }
      for (int32_t p = 0; p <= position; ++p) {
        for (int32_t i = at; i < at + width; ++i)
          mixed[i] += odds[p] / sum * layer.values[p * hidden + i];
      }
    }
    return mixed;
  }

  int32_t step(int32_t token, int32_t position, float* logits) {
    Vector x(&tokens[token * hidden], &tokens[token * hidden] + hidden);
    for (int32_t i = 0; i < hidden; ++i) x[i] += positions[position * hidden + i];
    for (Layer& layer : layers) {
      const Vector qkv = product(layer.qkv, layer_norm(layer.before_attention, x));
      add(x, product(layer.attention, attend(layer, qkv, position)));
      Vector up = product(layer.up, layer_norm(layer.before_mlp, x));
      std::transform(up.begin(), up.end(), up.begin(), gelu);
      add(x, product(layer.down, up));
      layer.shown = x;
    }
    x = layer_norm(last, x);
    Vector row(vocab);
    for (int32_t id = 0; id < vocab; ++id) {
      for (int32_t i = 0; i < hidden; ++i) row[id] += x[i] * tokens[id * hidden + i];
    }
    if (logits != nullptr) std::copy(row.begin(), row.end(), logits);
    return int32_t(std::max_element(row.begin(), row.end()) - row.begin());
  }

  bool show(const mkbench_show& s) const {
    if (s.what != MKBENCH_SHOW_HIDDEN) throw std::logic_error("KV rows are not asked for");
    std::copy(layers[s.layer].shown.begin(), layers[s.layer].shown.end(), s.out);
    return true;
  }
};

}  // namespace

MKBENCH_STEP_ENGINE(Gpt2)
