#pragma once
// How many tokens a block holds: what attention kernels can read, what recurrent states ask for.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/kv_spec.h"

namespace quire {

// A block size that an attention kernel reads: exactly `size` tokens, or any multiple of it.
struct KernelSize {
  int size = 1;
  bool multiple = true;
};
// All that one backend reads.
using KernelSizes = std::vector<KernelSize>;

// The largest kernel block that divides block_size and that every backend of a group reads. Empty:
// there is none.
std::optional<int> common_kernel_block_size(int block_size, std::span<const KernelSizes> backends);

// The block size to start from when the user gives none: 16 where the backend reads it.
int preferred_block_size(const KernelSizes& backend);

struct StateCacheChoice {
  StateCacheMode mode = StateCacheMode::none;
  int block_size = 0;  // tokens; of state groups
};

struct StateCacheRequest {
  bool model_supports_all = false;
  bool enable_prefix_caching = false;
  StateCacheMode mode = StateCacheMode::none;
  std::optional<int> mamba_block_size = {};
  int block_size = 0;  // of attention
  std::int64_t max_model_len = 0;
  bool chunked_prefill = true;
};

// vLLM's rule: prefix caching turns "none" into the best mode that the model supports. Refused:
// modes align and adaptive with a scheduler that cannot split a prompt.
Result<StateCacheChoice> choose_state_cache(const StateCacheRequest& request);

Error states_need_chunks();

struct HybridAlignment {
  int block_size = 0;                                      // of attention, tokens
  std::optional<int> mamba_block_size = {};                // set by modes all and align
  std::optional<std::size_t> mamba_page_size_padded = {};  // unset: pages are equal as they are
  std::size_t attention_page_bytes = 0;
  double padding_percent = 0;  // of the state's bytes
};

struct HybridAlignmentRequest {
  std::size_t attention_bytes_per_token = 0;  // of one layer
  std::size_t state_bytes = 0;                // of one layer, unpadded
  int block_size = 0;                         // so far, tokens
  StateCacheMode mode = StateCacheMode::none;
  std::optional<int> mamba_block_size = {};
  std::optional<int> mamba_chunk_size = {};  // of the model's scan, tokens
  int state_chunk = 1;  // of the device's recurrent operators, tokens: blocks end where chunks do
  KernelSizes backend;
};

// Raises the attention block until its page holds a state, so that both can live in one pool.
// Error: mode "all" and neither mamba_block_size nor mamba_chunk_size.
Result<HybridAlignment> align_hybrid(const HybridAlignmentRequest& request);

struct BlockSizeLimits {
  int context_parallel = 1;  // decode context-parallel ranks
  int interleave = 1;        // tokens that stay together on one of them
  StateCacheMode mode = StateCacheMode::none;
  std::int64_t max_num_batched_tokens = 0;
  std::int64_t long_prefill_token_threshold = 0;
  bool disable_chunked_mm_input = false;
};

// The last check of the block size against what the scheduler will do.
Result<void> validate_block_size(int block_size, const BlockSizeLimits& limits);

}  // namespace quire
