#include <limits>

#include "cuda/kernels/attention.h"

namespace quire::cuda {

void paged_attention(const AttentionArgs& args, SplitScratch scratch, StreamRef stream) {
  if (!attention_mma_supports(args)) return attention_simt(args, scratch, stream);
  const auto group = static_cast<int>(args.q.extent(1) / args.k_cache.extent(2));
  int most_rows = std::numeric_limits<int>::max();
  if (args.max_query_len * group > kMmaDecodeRows) {
    if (attention_wgmma_supports(args)) {
      attention_wgmma(args, kMmaDecodeRows + 1, scratch, stream);
      most_rows = kMmaDecodeRows;
    } else {
      most_rows = widened_attention(args, scratch, stream);
    }
  }
  attention_mma(args, most_rows, scratch, stream);
}

}  // namespace quire::cuda
