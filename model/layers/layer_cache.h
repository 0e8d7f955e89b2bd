#pragma once
// What a layer keeps between steps: stated once, for the plan, and checked against the pages that the
// plan made before anything is written into them.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "model/layers/causal_conv.h"
#include "model/model.h"

namespace quire {

// Layers are called as vLLM calls them, so that plans and KV events of the two can be compared:
// "model.layers.3.self_attn", whatever stands before "layers" in the checkpoint.
std::string cache_name(std::string_view published_name);

// One entry per token, in the dtype of keys and values.
KvSpec token_spec(const KvSpecOptions& options);
// The last inputs of a convolution, [width − 1, channels], then a recurrent state; `own` is the
// dtype that the model asks for. Rows for speculated tokens are added.
KvSpec state_spec(const KvSpecOptions& options, const CausalConv& conv,
                  std::vector<std::int64_t> recurrent_shape, std::optional<DType> own);

// Throws Failure unless a block of the cache is `kernel_block_bytes` per kernel block, no more and
// no less beside padding: a layer that writes by another formula than the plan's would write over
// its neighbour.
void check_pages(const LayerCache& cache, const std::string& layer, std::size_t kernel_block_bytes);
// Throws Failure unless state `index` of the cache has this shape; its first extent may be larger.
void check_state(const LayerCache& cache, const std::string& layer, std::size_t index,
                 const std::vector<std::int64_t>& shape);

// [blocks, …] over state `index` of every page; blocks are a page apart.
TensorView state_view(const LayerCache& cache, std::size_t index);

}  // namespace quire
