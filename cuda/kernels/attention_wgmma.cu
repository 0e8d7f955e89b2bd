// Paged prefill attention on Hopper's warpgroup products, after FlashAttention-3 (Shah et al.,
// 2024): the scores of one tile of keys are computed while the weighted values of the tile before
// are. The query heads of one KV head are packed into rows; a warpgroup has 64 of them. Keys and
// values come three tiles deep by cp.async, row by row through the block table.

#include "cuda/device/async_copy.cuh"
#include "cuda/device/exp2.cuh"
#include "cuda/device/fast_divide.cuh"
#include "cuda/device/typed_mma.cuh"
#include "cuda/device/vec.cuh"
#include "cuda/device/warpgroup.cuh"
#include "cuda/kernels/attention.h"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/capability.h"

namespace quire::cuda {
namespace {

constexpr int kGroups = 2, kGroupThreads = 128, kGroupRows = 64;
constexpr int kThreads = kGroups * kGroupThreads, kBlockRows = kGroups * kGroupRows;
constexpr int kStages = 3;      // tiles of K and of V in shared memory
constexpr int kPanelDims = 64;  // elements in 128 bytes
constexpr float kLog2e = 1.44269504f;

// Keys of a tile: as many as registers allow, with two blocks on a multiprocessor or one.
template <int kDim>
struct Tiling {
  static constexpr int kKeys = kDim == 64 ? 64 : 128, kBlocksPerProcessor = kDim == 64 ? 2 : 1;
};

template <class T>
struct WgmmaArgs {
  View<T, 3> out;
  View<const T, 3> q;
  View<const T, 4> k_cache, v_cache;
  View<const std::int32_t, 2> block_table;
  const std::int32_t* query_start;
  const std::int32_t* seq_lens;
  const float* sinks;  // null: none
  FastDivide block_size;
  int group, window, least_rows;
  float to_exponent;  // 2 log2(e) times what tanh takes of a score; 0: no soft cap
  float to_log2;      // what comes then, times this, is a logarithm to base 2

  __device__ __forceinline__ int seen_from(int position) const {
    return window > 0 ? ::max(0, position - window + 1) : 0;
  }
};

template <class T, int kDim>
struct alignas(1024) SwizzledTile {
  static constexpr int kPanelBytes = Tiling<kDim>::kKeys * kPanelDims * static_cast<int>(sizeof(T));
  T panel[kDim / kPanelDims][Tiling<kDim>::kKeys][kPanelDims];
};
template <class T, int kDim>
struct Stages {
  SwizzledTile<T, kDim> k[kStages], v[kStages];
};

struct Request {
  int first_token, num_tokens, num_rows, seq_len;
  __device__ __forceinline__ int position(int row, int group) const {
    return seq_len - num_tokens + ::min(row, num_rows - 1) / group;
  }
};

template <class T, int kDim>
__device__ __forceinline__ void copy_tile(SwizzledTile<T, kDim>& tile,
                                          const View<const T, 4>& cache, const WgmmaArgs<T>& a,
                                          int request, int kv_head, int key0, int last) {
  constexpr int kChunks = kDim / kVecWidth<T>, kRows = kThreads / kChunks;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks, panel = chunk / 8;
#pragma unroll
  for (int r = 0; r < Tiling<kDim>::kKeys / kRows; ++r) {
    const int row = static_cast<int>(threadIdx.x) / kChunks + r * kRows, key = key0 + row;
    const bool there = key <= last;  // what is not becomes zero
    const int block = a.block_size(there ? key : key0);
    const T* from =
        &cache(a.block_table(request, block), there ? key - block * a.block_size.divisor : 0,
               kv_head, chunk * kVecWidth<T>);
    async_copy<16>(&tile.panel[panel][row][swizzled_chunk(row, chunk % 8) * kVecWidth<T>], from,
                   there ? 16 : 0);
  }
}

// A warpgroup's 64 rows: a lane has columns 2·(lane%4) of its warp's rows lane/4 and lane/4 + 8.
// Maxima and scores are in units of log 2.
template <class T, int kDim>
struct GroupRows {
  FragmentA q[kDim / 16];
  FragmentC scores[Tiling<kDim>::kKeys / 8];
  FragmentA weights[Tiling<kDim>::kKeys / 16];
  FragmentC values[kDim / 8];
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};
  int first[2], last[2];  // keys that the rows see; none: first > last

  __device__ __forceinline__ void load(const WgmmaArgs<T>& a, const Request& r, int kv_head,
                                       int row0) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (FragmentC& v : values) v = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row =
          row0 + static_cast<int>(threadIdx.x) % kGroupThreads / 32 * 16 + lane / 4 + 8 * h;
      const bool there = row < r.num_rows;
      const int token = there ? row / a.group : 0, head = there ? row - token * a.group : 0;
      const int position = r.seq_len - r.num_tokens + token;
      first[h] = there ? a.seen_from(position) : 1;
      last[h] = there ? position : 0;
      const T* from = &a.q(r.first_token + token, kv_head * a.group + head, lane % 4 * 2);
#pragma unroll
      for (int d = 0; d < kDim / 16; ++d) {
        q[d].r[h] = there ? *reinterpret_cast<const std::uint32_t*>(from + d * 16) : 0u;
        q[d].r[2 + h] = there ? *reinterpret_cast<const std::uint32_t*>(from + d * 16 + 8) : 0u;
      }
    }
  }

  __device__ __forceinline__ void begin_scores(const SwizzledTile<T, kDim>& k) {
#pragma unroll
    for (int d = 0; d < kDim / 16; ++d) {
      const SharedMatrix b = shared_matrix(&k.panel[d / 4]).advanced(d % 4 * 32);
      warpgroup_mma<T, Major::k>(scores, q[d], b, d > 0);
    }
    warpgroup_commit();
  }
  __device__ __forceinline__ void begin_values(const SwizzledTile<T, kDim>& v) {
    const SharedMatrix b = shared_matrix(&v, SwizzledTile<T, kDim>::kPanelBytes);
#pragma unroll
    for (int n = 0; n < Tiling<kDim>::kKeys / 16; ++n)
      warpgroup_mma<T, Major::n>(values, weights[n], b.advanced(n * 2048), true);
    warpgroup_commit();
  }

  // tanh(x) = 1 − 2 / (1 + e^2x)
  __device__ __forceinline__ void cap(float to_exponent) {
#pragma unroll
    for (FragmentC& c : scores) {
#pragma unroll
      for (float& s : c.r) s = 1.f - __fdividef(2.f, 1.f + exp2_approximate(s * to_exponent));
    }
  }

  // Scores become weights in float32 and are summed; returns by what the values so far are to be
  // multiplied. kAll: every row sees every key of the tile.
  template <bool kAll>
  __device__ __forceinline__ float weigh_row(int h, int key0, float to_log2) {
    const int column = key0 + static_cast<int>(threadIdx.x) % 4 * 2;
    float top = -INFINITY;
#pragma unroll
    for (int n = 0; n < Tiling<kDim>::kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& s = scores[n].r[2 * h + i];
        const int key = column + n * 8 + i;
        if (!kAll && (key < first[h] || key > last[h])) s = -INFINITY;
        top = fmaxf(top, s);
      }
    }
    top = fmaxf(max[h], top * to_log2);
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const float base = top == -INFINITY ? 0.f : top;  // no key yet: weights are 0, not NaN
    const float rescale = exp2_approximate(max[h] - base);
    float total = 0.f;
#pragma unroll
    for (int n = 0; n < Tiling<kDim>::kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& s = scores[n].r[2 * h + i];
        s = exp2_approximate(__fmaf_rn(s, to_log2, -base));
        total += s;
      }
    }
    sum[h] = sum[h] * rescale + total;  // of this lane's columns
    max[h] = top;
    return rescale;
  }

  __device__ __forceinline__ void weigh(const WgmmaArgs<T>& a, int key0, bool all,
                                        float (&rescale)[2]) {
    if (a.to_exponent > 0.f) cap(a.to_exponent);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      rescale[h] = all ? weigh_row<true>(h, key0, a.to_log2) : weigh_row<false>(h, key0, a.to_log2);
    }
  }

  __device__ __forceinline__ void pack_weights(const float (&rescale)[2]) {
#pragma unroll
    for (FragmentC& v : values) {
#pragma unroll
      for (int i = 0; i < 4; ++i) v.r[i] *= rescale[i / 2];
    }
#pragma unroll
    for (int n = 0; n < Tiling<kDim>::kKeys / 16; ++n) {
      const FragmentC &low = scores[2 * n], &high = scores[2 * n + 1];
      weights[n] = {{pack<T>(low.r[0], low.r[1]), pack<T>(low.r[2], low.r[3]),
                     pack<T>(high.r[0], high.r[1]), pack<T>(high.r[2], high.r[3])}};
    }
  }

  __device__ __forceinline__ void store(const WgmmaArgs<T>& a, const Request& r, int kv_head,
                                        int row0) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
      sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
      const int row =
          row0 + static_cast<int>(threadIdx.x) % kGroupThreads / 32 * 16 + lane / 4 + 8 * h;
      if (row >= r.num_rows) continue;
      const int token = row / a.group, head = kv_head * a.group + row - token * a.group;
      float total = sum[h], kept = 1.f;
      if (a.sinks != nullptr) {
        const float sink = a.sinks[head] * kLog2e, top = fmaxf(max[h], sink);
        kept = exp2_approximate(max[h] - top);
        total = total * kept + exp2_approximate(sink - top);
      }
      const float factor = total > 0.f ? kept / total : 0.f;
      T* to = &a.out(r.first_token + token, head, lane % 4 * 2);
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        *reinterpret_cast<std::uint32_t*>(to + n * 8) =
            pack<T>(values[n].r[2 * h] * factor, values[n].r[2 * h + 1] * factor);
      }
    }
  }
};

// Grid (row tiles, KV heads, requests); tiles with the longest contexts begin first.
template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, Tiling<kDim>::kBlocksPerProcessor)
    attention_wgmma_kernel(const __grid_constant__ WgmmaArgs<T> a) {
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
  const auto copy_group = [&](int t) {
    if (t < tiles) {
      copy_tile<T, kDim>(stages->k[t % kStages], a.k_cache, a, request, kv_head, t * kTile,
                         last_position);
    }
    if (t > begin && t <= tiles) {
      copy_tile<T, kDim>(stages->v[(t - 1) % kStages], a.v_cache, a, request, kv_head,
                         (t - 1) * kTile, last_position);
    }
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
  const auto group = static_cast<int>(args.q.extent(1) / args.k_cache.extent(2));
  const bool capped = args.soft_cap > 0.f;
  const WgmmaArgs<T> a{.out = device_view<T, 3>(args.out),
                       .q = device_view<const T, 3>(args.q),
                       .k_cache = device_view<const T, 4>(args.k_cache),
                       .v_cache = device_view<const T, 4>(args.v_cache),
                       .block_table = device_view<const std::int32_t, 2>(args.block_table),
                       .query_start = static_cast<const std::int32_t*>(args.query_start.data()),
                       .seq_lens = static_cast<const std::int32_t*>(args.seq_lens.data()),
                       .sinks = static_cast<const float*>(args.sinks.data()),
                       .block_size = FastDivide(static_cast<int>(args.k_cache.extent(1))),
                       .group = group,
                       .window = args.window,
                       .least_rows = least_rows,
                       .to_exponent = capped ? 2.f * kLog2e * args.scale / args.soft_cap : 0.f,
                       .to_log2 = (capped ? args.soft_cap : args.scale) * kLog2e};
  const int max_rows = args.max_query_len * group;
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
