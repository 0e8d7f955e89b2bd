#pragma once
// What a GGUF file's general.architecture means for names and values of tensors: facts of the
// converter that wrote it (llama.cpp's convert_hf_to_gguf.py).

#include <span>
#include <string_view>

#include "gguf/metadata.h"

namespace quire {

struct ModuleName {
  std::string_view stored;     // "ffn_up": of a block, or of the model
  std::string_view published;  // "mlp.up_proj"; with ".*.": one of many experts
};

struct GgufFamily {
  std::string_view architecture;       // general.architecture
  std::string_view published;          // "LlamaForCausalLM"
  std::span<const ModuleName> modules;  // where they differ from the usual ones
  bool paired_rows = false;             // queries' and keys' rows are in rotated pairs
  bool norms_plus_one = false;          // weights of norms are those that are multiplied by
};

// Throws Failure with the list of what is supported.
const GgufFamily& gguf_family(const gguf::Metadata& metadata);

// Empty: nothing published is known by that name.
std::string_view published_module(const GgufFamily& family, std::string_view stored);

// The other way round; empty likewise.
std::string_view stored_module(const GgufFamily& family, std::string_view published);

struct RotatedHeads {
  int queries = 0, keys = 0;
};
RotatedHeads rotated_heads(const GgufFamily& family, const gguf::Metadata& metadata);

// "llama" and "block_count" → "llama.block_count"
std::string family_key(const GgufFamily& family, std::string_view name);

}  // namespace quire
