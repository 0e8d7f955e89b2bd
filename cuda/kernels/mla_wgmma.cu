// Absorbed multi-head latent attention on Hopper's warpgroup products, for the sizes of mla.cu and
// caches of the queries' dtype. A block has 64 rows, heads by tokens. Of its three warpgroups one
// computes the scores of a tile of keys and makes them weights, while two, each with half of the
// columns, add the values of the tile before and copy the tiles to come: a cache row comes once, as
// key and as value. Of the queries what fits is in registers, the rest in shared memory.

#include "cuda/device/exp2.cuh"
#include "cuda/device/warpgroup.cuh"
#include "cuda/kernels/latent_launch.cuh"
#include "cuda/kernels/latent_work.cuh"

namespace quire::cuda {
namespace {

constexpr int kGroupThreads = 128, kValueThreads = 2 * kGroupThreads;
constexpr int kThreads = kValueThreads + kGroupThreads;
constexpr int kStages = 5;      // of the tile before, of this one, and three that are on the way
constexpr int kPanelDims = 64;  // elements in 128 bytes
constexpr int kLatentColumns = kLatent / 2;                        // of a warpgroup
constexpr int kPanels = kRowWidth / kPanelDims, kQueryPanels = 4;  // of a row; in shared memory
constexpr int kHeldPanels = kPanels - kQueryPanels;                // of queries in registers
constexpr int kStepsOfPanel = kPanelDims / 16;
constexpr float kLog2e = 1.44269504f, kLn2 = .693147181f;
constexpr float kMostGrowth = 8.f;

// Panels begin at multiples of 1,024 bytes.
template <class T>
struct LatentStages {
  T keys[kStages][kPanels][kLatentKeys][kPanelDims];
  T q[kQueryPanels][kLatentRows][kPanelDims];
  T weights[2][kLatentRows][kLatentKeys + 8];  // of this tile and of the next
  float factors[2][kLatentRows];               // of what was summed before
  float maxima[kLatentRows], sums[kLatentRows];
};

// A thread has columns 2 · (lane % 4) (+1) of two rows of its warpgroup's 64.
__device__ __forceinline__ int row_of(int h) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  return thread / 32 * 16 + thread % 32 / 4 + 8 * h;
}

// The scores of all 64 rows. Maxima are in units of log 2.
template <class T>
struct ScoreGroup {
  FragmentA q[kHeldPanels * kStepsOfPanel];
  FragmentC scores[kLatentKeys / 8];
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};
  int last[2];  // position

  template <class Cache>
  __device__ __forceinline__ ScoreGroup(const LatentParams<T, Cache>& p, const LatentRows& rows) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = rows.row0 + row_of(h);
      last[h] = rows.position(row_of(h), p.heads);
      const bool in_range = last[h] >= 0;
      const int token = in_range ? row / p.heads : 0, head = in_range ? row - token * p.heads : 0;
      const T* from = &p.q(rows.first_token + token, head, static_cast<int>(threadIdx.x) % 4 * 2);
#pragma unroll
      for (int d = 0; d < kHeldPanels * kStepsOfPanel; ++d) {
        q[d].r[h] = in_range ? *reinterpret_cast<const std::uint32_t*>(from + d * 16) : 0u;
        q[d].r[2 + h] = in_range ? *reinterpret_cast<const std::uint32_t*>(from + d * 16 + 8) : 0u;
      }
    }
  }

  __device__ __forceinline__ void score(const LatentStages<T>& shared, int stage) {
    // One description of the keys and one of the queries: what moves is an addition. From one lane
    // of the stage, for ptxas to know that a warp needs it once.
    const SharedMatrix rows = shared_matrix(&shared.q),
                       keys = shared_matrix(&shared.keys[__shfl_sync(0xffffffffu, stage, 0)]);
    constexpr int kKeysPanel = sizeof shared.keys[0][0], kRowsPanel = sizeof shared.q[0];
    warpgroup_fence();
#pragma unroll
    for (int d = 0; d < kPanels * kStepsOfPanel; ++d) {
      const int panel = d / kStepsOfPanel, bytes = d % kStepsOfPanel * 32;
      const SharedMatrix some = keys.advanced(panel * kKeysPanel + bytes);
      if (panel < kHeldPanels) {
        warpgroup_mma<T, Major::k>(scores, q[d], some, d > 0);
      } else {
        warpgroup_mma<T>(scores, rows.advanced((panel - kHeldPanels) * kRowsPanel + bytes), some,
                         true);
      }
    }
    warpgroup_commit();
    warpgroup_wait<0>();
    hold(scores);
  }

  // Of keys that a row does not see.
  __device__ __forceinline__ void mask(int key0) {
    const int quarter = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int n = 0; n < kLatentKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (key0 + n * 8 + quarter * 2 + i % 2 > last[i / 2]) scores[n].r[i] = -INFINITY;
      }
    }
  }

  // Scores become weights in shared memory, beside them the factor of what was summed before.
  // to_log2 > 0.
  __device__ __forceinline__ void weigh(LatentStages<T>& shared, int slot, float to_log2) {
    const int quarter = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = -INFINITY;
#pragma unroll
      for (int n = 0; n < kLatentKeys / 8; ++n)
        top = fmaxf(top, fmaxf(scores[n].r[2 * h], scores[n].r[2 * h + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2)) * to_log2;
      // What weights are relative to follows the maximum only where they would grow beyond 2^8:
      // after the first tile that is rare, and then nothing is rescaled.
      top = top > max[h] + kMostGrowth ? top : max[h];
      const float base = top == -INFINITY ? 0.f : top;  // no key yet: weights are 0, not NaN
      const float factor = exp2_approximate(max[h] - base);
      float total = 0.f;
#pragma unroll
      for (int n = 0; n < kLatentKeys / 8; ++n) {
        const float low = exp2_approximate(fmaf(scores[n].r[2 * h], to_log2, -base)),
                    high = exp2_approximate(fmaf(scores[n].r[2 * h + 1], to_log2, -base));
        total += low + high;
        *reinterpret_cast<std::uint32_t*>(&shared.weights[slot][row_of(h)][n * 8 + quarter * 2]) =
            pack<T>(low, high);
      }
      if (quarter == 0) shared.factors[slot][row_of(h)] = factor;
      sum[h] = sum[h] * factor + total;  // of this lane's columns
      max[h] = top;
    }
  }

  __device__ __forceinline__ void finish(LatentStages<T>& shared) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
      sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
      if (threadIdx.x % 4 != 0) continue;
      shared.maxima[row_of(h)] = max[h] * kLn2;
      shared.sums[row_of(h)] = sum[h];
    }
  }
};

// Half of the columns of all 64 rows.
template <class T>
struct ValueGroup {
  static constexpr int kHalves = 2, kBlocks = kLatentColumns / kHalves / 8;  // of a product
  FragmentC values[kHalves][kBlocks] = {};
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;

  __device__ __forceinline__ void add(const LatentStages<T>& shared, int slot, int stage) {
    const float factor[2] = {shared.factors[slot][row_of(0)], shared.factors[slot][row_of(1)]};
    if (__any_sync(0xffffffffu, factor[0] != 1.f || factor[1] != 1.f)) {
#pragma unroll
      for (FragmentC(&half)[kBlocks] : values) {
#pragma unroll
        for (FragmentC& v : half) {
#pragma unroll
          for (int i = 0; i < 4; ++i) v.r[i] *= factor[i / 2];
        }
      }
    }
    FragmentA weights[kLatentKeys / 16];
    const int lane = static_cast<int>(threadIdx.x) % 32, matrix = lane / 8;
    const int row =
        static_cast<int>(threadIdx.x) % kGroupThreads / 32 * 16 + matrix % 2 * 8 + lane % 8;
#pragma unroll
    for (int k = 0; k < kLatentKeys / 16; ++k)
      load_matrices(weights[k].r, &shared.weights[slot][row][k * 16 + matrix / 2 * 8]);
    hold(values[0]);
    hold(values[1]);
    warpgroup_fence();
    constexpr int kPanelBytes = sizeof shared.keys[0][0];
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int panel = (group * kHalves + half) * (kBlocks * 8 / kPanelDims);
      const SharedMatrix keys = shared_matrix(&shared.keys[stage][panel], kPanelBytes);
#pragma unroll
      for (int k = 0; k < kLatentKeys / 16; ++k)
        warpgroup_mma<T, Major::n>(values[half], weights[k], keys.advanced(k * 2048), true);
    }
    warpgroup_commit();
    warpgroup_wait<0>();
    hold(values[0]);
    hold(values[1]);
  }

  __device__ __forceinline__ void store(const LatentParams<T, T>& p, const LatentRows& rows,
                                        float* partial, const LatentStages<T>& shared) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row_of(h), quarter = static_cast<int>(threadIdx.x) % 4;
      if (rows.position(row, p.heads) < 0) continue;
      const SoftmaxState state{shared.maxima[row], shared.sums[row]};
      const int column = group * kLatentColumns + quarter * 2;
      store_latents(p, rows, partial, row, state, group == 0 && quarter == 0,
                    [&](const auto& write) {
#pragma unroll
                      for (int n = 0; n < kHalves * kBlocks; ++n) {
                        const FragmentC& v = values[n / kBlocks][n % kBlocks];
                        write(column + n * 8, v.r[2 * h], v.r[2 * h + 1]);
                      }
                    });
    }
  }
};

// Eight threads to a row of keys, each with the same chunk of all panels.
constexpr int kRowLanes = 8;
template <class T>
using LatentCopies = PageCopies<T, kLatentKeys, kRowWidth, kValueThreads, kRowLanes>;

// The queries' panels that are in shared memory.
template <class T>
__device__ __forceinline__ void copy_queries(const LatentParams<T, T>& p, const LatentRows& rows,
                                             LatentStages<T>& shared) {
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

__device__ __forceinline__ int next_stage(int stage) {
  return stage + 1 == kStages ? 0 : stage + 1;
}
// Turn t weighs tile t + 1 and adds tile t; tile first − 1 is none.
__device__ __forceinline__ void meet() { __syncthreads(); }

template <class T>
__device__ __forceinline__ void weigh_tiles(const LatentParams<T, T>& p, const LatentRows& rows,
                                            int first, int last, LatentStages<T>& shared) {
  ScoreGroup<T> group(p, rows);
  const float to_log2 = p.scale * kLog2e;
  const int seen_by_all = rows.position(0, p.heads) + 1;
  for (int t = first - 1, stage = 0; t < last; ++t, stage = next_stage(stage)) {
    meet();
    if (t + 1 == last) continue;
    group.score(shared, stage);
    const int key0 = (t + 1) * kLatentKeys;
    if (key0 + kLatentKeys > seen_by_all) group.mask(key0);
    group.weigh(shared, (t + 1) % 2, to_log2);
  }
  group.finish(shared);
  meet();
}

template <class T>
__device__ __forceinline__ void add_tiles(const LatentParams<T, T>& p, const LatentRows& rows,
                                          int first, int last, float* partial,
                                          LatentStages<T>& shared) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kRowLanes;
  LatentCopies<T> copies(p.keys_of(rows.request), 0, rows.end(p.heads), thread / kRowLanes, lane);
  const auto copy_tile = [&](int t, int stage) {
    if (t < last) {
      copies.for_each(t, [&](int row, int chunk, const void* from, int bytes) {
        async_copy<16>(
            &shared.keys[stage][chunk / kRowLanes][row][swizzled_chunk(row, lane) * kVecWidth<T>],
            from, bytes);
      });
      copies.look_up(t + 1);  // a tile ahead
    }
    async_copy_commit();
  };
  if (first < last) {
    copies.look_up(first);
    copy_queries(p, rows, shared);
  }
  for (int ahead = 0; ahead < kStages - 2; ++ahead) copy_tile(first + ahead, ahead);
  ValueGroup<T> group;
  int stage = kStages - 1, free = kStages - 2;
  for (int t = first - 1; t < last; ++t, stage = next_stage(stage), free = next_stage(free)) {
    async_copy_wait<kStages - 3>();
    fence_async_proxy();
    meet();  // tile t + 1 is there, tile t has weights, tile t − 1 has been used
    copy_tile(t + kStages - 1, free);
    if (t >= first) group.add(shared, t & 1, stage);
  }
  meet();
  group.store(p, rows, partial, shared);
}

// Grid (blocks); of prompts (units, requests).
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    latent_wgmma_kernel(const __grid_constant__ LatentParams<T, T> p) {
  release_next_kernel();
  await_previous_kernel();
  if constexpr (!kHasWarpgroups) return;
  DYN_SHARED(memory, LatentStages<T>);
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
  launch_latents(latent_wgmma_kernel<T>, kThreads, sizeof(LatentStages<T>), args, scratch, stream);
}

}  // namespace

bool latent_wgmma_supports(const MlaArgs& args) {
  return is_hopper() && args.cache.dtype() == args.q.dtype() && args.scale > 0.f;
}

void latent_wgmma(const MlaArgs& args, SplitScratch scratch, StreamRef stream) {
  if (args.q.dtype() == DType::bf16) return launch_latent<__nv_bfloat16>(args, scratch, stream);
  launch_latent<__half>(args, scratch, stream);
}

}  // namespace quire::cuda
