// mkbench's tensors as a GGUF file, the only form in which llama.cpp takes a model.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "references/engine_abi.h"

// open() ends with `code` instead of MKBENCH_FAILED.
struct OpenError : std::runtime_error {
  OpenError(int32_t code_, const std::string& text) : std::runtime_error(text), code(code_) {}
  int32_t code;
};

// Copies bytes; where `cuda`, to or from the current GPU, and waits for it.
void copy(bool cuda, void* to, const void* from, size_t bytes);

// Writes the weights of `args` to `path`: matrices as `type` (bf16, f32 or quantised), vectors as
// f32, as llama.cpp's own converter does, and a vocabulary of the right size without words. A tied
// head is left out: llama.cpp takes the embedding then. Throws OpenError.
void write_gguf(const std::string& path, const mkbench_open& args, ggml_type type);
