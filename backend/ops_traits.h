#pragma once
// What the plan asks of a backend's operators. Known without a device, so that a machine that has
// none can plan for it.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backend/ops_latent.h"
#include "backend/ops_moe.h"

namespace quire {

// Which steps' operators a graph may hold. In a graph, the host's numbers are those at its capture:
// extents, and max_query_len and max_seq_len of the attention operators, which a capture is given
// at their largest. Launches of such an operator fit any lengths up to them; what it does follows
// query_start and seq_lens on the device. Every operator in a graph works like that, or its kind
// of cache says never.
enum class GraphSupport : std::uint8_t {
  never,
  single_token,  // every row has one token
  uniform,       // every row has equally many
  always,        // rows have any number, or none
};
enum class CacheKind : std::uint8_t { paged, latent, state };
// What a layer keeps, and the dtype of a stored element; of states it says nothing.
struct CacheForm {
  CacheKind kind = CacheKind::paged;
  DType dtype = DType::bf16;
};

// Of a recurrent layer: the dtype of its inputs, and a head's state.
struct StateShape {
  DType dtype = DType::bf16;
  std::int64_t length = 0;  // of a line: elements of a key, of Mamba2 of B and C
  std::int64_t lines = 0;   // elements of a value, of Mamba2 of a head
};
// Tokens of a chunk in which gated_delta_rule() or selective_scan() take a prompt; 1: it goes by
// tokens. The bits do not depend on how a request's tokens are cut into steps where each begins at
// a multiple of it, counted from the first, or behind all whole ones.
struct StateChunk {
  int tokens = 1;
  std::string_view wants = {};  // where the device has chunks, but not for this shape
};

// Of a layer of paged attention without a window: query heads of a key head, and dtypes.
struct PrefixShape {
  int group = 1, head_dim = 0;
  DType dtype = DType::bf16, cache = DType::bf16;
};

// Of a layer of paged attention: heads of keys, and the longest context; 0: not known.
struct AttentionShape {
  std::int64_t kv_heads = 0, head_dim = 0, max_len = 0;
  DType dtype = DType::bf16, cache = DType::bf16;
};

class OpsTraits {
 public:
  virtual ~OpsTraits() = default;

  // Of the operators that read this kind of cache, and of those that need none.
  virtual GraphSupport graph_support(const CacheForm& form) const = 0;
  // Bytes of MoeExpertsArgs::workspace that the largest step of num_tokens takes.
  virtual std::size_t moe_workspace_bytes(int num_tokens, const MoeShape& shape) const = 0;
  // Bytes of quantized_linear()'s workspace, for num_tokens or fewer with an x of this dtype.
  virtual std::size_t linear_workspace_bytes(std::int64_t num_tokens, const Weight& weight,
                                             DType x) const = 0;
  // Bytes of AttentionArgs::workspace, for any step.
  virtual std::size_t attention_workspace_bytes(const AttentionShape&) const { return 0; }
  // Bytes that the operators take from the device when they are made, as MemoryPurpose::kernels.
  virtual std::size_t scratch_bytes() const = 0;
  // The same that a rank's Collectives take.
  virtual std::size_t collectives_bytes() const = 0;
  // Whether attention does with AttentionArgs::shared what it is there for.
  virtual bool reads_prefixes_once() const { return false; }
  // For requests of how many new tokens, at most; 0: not for this shape.
  virtual int most_sharing_tokens(const PrefixShape&) const { return 0; }
  // Bytes of MlaPromptArgs::workspace for num_tokens new tokens or fewer; 0: there is no such
  // operator, prompts are absorbed as all else.
  virtual std::size_t latent_prompt_bytes(int /*num_tokens*/, const LatentShape&) const {
    return 0;
  }
  virtual StateChunk state_chunk(const StateShape&) const { return {}; }
  virtual ExpansionCost expansion_cost() const { return {}; }
};

}  // namespace quire
