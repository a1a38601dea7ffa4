#include "tests/engines/llama/gguf_file.h"

#include <gguf.h>
#ifdef LLAMA_ENGINE_CUDA
#include <cuda_runtime_api.h>
#endif

#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

namespace {

// llama.cpp's name of a tensor of Hugging Face's Qwen3.
std::string gguf_name(std::string_view name) {
  static const std::map<std::string_view, const char*> kNames = {
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.norm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"},
      {"input_layernorm.weight", "attn_norm.weight"},
      {"self_attn.q_proj.weight", "attn_q.weight"},
      {"self_attn.k_proj.weight", "attn_k.weight"},
      {"self_attn.v_proj.weight", "attn_v.weight"},
      {"self_attn.o_proj.weight", "attn_output.weight"},
      {"self_attn.q_norm.weight", "attn_q_norm.weight"},
      {"self_attn.k_norm.weight", "attn_k_norm.weight"},
      {"post_attention_layernorm.weight", "ffn_norm.weight"},
      {"mlp.gate_proj.weight", "ffn_gate.weight"},
      {"mlp.up_proj.weight", "ffn_up.weight"},
      {"mlp.down_proj.weight", "ffn_down.weight"}};
  constexpr std::string_view kLayers = "model.layers.";
  std::string before;
  std::string_view rest = name;
  if (rest.starts_with(kLayers)) {
    rest.remove_prefix(kLayers.size());
    const size_t dot = rest.find('.');
    before = "blk." + std::string(rest.substr(0, dot)) + ".";
    rest = dot == std::string_view::npos ? "" : rest.substr(dot + 1);
  }
  const auto found = kNames.find(rest);
  if (found == kNames.end()) {
    throw OpenError(MKBENCH_UNFIT_MODEL, "llama.cpp's Qwen3 has no tensor " + std::string(name));
  }
  return before + found->second;
}

void set_metadata(gguf_context* file, const mkbench_model& m, int32_t max_context) {
  if (const char* why = mkbench_unlike_qwen3(&m)) {
    throw OpenError(MKBENCH_UNFIT_MODEL,
                    std::string(why) + "; this adapter writes Qwen3's GGUF alone");
  }
  const auto number = [&](const char* key, int64_t value) {
    gguf_set_val_u32(file, (std::string("qwen3.") + key).c_str(), static_cast<uint32_t>(value));
  };
  gguf_set_val_str(file, "general.architecture", "qwen3");
  gguf_set_val_str(file, "tokenizer.ggml.model", "no_vocab");  // ids alone
  number("vocab_size", m.vocab);
  number("context_length", max_context);
  number("embedding_length", m.hidden);
  number("feed_forward_length", m.intermediate);
  number("block_count", m.layers);
  number("attention.head_count", m.heads);
  number("attention.head_count_kv", m.kv_heads);
  number("attention.key_length", m.head_dim);
  number("attention.value_length", m.head_dim);
  gguf_set_val_f32(file, "qwen3.attention.layer_norm_rms_epsilon", float(m.rms_norm_eps));
  gguf_set_val_f32(file, "qwen3.rope.freq_base", float(m.rope_theta));
}

// The bytes of a tensor as `type`, from bf16 on the host: elements in rows of `columns`.
std::vector<char> converted(const std::vector<ggml_bf16_t>& from, int64_t columns, ggml_type type) {
  const auto count = static_cast<int64_t>(from.size());
  std::vector<char> to(ggml_row_size(type, columns) * (count / columns));
  if (type == GGML_TYPE_BF16) {
    std::memcpy(to.data(), from.data(), to.size());
    return to;
  }
  std::vector<float> wide(from.size());
  ggml_bf16_to_fp32_row(from.data(), wide.data(), count);
  if (type == GGML_TYPE_F32) {
    std::memcpy(to.data(), wide.data(), to.size());
  } else {
    ggml_quantize_chunk(type, wide.data(), to.data(), 0, count / columns, columns, nullptr);
  }
  return to;
}

}  // namespace

void copy(bool cuda, void* to, const void* from, size_t bytes) {
#ifdef LLAMA_ENGINE_CUDA
  if (cuda) {
    const cudaError_t error = cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
    if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
    return;
  }
#endif
  (void)cuda;
  std::memcpy(to, from, bytes);
}

void write_gguf(const std::string& path, const mkbench_open& args, ggml_type type) {
  const std::unique_ptr<gguf_context, decltype(&gguf_free)> file(gguf_init_empty(), gguf_free);
  const mkbench_model model = mkbench_own(args.model);
  set_metadata(file.get(), model, args.max_context);
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> shapes(
      ggml_init({.mem_size = ggml_tensor_overhead() * args.tensor_count,
                 .mem_buffer = nullptr,
                 .no_alloc = true}),
      ggml_free);
  std::vector<std::pair<mkbench_tensor, const ggml_tensor*>> tensors;
  for (uint32_t i = 0; i < args.tensor_count; ++i) {
    const mkbench_tensor t = mkbench_own(args.tensors[i]);
    if (t.dtype != MKBENCH_BF16)
      throw OpenError(MKBENCH_UNFIT_MODEL, std::string(t.name) + ": wanted bf16");
    if (model.tied != 0 && std::string_view(t.name) == "lm_head.weight") continue;
    // ggml gives the inner dimension first.
    ggml_tensor* shape = t.rank == 1
                             ? ggml_new_tensor_1d(shapes.get(), GGML_TYPE_F32, t.shape[0])
                             : ggml_new_tensor_2d(shapes.get(), type, t.shape[1], t.shape[0]);
    ggml_set_name(shape, gguf_name(t.name).c_str());
    gguf_add_tensor(file.get(), shape);
    tensors.emplace_back(t, shape);
  }
  std::vector<char> head(gguf_get_meta_size(file.get()));
  gguf_get_meta_data(file.get(), head.data());
  std::ofstream out(path, std::ios::binary);
  out.write(head.data(), static_cast<std::streamsize>(head.size()));
  for (const auto& [t, shape] : tensors) {
    std::vector<ggml_bf16_t> host(t.bytes / sizeof(ggml_bf16_t));
    copy(args.device == MKBENCH_DEVICE_CUDA, host.data(), t.data, t.bytes);
    std::vector<char> data = converted(host, shape->ne[0], shape->type);
    data.resize(GGML_PAD(data.size(), GGUF_DEFAULT_ALIGNMENT));
    out.write(data.data(), static_cast<std::streamsize>(data.size()));
  }
  out.close();
  if (!out) throw OpenError(MKBENCH_UNFIT_ENV, path + ": could not write it; is there room?");
}
