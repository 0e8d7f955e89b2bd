#pragma once
// A loaded model: weights on a device and the order of operators. No requests in here.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/tensor.h"
#include "model/kv_spec.h"

namespace quire {

struct ForwardContext;

// Where one layer's KV pages are. Block b of the layer begins at base + b · page_bytes and holds
// block_size tokens as r = block_size / kernel_block_size kernel blocks, page_bytes / r apart (so a
// padded page pads every kernel block alike); attention: each [2 (K, V), kernel_block_size,
// kv_heads, head_dim]; MLA: [kernel_block_size, latent + rope]; state layers: the states of the
// spec one after the other.
struct LayerCache {
  void* base = nullptr;
  std::int64_t num_blocks = 0;
  std::size_t page_bytes = 0;
  int block_size = 0;         // tokens
  int kernel_block_size = 0;  // tokens
  KvSpec spec;    // as the layer gave it or the plan changed it: what is stored, in which dtype
  int group = 0;  // index into ForwardContext::groups
};

class Model {
 public:
  virtual ~Model() = default;

  virtual int vocab_size() const = 0;
  virtual int hidden_size() const = 0;
  virtual DType dtype() const = 0;  // of hidden states
  virtual std::size_t weight_bytes() const = 0;
  virtual std::size_t mapped_bytes() const { return 0; }  // of them, what stays in mapped files
  // What whoever runs a server should know about how the weights are kept.
  virtual std::vector<std::string> notes() const { return {}; }
  // Added to every position of a request whose prompt has this many tokens: picks the rotary table
  // (longrope: short factors up to original_max_position_embeddings, long ones beyond, as the
  // reference does for the length at hand). Requests with different offsets share no cached blocks.
  virtual int position_offset(int num_prompt_tokens) const {
    (void)num_prompt_tokens;
    return 0;
  }
  // Scratch that forward() and logits() take together, for a step of num_tokens of which num_rows
  // are sampled.
  virtual std::size_t workspace_bytes(int num_tokens, int num_rows) const = 0;

  // What each layer that remembers anything must remember, in layer order: what the plan sizes.
  virtual std::vector<LayerKvSpec> kv_specs(const KvSpecOptions& options) const = 0;
  // In the order of kv_specs(); once, before the first forward(). Throws Failure where a layer
  // would write anything but what its pages hold.
  virtual void bind_cache(std::span<const LayerCache> layers) = 0;
  // Layers whose fp8 cache holds keys and values as they are, because no scale is published.
  virtual int num_unscaled_layers() const { return 0; }

  // Whether forward() knows ForwardContext::taps.
  virtual bool hands_out_streams() const { return false; }

  // out [T, hidden_size] = what the ids i32 [T] enter the first layer as; in dtype() or f32. For
  // draft models that share the embedding.
  virtual void embed(TensorView out, TensorView ids, const ForwardContext& context) = 0;
  // hidden [T, hidden_size] = output of the final norm for ids i32 [T].
  virtual void forward(TensorView hidden, TensorView ids, const ForwardContext& context) = 0;
  // logits f32 [S, vocab_size] of hidden rows [S, hidden_size].
  virtual void logits(TensorView logits, TensorView hidden, const ForwardContext& context) = 0;
};

}  // namespace quire
