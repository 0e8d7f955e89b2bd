#include <limits>

#include "cuda/kernels/attention.h"
#include "cuda/kernels/launchers.h"

namespace quire::cuda {

// Of a step whose attention makes its own heads. Of more the kernel in front is little of the step,
// and a unit's part of a prefix in common would make 64 rows for each four tiles: a third more
// instructions than these take.
constexpr std::int64_t kMostNewTokens = 8;

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

void attend_new(const HeadArgs& heads, const AttentionArgs& args, SplitScratch scratch,
                StreamRef stream) {
  if (args.q.extent(0) <= kMostNewTokens && attention_mma_prepares(heads, args))
    return attention_mma_new(heads, args, scratch, stream);
  prepare_heads(heads, stream);
  paged_attention(args, scratch, stream);
}

}  // namespace quire::cuda
