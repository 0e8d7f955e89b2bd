#pragma once
// What the CUDA operators need and support; in every build, with CUDA or without.

#include "backend/ops_traits.h"

namespace quire::cuda {

constexpr std::size_t kGemmWorkspaceBytes = std::size_t{32} << 20;  // what NVIDIA says for Hopper
constexpr std::size_t kSplitScratchBytes = std::size_t{64} << 20;   // partial attention results
constexpr std::size_t kArrivedParts = std::size_t{1} << 16;         // counters of SplitScratch
constexpr std::size_t kGatherBytes = std::size_t{32} << 20;         // of all ranks' parts

// Of state_chunks.h.
constexpr int kStateChunk = 64;         // tokens
constexpr int kLongestStateLine = 128;  // elements
inline bool suits_chunks(const StateShape& shape) {
  return (shape.dtype == DType::bf16 || shape.dtype == DType::f16) && shape.length % 8 == 0 &&
         shape.lines % 8 == 0 && shape.length <= kLongestStateLine;
}

// Of attention_mma.cu: rows of a request, at most, whose prefix is read once with those of others.
constexpr int kSharingRows = 16;

class CudaTraits final : public OpsTraits {
 public:
  // What prompts launch in the cache's own dtype fits any lengths. Over fp8 caches and latents the
  // host chooses by each request's; states launch blocks for all rows that a graph has room for.
  GraphSupport graph_support(const CacheForm& form) const override {
    return form.kind == CacheKind::paged && size_of(form.dtype) > 1 ? GraphSupport::always
                                                                    : GraphSupport::uniform;
  }
  bool reads_prefixes_once() const override { return true; }
  int most_sharing_tokens(const PrefixShape& s) const override {
    const bool has_units = s.head_dim == 64 || s.head_dim == 96 || s.head_dim == 128;
    const bool plain = s.cache == s.dtype && (s.dtype == DType::bf16 || s.dtype == DType::f16),
               fp8 = s.cache == DType::fp8_e4m3 && s.dtype == DType::bf16;
    return has_units && (plain || fp8) ? kSharingRows / s.group : 0;
  }
  StateChunk state_chunk(const StateShape& shape) const override {
    if (suits_chunks(shape)) return {.tokens = kStateChunk};
    return {
        .wants =
            "bf16 or f16, and keys (of Mamba2 states) of at most 128 elements, a multiple of 8 as "
            "values (heads)"};
  }
  std::size_t moe_workspace_bytes(int num_tokens, const MoeShape& shape) const override;
  // Also where the device turns out to have no products in fp8.
  std::size_t linear_workspace_bytes(std::int64_t num_tokens, const Weight& weight,
                                     DType x) const override;
  std::size_t latent_prompt_bytes(int num_tokens, const LatentShape& shape) const override;
  // Rows of a block. By tests/perf/cuda_model.py expanding then pays in all cases but a few of 256
  // new tokens and 16 heads, which lose a twentieth: of contexts so short, launches.
  ExpansionCost expansion_cost() const override { return {.unit_tokens = 128, .times = 1.35}; }
  // Also where the device turns out to have no warpgroups.
  std::size_t attention_workspace_bytes(const AttentionShape& shape) const override;
  std::size_t scratch_bytes() const override {
    return kGemmWorkspaceBytes + kSplitScratchBytes + kArrivedParts * sizeof(int);
  }
  std::size_t collectives_bytes() const override { return kGatherBytes; }
};

}  // namespace quire::cuda
