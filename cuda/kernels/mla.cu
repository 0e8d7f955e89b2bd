// Absorbed multi-head latent attention on tensor cores, for the sizes that models have (latent 512,
// rotated key 64). All heads share a token's cache row, so heads and tokens are packed into rows: a
// block has 64 of them and reads each cache row once, as key and as value. Eight warps: for scores
// a quarter of the rows and half of a tile's keys, for values the same rows and half of the
// columns. Other sizes go to attention_simt.

#include "cuda/device/async_copy.cuh"
#include "cuda/device/fp8.cuh"
#include "cuda/kernels/latent_launch.cuh"
#include "cuda/kernels/mla_tile.cuh"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

template <class T, class Cache>
__device__ void copy_queries(const LatentParams<T, Cache>& p, const LatentRows& rows,
                             LatentShared<T>& shared) {
  constexpr int kChunks = kRowWidth / kVecWidth<T>;
  for (int c = threadIdx.x; c < kLatentRows * kChunks; c += kThreads) {
    const int r = c / kChunks, row = rows.row0 + r, d = c % kChunks * kVecWidth<T>;
    const bool in_range = row < rows.num_rows;
    const T* from = in_range ? &p.q(rows.first_token + row / p.heads, row % p.heads, d) : p.q.data;
    async_copy<16>(&shared.q[r][d], from, in_range ? 16 : 0);
  }
}

// Threads that share a row of keys, each with nine of its chunks.
template <class Cache>
constexpr int kRowLanes = kRowWidth / kVecWidth<Cache> / 9;
template <class Cache>
using LatentCopies = PageCopies<Cache, kLatentKeys, kRowWidth, kThreads, kRowLanes<Cache>>;

// The tile as T: itself, or, of an fp8 cache, what the threads make of it together.
template <class T, class Cache>
__device__ __forceinline__ auto usable(LatentTiles<T, Cache>& tiles, int index) -> const
    T (&)[kLatentKeys][kLatentStride] {
  if constexpr (std::is_same_v<T, Cache>) {
    return tiles.stages[index];
  } else {
    constexpr int kChunks = kRowWidth / kCodes;
    for (int c = threadIdx.x; c < kLatentKeys * kChunks; c += kThreads) {
      const int k = c / kChunks, d = c % kChunks * kCodes;
      widen(&tiles.keys[k][d], &tiles.stages[index][k][d]);
    }
    __syncthreads();
    return tiles.keys;
  }
}

template <class T, class Cache>
struct LatentMemory {
  LatentShared<T> rows;
  LatentTiles<T, Cache> tiles;
};

template <class T, class Cache>
__device__ __forceinline__ void attend(const LatentParams<T, Cache>& p, const LatentPart& part,
                                       LatentMemory<T, Cache>& memory) {
  LatentShared<T>& shared = memory.rows;
  LatentTiles<T, Cache>& tiles = memory.tiles;
  const LatentRows rows(p, part.request, part.unit);
  const int end = rows.end(p.heads), first = part.first;
  const int last = min(part.last, (end + kLatentKeys - 1) / kLatentKeys);

  LatentWarp<T> warp;
  warp.clear(rows, p.heads);
  const int lane = static_cast<int>(threadIdx.x) % kRowLanes<Cache>;
  LatentCopies<Cache> copies(p.keys_of(rows.request), 0, end,
                             static_cast<int>(threadIdx.x) / kRowLanes<Cache>, lane);
  const auto copy_tile = [&](int t) {
    if (t < last) {
      auto& keys = tiles.stages[t % 2];
      copies.for_each(t, [&](int row, int chunk, const void* from, int bytes) {
        async_copy<16>(&keys[row][chunk * kVecWidth<Cache>], from, bytes);
      });
      copies.look_up(t + 1);  // a tile ahead
    }
    async_copy_commit();
  };
  copies.look_up(first);
  copy_queries(p, rows, shared);
  copy_tile(first);
  for (int t = first; t < last; ++t) {
    __syncthreads();  // the tile before has been used
    copy_tile(t + 1);
    async_copy_wait<1>();
    __syncthreads();
    const auto& keys = usable(tiles, t % 2);
    warp.score(shared, keys);
    warp.mask(shared, p.scale, t * kLatentKeys);
    __syncthreads();
    warp.weigh(shared);
    __syncthreads();
    warp.accumulate(shared, keys);
  }
  async_copy_wait<0>();  // of a part whose rows see none of its keys: the queries
  warp.finish_sums(shared);
  warp.store(p, rows, part.partial);
}

// Grid (blocks); of prompts (units, requests).
template <class T, class Cache>
__global__ void __launch_bounds__(kThreads)
    latent_attention_kernel(const __grid_constant__ LatentParams<T, Cache> p) {
  release_next_kernel();
  await_previous_kernel();  // survives deletion: where tests reach it no kernel begins early
  DYN_SHARED(memory, LatentMemory<T, Cache>);
  SHARED(walk, LatentWalk);
  find_work<kThreads>(p, walk);
  __syncthreads();
  for (int turn = 0;; turn ^= 1) {
    if (threadIdx.x == 0) advance(p, walk, walk.parts[turn]);
    __syncthreads();
    if (walk.parts[turn].last == 0) return;
    attend(p, walk.parts[turn], *memory);
  }
}

bool on_tensor_cores(const MlaArgs& args) {
  const DType dtype = args.q.dtype(), cache = args.cache.dtype();
  using T = __nv_bfloat16;
  const std::size_t shared = cache == DType::fp8_e4m3 ? sizeof(LatentMemory<T, __nv_fp8_e4m3>)
                                                      : sizeof(LatentMemory<T, T>);
  return shared <= shared_memory_limit() && (dtype == DType::bf16 || dtype == DType::f16) &&
         (cache == dtype || cache == DType::fp8_e4m3) && args.out.dtype() == dtype &&
         args.q.extent(2) == kRowWidth && args.out.extent(2) == kLatent && is_aligned(args.q) &&
         has_plain_pages(args.cache) && is_aligned(args.cache) && is_aligned(args.out);
}

}  // namespace

void mla_attention(const MlaArgs& args, SplitScratch scratch, StreamRef stream) {
  if (args.q.extent(0) == 0) return;
  if (on_tensor_cores(args) && latent_wgmma_supports(args))
    return latent_wgmma(args, scratch, stream);
  const auto launch_on = [&]<class T>(Type<T>) {
    const auto launch_cache = [&]<class Cache>(Type<Cache>) {
      launch_latents(latent_attention_kernel<T, Cache>, kThreads, sizeof(LatentMemory<T, Cache>),
                     args, scratch, stream);
    };
    if (args.cache.dtype() == DType::fp8_e4m3) return launch_cache(Type<__nv_fp8_e4m3>{});
    launch_cache(Type<T>{});
  };
  if (on_tensor_cores(args) && args.q.dtype() == DType::bf16)
    return launch_on(Type<__nv_bfloat16>{});
  if (on_tensor_cores(args)) return launch_on(Type<__half>{});
  // One KV head, whose values are the front of its keys.
  const TensorView keys = args.cache.split_last(args.cache.extent(2));
  AttentionArgs plain;
  plain.out = args.out;
  plain.q = args.q;
  plain.k_cache = keys;
  plain.v_cache = keys.narrow(3, 0, args.out.extent(2));
  plain.block_table = args.block_table;
  plain.query_start = args.query_start;
  plain.seq_lens = args.seq_lens;
  plain.cache_scale = {args.cache_scale, args.cache_scale};
  plain.scale = args.scale;
  plain.max_query_len = args.max_query_len;
  plain.max_seq_len = args.max_seq_len;
  attention_simt(plain, scratch, stream);
}

}  // namespace quire::cuda
