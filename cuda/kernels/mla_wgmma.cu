// Absorbed multi-head latent attention on Hopper's warpgroup products, for the sizes of mla.cu. A
// block has 64 rows, heads by tokens. Of its three warpgroups one computes the scores of a tile of
// keys and makes them weights, while two, each with half of the columns, add the values of the tile
// before and copy the tiles to come: a cache row comes once, as key and as value. They widen a
// cache in fp8, too, a tile a turn. Of the queries what fits is in registers, the rest in shared
// memory.

#include "cuda/device/fp8.cuh"
#include "cuda/kernels/latent_launch.cuh"
#include "cuda/kernels/mla_groups.cuh"

namespace quire::cuda {
namespace {

// Threads to a row of keys, each with nine of its chunks: the same one of all panels, or of fp8
// every fourth.
template <class Cache>
constexpr int kRowLanes = 4 * static_cast<int>(sizeof(Cache));
template <class Cache>
using LatentCopies = PageCopies<Cache, kLatentKeys, kRowWidth, kValueThreads, kRowLanes<Cache>>;

// The queries' panels that are in shared memory.
template <class T, class Cache>
__device__ __forceinline__ void copy_queries(const LatentParams<T, Cache>& p,
                                             const LatentRows& rows,
                                             LatentStages<T, Cache>& shared) {
  constexpr int kChunks = kPanelDims / kVecWidth<T>;
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  for (int r = static_cast<int>(threadIdx.x) / kChunks; r < kLatentRows;
       r += kValueThreads / kChunks) {
    const int row = rows.row0 + r;
    const bool in_range = row < rows.num_rows;
    const T* from = in_range ? &p.q(rows.first_token + row / p.heads, row % p.heads,
                                    kHeldPanels * kPanelDims + chunk * kVecWidth<T>)
                             : p.q.data;
#pragma unroll
    for (int panel = 0; panel < kQueryPanels; ++panel)
      async_copy<16>(&shared.q[panel][r][swizzled_chunk(r, chunk) * kVecWidth<T>],
                     from + (in_range ? panel * kPanelDims : 0), in_range ? 16 : 0);
  }
}

// The same, multiplied by a power of two. Eight threads to a row, each with a chunk of all panels.
template <class T, class Cache>
__device__ __forceinline__ void raise_queries(const LatentParams<T, Cache>& p,
                                              const LatentRows& rows,
                                              LatentStages<T, Cache>& shared) {
  using Chunk = Vec<std::uint32_t, 4>;
  constexpr int kWarpRows = 32 / 8;
  const int chunk = static_cast<int>(threadIdx.x) % 8;
  for (int r = static_cast<int>(threadIdx.x) / 8; r < kLatentRows; r += kValueThreads / 8) {
    const int row = rows.row0 + r;
    const bool in_range = row < rows.num_rows;
    const T* from =
        in_range ? &p.q(rows.first_token + row / p.heads, row % p.heads, chunk * 8) : p.q.data;
    Chunk some[kPanels] = {};
    std::uint32_t largest = 0;                                    // exponents, above other bits
    if (rows.row0 + r / kWarpRows * kWarpRows < rows.num_rows) {  // any of a warp's
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        if (in_range) some[panel] = *reinterpret_cast<const Chunk*>(from + panel * kPanelDims);
#pragma unroll
        for (const std::uint32_t pair : some[panel].at)
          largest = max(largest, max(pair << 17, pair << 1));
      }
      for (int lanes = 4; lanes != 0; lanes /= 2)
        largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
    }
    // To exponent 14; from 2^100 on scores are as good as 0.
    const float factor =
        power_of_two(max(-114, min(100, 127 + 14 - static_cast<int>(largest >> 24))));
    if (chunk == 0) shared.maxima[r] = factor;
#pragma unroll
    for (int panel = 0; panel < kQueryPanels; ++panel) {
      Chunk& held = some[kHeldPanels + panel];
#pragma unroll
      for (std::uint32_t& pair : held.at) pair = raised_pair(pair, factor);
      store_operand(&shared.q[panel][r][swizzled_chunk(r, chunk) * 8], held);
    }
  }
}

// A tile as it came, in panels of f16: eight threads to a row, each with eight codes of all panels.
template <class Cache>
__device__ __forceinline__ void widen_tile(LatentPanels<__half>& to,
                                           const Cache (&from)[kLatentKeys][kRowWidth]) {
  static_assert(kPanelDims == 8 * kCodes && kValueThreads == 8 * kLatentKeys);
  const int row = static_cast<int>(threadIdx.x) / 8, chunk = static_cast<int>(threadIdx.x) % 8;
  const Cache* codes = &from[row][chunk * kCodes];
  __half* place = &to[0][row][swizzled_chunk(row, chunk) * kCodes];
#pragma unroll 1  // beside the values no registers are left
  for (int panel = 0; panel < kPanels; ++panel) {
    store_operand(place, wide_codes<__half>(codes));
    place += kLatentKeys * kPanelDims;
    codes += kPanelDims;
  }
}

template <class T, class Cache>
__device__ __forceinline__ int next_stage(int stage) {
  return stage + 1 == kStages<T, Cache> ? 0 : stage + 1;
}
// Turn t widens tile t + 2, weighs tile t + 1 and adds tile t. What it does not find before the
// first tile is none; the first turn is as many before it.
template <class T, class Cache>
constexpr int kTurnsBefore = kWidens<T, Cache> ? 2 : 1;
__device__ __forceinline__ void meet() { __syncthreads(); }

template <class T, class Cache>
__device__ __forceinline__ void weigh_tiles(const LatentParams<T, Cache>& p, const LatentRows& rows,
                                            int first, int last, LatentStages<T, Cache>& shared) {
  const int seen_by_all = rows.position(0, p.heads) + 1;
  if constexpr (kRaises<T, Cache>) meet();  // it is known by what queries are raised
  ScoreGroup<T, Cache> group(p, rows, shared);
  if constexpr (kWidens<T, Cache> && !kRaises<T, Cache>) meet();
  for (int t = first - 1, stage = 0; t < last; ++t, stage = next_stage<T, Cache>(stage)) {
    meet();
    if (t + 1 == last) continue;
    group.score(shared, stage);
    const int key0 = (t + 1) * kLatentKeys;
    if (key0 + kLatentKeys > seen_by_all) group.mask(key0);
    group.weigh(shared, (t + 1) % 2);
  }
  group.finish(shared);
  meet();
}

template <class T, class Cache>
__device__ __forceinline__ void add_tiles(const LatentParams<T, Cache>& p, const LatentRows& rows,
                                          int first, int last, float* partial,
                                          LatentStages<T, Cache>& shared) {
  constexpr int kBefore = kTurnsBefore<T, Cache>;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kRowLanes<Cache>;
  LatentCopies<Cache> copies(p.keys_of(rows.request), 0, rows.end(p.heads),
                             thread / kRowLanes<Cache>, lane);
  const auto copy_tile = [&](int t, int stage) {
    if (t < last) {
      copies.for_each(t, [&](int row, int chunk, const void* from, int bytes) {
        if constexpr (kWidens<T, Cache>) {
          async_copy<16>(&shared.raw[stage][row][chunk * kVecWidth<Cache>], from, bytes);
        } else {
          async_copy<16>(&shared.keys[stage][chunk / kRowLanes<Cache>][row]
                                     [swizzled_chunk(row, lane) * kVecWidth<T>],
                         from, bytes);
        }
      });
      copies.look_up(t + 1);  // a tile ahead
    }
    async_copy_commit();
  };
  if (first < last) {
    copies.look_up(first);
    if constexpr (!kRaises<T, Cache>) copy_queries(p, rows, shared);
  }
  for (int ahead = 0; ahead < kOnTheWay; ++ahead) copy_tile(first + ahead, ahead);
  if constexpr (kRaises<T, Cache>) {
    if (first < last) raise_queries(p, rows, shared);
  }
  ValueGroup<T, Cache> group;
  constexpr int kCount = kStages<T, Cache>;
  // Of tile t, and of the one that is next to come or to be widened.
  int stage = kCount - kBefore, free = kWidens<T, Cache> ? 0 : kOnTheWay;
  for (int t = first - kBefore; t < last; ++t) {
    async_copy_wait<kOnTheWay - 1>();
    fence_async_proxy();
    meet();  // what turn t needs is there, tile t has weights, tile t − 1 has been used
    if constexpr (kWidens<T, Cache>) {
      const auto turn = static_cast<unsigned>(t - first + kBefore);
      copy_tile(t + kBefore + kOnTheWay, static_cast<int>((turn + kOnTheWay) % kRawStages));
      if (t + kBefore < last) widen_tile(shared.keys[free], shared.raw[turn % kRawStages]);
      if (t >= first) group.add(shared, t & 1, stage);
    } else {
      copy_tile(t + kBefore + kOnTheWay, free);
      if (t >= first) group.add(shared, t & 1, stage);
    }
    stage = next_stage<T, Cache>(stage);
    free = next_stage<T, Cache>(free);
  }
  meet();
  group.store(p, rows, partial, shared);
}

// Grid (blocks); of prompts (units, requests).
template <class T, class Cache>
__global__ void __launch_bounds__(kThreads, 1)
    latent_wgmma_kernel(const __grid_constant__ LatentParams<T, Cache> p) {
  release_next_kernel();
  await_previous_kernel();
  if constexpr (!kHasWarpgroups) return;
  using Stages = LatentStages<T, Cache>;
  DYN_SHARED(memory, Stages);
  SHARED(walk, LatentWalk);
  find_work<kThreads>(p, walk);
  __syncthreads();
  for (int turn = 0;; turn ^= 1) {
    const LatentPart& part = walk.parts[turn];
    if (threadIdx.x == 0) advance(p, walk, walk.parts[turn]);
    __syncthreads();
    if (part.last == 0) return;
    const LatentRows rows(p, part.request, part.unit);
    const int last = min(part.last, (rows.end(p.heads) + kLatentKeys - 1) / kLatentKeys);
    const int first = min(part.first, last);
    if (threadIdx.x >= kValueThreads) {
      weigh_tiles(p, rows, first, last, *memory);
    } else {
      add_tiles(p, rows, first, last, part.partial, *memory);
    }
  }
}

template <class T>
void launch_latent(const MlaArgs& args, SplitScratch scratch, StreamRef stream) {
  const auto launch_cache = [&]<class Cache>(Type<Cache>) {
    launch_latents(latent_wgmma_kernel<T, Cache>, kThreads, sizeof(LatentStages<T, Cache>), args,
                   scratch, stream);
  };
  if (args.cache.dtype() == DType::fp8_e4m3) return launch_cache(Type<__nv_fp8_e4m3>{});
  launch_cache(Type<T>{});
}

}  // namespace

bool latent_wgmma_supports(const MlaArgs& args) { return uses_warpgroups() && args.scale > 0.f; }

void latent_wgmma(const MlaArgs& args, SplitScratch scratch, StreamRef stream) {
  if (args.q.dtype() == DType::bf16) return launch_latent<__nv_bfloat16>(args, scratch, stream);
  launch_latent<__half>(args, scratch, stream);
}

}  // namespace quire::cuda
