#pragma once
// Attention over a paged cache: the kernels, and the choice between them.

#include <cuda_runtime.h>

#include "backend/ops.h"
#include "cuda/kernels/widened.h"

namespace quire::cuda {

// Partial results of a split context: floats [T, heads, splits, value_dim + 2] (values, then
// maximum and sum; with sum 0 there are no values); in attention_mma and of latents how the
// requests are cut, then results of their parts; in attention_wgmma the latter alone. Launches are
// sized by max_seq_len; how many splits have keys follows each request's own length, where requests
// are cut those of all, and one split gives the same bits as none.
struct SplitScratch {
  float* data = nullptr;
  std::int64_t floats = 0;
  int* arrived = nullptr;  // of parts, in attention_mma and _wgmma: zeros between launches
  std::int64_t counters = 0;
};

// Any floating-point dtype, any head size up to 576: one block per (token, KV head, split of the
// context).
void attention_simt(const AttentionArgs& args, SplitScratch scratch, StreamRef stream);

// bf16 and f16 on tensor cores, over a cache of the same dtype or of fp8; query heads of one KV
// head are packed into rows. Requests of at most most_rows rows (query tokens times the query heads
// of a KV head); those of kMmaDecodeRows or fewer share a block's warps over the keys.
constexpr int kMmaDecodeRows = 16;
bool attention_mma_supports(const AttentionArgs& args);
void attention_mma(const AttentionArgs& args, int most_rows, SplitScratch scratch,
                   StreamRef stream);

// The same where its blocks prepare the heads of each request as they go, in place of a kernel in
// front (heads.cu): all requests are such as share a block's warps over the keys. The queries stay
// as they are.
bool attention_mma_prepares(const HeadArgs& heads, const AttentionArgs& args);
void attention_mma_new(const HeadArgs& heads, const AttentionArgs& args, SplitScratch scratch,
                       StreamRef stream);

// Requests of at least least_rows rows, on Hopper's warpgroups; of what attention_mma supports:
// head sizes 64, 96, 128 and 256, caches of the queries' dtype that a tensor map can describe, where
// the driver makes maps.
// widened: of these requests alone, whose keys and values attention_widen brought to k_cache and
// v_cache; the table is not read.
bool attention_wgmma_supports(const AttentionArgs& args);
void attention_wgmma(const AttentionArgs& args, int least_rows, SplitScratch scratch,
                     StreamRef stream, const WidenedRequests& widened = {});

// What the rows of these requests see of an fp8 cache, to k and v [pages, kWidenedKeys, KV heads,
// head_dim] of the queries' dtype; of what attention_mma supports. Scales are left out.
void attention_widen(TensorView k, TensorView v, const AttentionArgs& args,
                     const WidenedRequests& requests, StreamRef stream);

// Prompts of an fp8 cache by these two, in the workspace. What is left are requests of at most so
// many rows (INT_MAX: all).
int widened_attention(const AttentionArgs& args, SplitScratch scratch, StreamRef stream);

// Each request by the fastest of the kernels above that takes it.
void paged_attention(const AttentionArgs& args, SplitScratch scratch, StreamRef stream);
// Of heads that are not prepared.
void attend_new(const HeadArgs& heads, const AttentionArgs& args, SplitScratch scratch,
                StreamRef stream);

// Latent attention; on tensor cores where the sizes and dtypes are those that models have.
void mla_attention(const MlaArgs& args, SplitScratch scratch, StreamRef stream);

// On Hopper's warpgroups: of what has the sizes that models have, caches of the queries' dtype or fp8.
bool latent_wgmma_supports(const MlaArgs& args);
void latent_wgmma(const MlaArgs& args, SplitScratch scratch, StreamRef stream);

}  // namespace quire::cuda
