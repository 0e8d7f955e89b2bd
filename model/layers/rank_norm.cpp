#include "model/layers/rank_norm.h"

namespace quire {

void norm_over_ranks(const RmsNorm& norm, TensorView out, TensorView x, const Shard& shard,
                     int neighbours, const ForwardContext& context) {
  const Workspace::Scope scope(context.workspace);
  const std::int64_t columns = x.extent(1), width = neighbours * columns;
  const std::int64_t first = shard.rank / neighbours * width;
  const std::int64_t own = shard.rank % neighbours * columns;
  const TensorView all = all_columns(x, shard, context);
  const TensorView normed = context.workspace.take(out.dtype(), {x.extent(0), width});
  norm(normed, all.narrow(1, first, first + width), context);
  context.ops.copy(out, normed.narrow(1, own, own + columns), context.stream);
}

std::vector<std::int64_t> side_by_side(const Shard& shard, std::int64_t n, int copies) {
  std::vector<std::int64_t> all;
  if (shard.whole()) return all;
  for (int rank = 0; rank < shard.size; ++rank) {
    const Range share = share_of({.rank = rank, .size = shard.size}, n, copies);
    for (std::int64_t i = share.begin; i < share.end; ++i) all.push_back(i);
  }
  return all;
}

}  // namespace quire
