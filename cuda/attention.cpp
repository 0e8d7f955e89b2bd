#include <limits>

#include "cuda/kernels/attention.h"

namespace quire::cuda {

void paged_attention(const AttentionArgs& args, SplitScratch scratch, StreamRef stream) {
  if (!attention_mma_supports(args)) return attention_simt(args, scratch, stream);
  const auto group = static_cast<int>(args.q.extent(1) / args.k_cache.extent(2));
  const bool has_long_requests = args.max_query_len * group > kMmaDecodeRows;
  if (!has_long_requests || !attention_wgmma_supports(args))
    return attention_mma(args, std::numeric_limits<int>::max(), scratch, stream);
  attention_wgmma(args, kMmaDecodeRows + 1, scratch, stream);
  attention_mma(args, kMmaDecodeRows, scratch, stream);
}

}  // namespace quire::cuda
