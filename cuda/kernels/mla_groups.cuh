#pragma once
// What warpgroups do with a tile of latent keys (mla_wgmma.cu): one makes scores and weights of it,
// two add its values.

#include "cuda/device/exp2.cuh"
#include "cuda/device/warpgroup.cuh"
#include "cuda/kernels/latent_work.cuh"

namespace quire::cuda {

constexpr int kGroupThreads = 128, kValueThreads = 2 * kGroupThreads;
constexpr int kThreads = kValueThreads + kGroupThreads;
constexpr int kOnTheWay = 3;                                       // tiles that are copied
constexpr int kPanelDims = 64;                                     // elements in 128 bytes
constexpr int kLatentColumns = kLatent / 2;                        // of a warpgroup
constexpr int kPanels = kRowWidth / kPanelDims, kQueryPanels = 4;  // of a row; in shared memory
constexpr int kHeldPanels = kPanels - kQueryPanels;                // of queries in registers
constexpr int kStepsOfPanel = kPanelDims / 16;
constexpr float kLog2e = 1.44269504f, kLn2 = .693147181f;
constexpr float kMostGrowth = 8.f;
constexpr float kLeastNormal = 1.17549435e-38f;  // 2^−126

// A cache of another type than T is widened: a tile in each turn, to f16, which has every value of
// e4m3 and makes two in an instruction. Rows of queries in bf16 become f16 for it, each multiplied
// by a power of two that brings its largest element to 2^14 or above.
template <class T, class Cache>
constexpr bool kWidens = !std::is_same_v<T, Cache>;
template <class T, class Cache>
constexpr bool kRaises = kWidens<T, Cache> && !std::is_same_v<T, __half>;
template <class T, class Cache>
using Multiplied = std::conditional_t<kWidens<T, Cache>, __half, T>;
// Of the tile before, of this one, and of the next that are on the way, or the one that is widened.
template <class T, class Cache>
constexpr int kStages = 2 + (kWidens<T, Cache> ? 1 : kOnTheWay);
constexpr int kRawStages = 1 + kOnTheWay;

template <class Cache, bool kAny>
struct RawTiles {
  Cache raw[kRawStages][kLatentKeys][kRowWidth];
};
template <class Cache>
struct RawTiles<Cache, false> {};

// Panels begin at multiples of 1,024 bytes.
template <class T>
using LatentPanels = T[kPanels][kLatentKeys][kPanelDims];
template <class T, class Cache>
struct LatentStages : RawTiles<Cache, kWidens<T, Cache>> {
  using Element = Multiplied<T, Cache>;
  LatentPanels<Element> keys[kStages<T, Cache>];
  Element q[kQueryPanels][kLatentRows][kPanelDims];
  Element weights[2][kLatentRows][kLatentKeys + 8];  // of this tile and of the next
  float factors[2][kLatentRows];                     // of what was summed before
  float maxima[kLatentRows], sums[kLatentRows];  // maxima are at first what queries are raised by
};

__device__ __forceinline__ float power_of_two(int exponent) {
  return __uint_as_float(static_cast<unsigned>(127 + exponent) << 23);
}
__device__ __forceinline__ float inverse_of_power(float power) {
  return __uint_as_float((254u << 23) - __float_as_uint(power));
}
// Two of bf16 as f16.
__device__ __forceinline__ std::uint32_t raised_pair(std::uint32_t pair, float factor) {
  return pack<__half>(__uint_as_float(pair << 16) * factor,
                      __uint_as_float(pair & 0xffff0000u) * factor);
}

// A thread has columns 2 · (lane % 4) (+1) of two rows of its warpgroup's 64.
__device__ __forceinline__ int row_of(int h) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  return thread / 32 * 16 + thread % 32 / 4 + 8 * h;
}

// The scores of all 64 rows. Maxima are in units of log 2.
template <class T, class Cache>
struct ScoreGroup {
  using Stages = LatentStages<T, Cache>;
  using Element = Multiplied<T, Cache>;
  FragmentA q[kHeldPanels * kStepsOfPanel];
  FragmentC scores[kLatentKeys / 8];
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};
  int last[2];       // position
  float to_log2[2];  // > 0

  __device__ __forceinline__ ScoreGroup(const LatentParams<T, Cache>& p, const LatentRows& rows,
                                        const Stages& shared) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = rows.row0 + row_of(h);
      last[h] = rows.position(row_of(h), p.heads);
      const bool in_range = last[h] >= 0;
      const int token = in_range ? row / p.heads : 0, head = in_range ? row - token * p.heads : 0;
      const T* from = &p.q(rows.first_token + token, head, static_cast<int>(threadIdx.x) % 4 * 2);
      float factor = 1.f;
      if constexpr (kRaises<T, Cache>) factor = in_range ? shared.maxima[row_of(h)] : 1.f;
      to_log2[h] = fmaxf(p.scale * kLog2e * inverse_of_power(factor), kLeastNormal);
      const auto pair = [&](int at) {
        const std::uint32_t bits =
            in_range ? *reinterpret_cast<const std::uint32_t*>(from + at) : 0u;
        return kRaises<T, Cache> ? raised_pair(bits, factor) : bits;
      };
#pragma unroll
      for (int d = 0; d < kHeldPanels * kStepsOfPanel; ++d) {
        q[d].r[h] = pair(d * 16);
        q[d].r[2 + h] = pair(d * 16 + 8);
      }
    }
  }

  __device__ __forceinline__ void score(const Stages& shared, int stage) {
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
        warpgroup_mma<Element, Major::k>(scores, q[d], some, d > 0);
      } else {
        warpgroup_mma<Element>(scores, rows.advanced((panel - kHeldPanels) * kRowsPanel + bytes),
                               some, true);
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
  __device__ __forceinline__ void weigh(Stages& shared, int slot) {
    const int quarter = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = -INFINITY;
#pragma unroll
      for (int n = 0; n < kLatentKeys / 8; ++n)
        top = fmaxf(top, fmaxf(scores[n].r[2 * h], scores[n].r[2 * h + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2)) * to_log2[h];
      // What weights are relative to follows the maximum only where they would grow beyond 2^8:
      // after the first tile that is rare, and then nothing is rescaled.
      top = top > max[h] + kMostGrowth ? top : max[h];
      // No key yet: weights are 0, not NaN. In f16 those below 2^-25 are 0 as well.
      const float base = top == -INFINITY ? 0.f : top;
      const float factor = exp2_approximate(max[h] - base);
      float total = 0.f;
#pragma unroll
      for (int n = 0; n < kLatentKeys / 8; ++n) {
        const float low = exp2_approximate(fmaf(scores[n].r[2 * h], to_log2[h], -base)),
                    high = exp2_approximate(fmaf(scores[n].r[2 * h + 1], to_log2[h], -base));
        total += low + high;
        *reinterpret_cast<std::uint32_t*>(&shared.weights[slot][row_of(h)][n * 8 + quarter * 2]) =
            pack<Element>(low, high);
      }
      if (quarter == 0) shared.factors[slot][row_of(h)] = factor;
      sum[h] = sum[h] * factor + total;  // of this lane's columns
      max[h] = top;
    }
  }

  __device__ __forceinline__ void finish(Stages& shared) {
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
template <class T, class Cache>
struct ValueGroup {
  using Stages = LatentStages<T, Cache>;
  static constexpr int kHalves = 2, kBlocks = kLatentColumns / kHalves / 8;  // of a product
  FragmentC values[kHalves][kBlocks] = {};
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;

  __device__ __forceinline__ void add(const Stages& shared, int slot, int stage) {
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
        warpgroup_mma<typename Stages::Element, Major::n>(values[half], weights[k],
                                                          keys.advanced(k * 2048), true);
    }
    warpgroup_commit();
    warpgroup_wait<0>();
    hold(values[0]);
    hold(values[1]);
  }

  __device__ __forceinline__ void store(const LatentParams<T, Cache>& p, const LatentRows& rows,
                                        float* partial, const Stages& shared) const {
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

}  // namespace quire::cuda
