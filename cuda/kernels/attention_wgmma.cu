// Paged prefill attention on Hopper's warpgroup products, after FlashAttention-3 (Shah et al.,
// 2024): the scores of one tile of keys are computed while the weighted values of the tile before
// are. The query heads of one KV head are packed into rows; a warpgroup has 64 of them. Keys and
// values come three tiles deep by cp.async, row by row through the block table.

#include "cuda/kernels/attention.h"
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/wgmma_tile.cuh"
#include "cuda/runtime/capability.h"

namespace quire::cuda {
namespace {

// Grid (row tiles, KV heads, requests); tiles with the longest contexts begin first.
template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, Tiling<kDim>::kBlocksPerProcessor)
    attention_wgmma_kernel(const __grid_constant__ WgmmaArgs<T> a) {
  release_next_kernel();
  await_previous_kernel();
  if constexpr (!kHasWarpgroups) return;
  constexpr int kTile = Tiling<kDim>::kKeys;
  DYN_SHARED(stages, Stages<T, kDim>);
  const int kv_head = static_cast<int>(blockIdx.y), request = static_cast<int>(blockIdx.z);
  const int first_token = a.query_start[request];
  const int num_tokens = a.query_start[request + 1] - first_token;
  const Request r{first_token, num_tokens, num_tokens * a.group, a.seq_lens[request]};
  const int block_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kBlockRows;
  if (block_row >= r.num_rows || r.num_rows < a.least_rows) return;

  // What all rows of the block see, and what any of them sees.
  const int first_position = r.position(block_row, a.group),
            last_position = r.position(block_row + kBlockRows - 1, a.group);
  const int all_from = a.seen_from(last_position), all_to = first_position;
  const int begin = a.seen_from(first_position) / kTile, tiles = last_position / kTile + 1;
  const int row0 = block_row + static_cast<int>(threadIdx.x) / kGroupThreads * kGroupRows;
  GroupRows<T, kDim> rows;
  rows.load(a, r, kv_head, row0);

  // Group t of copies: the keys of tile t and the values of tile t − 1.
  // Four lanes to a row. Rows r and r + 4 lie beside each other in a warp: their chunks are in
  // different banks.
  constexpr int kLanes = 4;
  const int thread = static_cast<int>(threadIdx.x), line = thread / kLanes;
  PageCopies<T, kTile, kDim, kThreads, kLanes> copies(
      a.keys_of(request, kv_head), last_position + 1,
      (line & ~5) | (line & 1) << 2 | (line >> 2 & 1), thread % kLanes);
  const std::uintptr_t to_values = a.value_distance();
  const auto copy_tile = [&](SwizzledTile<T, kDim>& tile, int t, std::uintptr_t distance) {
    copies.look_up(t);  // again for the values: registers are scarcer than reads of the table
    copies.for_each(t, [&](int row, int chunk, const void* from, int bytes) {
      async_copy<16>(&tile.panel[chunk / 8][row][swizzled_chunk(row, chunk % 8) * kVecWidth<T>],
                     static_cast<const char*>(from) + distance, bytes);
    });
  };
  const auto copy_group = [&](int t) {
    if (t > begin && t <= tiles) copy_tile(stages->v[(t - 1) % kStages], t - 1, to_values);
    if (t < tiles) copy_tile(stages->k[t % kStages], t, 0);
    async_copy_commit();
  };
  const auto all_seen = [&](int t) {
    return t * kTile >= all_from && t * kTile + kTile - 1 <= all_to;
  };
  // Copies of group t are there; nobody reads any more what group t + 2 overwrites.
  const auto await_group = [&] {
    async_copy_wait<1>();
    fence_async_proxy();
    __syncthreads();
  };
  float rescale[2];
  copy_group(begin);
  copy_group(begin + 1);
  await_group();
  warpgroup_fence();
  rows.begin_scores(stages->k[begin % kStages]);
  copy_group(begin + 2);
  warpgroup_wait<0>();
  hold(rows.scores);
  rows.weigh(a, begin * kTile, all_seen(begin), rescale);
  rows.pack_weights(rescale);
  for (int t = begin + 1; t < tiles; ++t) {
    await_group();
    hold(rows.scores);
    hold(rows.values);
    warpgroup_fence();
    rows.begin_scores(stages->k[t % kStages]);
    rows.begin_values(stages->v[(t - 1) % kStages]);
    copy_group(t + 2);
    warpgroup_wait<1>();
    hold(rows.scores);
    rows.weigh(a, t * kTile, all_seen(t), rescale);
    warpgroup_wait<0>();
    hold(rows.values);
    rows.pack_weights(rescale);
  }
  await_group();
  hold(rows.values);
  warpgroup_fence();
  rows.begin_values(stages->v[(tiles - 1) % kStages]);
  warpgroup_wait<0>();
  hold(rows.values);
  rows.store(a, r, kv_head, row0);
}

template <class T, int kDim>
void launch_rows(const WgmmaArgs<T>& a, int max_rows, unsigned requests, StreamRef stream) {
  const auto tiles = static_cast<unsigned>((max_rows + kBlockRows - 1) / kBlockRows);
  CUDA_CHECK(launch(attention_wgmma_kernel<T, kDim>,
                    dim3(tiles, static_cast<unsigned>(a.k_cache.extent[2]), requests),
                    dim3(kThreads), sizeof(Stages<T, kDim>), native(stream), a));
}

template <class T>
void launch_wgmma(const AttentionArgs& args, int least_rows, StreamRef stream) {
  const WgmmaArgs<T> a(args, least_rows);
  const int max_rows = args.max_query_len * a.group;
  const auto requests = static_cast<unsigned>(args.seq_lens.extent(0));
  if (args.k_cache.extent(3) == 64) return launch_rows<T, 64>(a, max_rows, requests, stream);
  launch_rows<T, 128>(a, max_rows, requests, stream);
}

}  // namespace

bool attention_wgmma_supports(const AttentionArgs& args) {
  const std::int64_t dim = args.k_cache.extent(3);
  return is_hopper() && (dim == 64 || dim == 128) && args.k_cache.dtype() == args.q.dtype() &&
         args.scale > 0.f;
}

void attention_wgmma(const AttentionArgs& args, int least_rows, StreamRef stream) {
  if (args.q.dtype() == DType::bf16) return launch_wgmma<__nv_bfloat16>(args, least_rows, stream);
  launch_wgmma<__half>(args, least_rows, stream);
}

}  // namespace quire::cuda
