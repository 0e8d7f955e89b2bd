#pragma once
// A warp's rows of attention_mma.cu: their queries from memory, their results to it.

#include "cuda/device/fp8.cuh"
#include "cuda/device/vec.cuh"
#include "cuda/kernels/attention_heads.cuh"
#include "cuda/kernels/attention_mma.cuh"
#include "cuda/kernels/attention_tile.cuh"

namespace quire::cuda {

// Queries of f16: themselves. Of bf16 beside fp8 each row times a power of two, as large as f16
// holds, so that none of it is lost.
template <class T, int kPairs>
__device__ __forceinline__ float to_f16(std::uint32_t (&pairs)[kPairs]) {
  if constexpr (std::is_same_v<T, __half>) return 1.f;
  constexpr int kLargest = 14;  // the exponent of a row's largest
  const auto low = [](std::uint32_t pair) { return __uint_as_float(pair << 16); };
  const auto high = [](std::uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); };
  float top = 0.f;
#pragma unroll
  for (const std::uint32_t pair : pairs)
    top = fmaxf(top, fmaxf(fabsf(low(pair)), fabsf(high(pair))));
  top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
  top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
  const unsigned exponent = max(__float_as_uint(top) >> 23, 64u);  // above the bias of 127
  const float up = __uint_as_float((254 + kLargest - exponent) << 23);
#pragma unroll
  for (std::uint32_t& pair : pairs) pair = pack<__half>(low(pair) * up, high(pair) * up);
  return __uint_as_float((exponent - kLargest) << 23);
}

// prepared: the block's rows in shared memory, kPreparedStride apart; null: they are a.q's.
template <class T, class Cache, int kDim, int kKeys>
__device__ void load_queries(WarpRows<T, Cache, kDim, kKeys>& w, const MmaArgs<T, Cache>& a,
                             const Queries& q, int row0, const T* prepared = nullptr) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = row0 + lane / 4 + 8 * h;
    const bool in_range = row < q.num_rows;
    const int index = in_range ? a.token_of(row) : 0,
              head = q.kv_head * a.group + (in_range ? row - index * a.group : 0);
    const int position = q.position(index), token = q.token(a, index);
    w.visible[h] = in_range ? Visible{a.window > 0 ? max(0, position - a.window + 1) : 0, position}
                            : Visible{1, 0};
    const T* const from =
        prepared != nullptr ? prepared + row * kPreparedStride<kDim> : &a.q(token, head, 0);
    std::uint32_t pairs[kDim / 8];
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      pairs[n] = in_range ? *reinterpret_cast<const std::uint32_t*>(from + w.dim_of(n)) : 0u;
    }
    w.scale[h] = a.scale;
    if constexpr (!std::is_same_v<T, Cache>) w.scale[h] *= to_f16<T>(pairs);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) w.q[n / 2].r[h + n % 2 * 2] = pairs[n];
  }
}

// Values of the two rows of a lane as partial results, the block's rows from `to` on.
template <class T, class Cache, int kDim, int kKeys>
__device__ void store_parts(const WarpRows<T, Cache, kDim, kKeys>& w, const MmaArgs<T, Cache>& a,
                            const Queries& q, int row0, float* to) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = row0 + lane / 4 + 8 * h;
    if (row >= q.num_rows) continue;
    const SoftmaxState& s = w.state[h];
    float* part = to + row * part_floats(kDim);
    if (s.sum > 0.f) {  // a part without keys that the row sees has no values either
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        const float2 pair = w.pair_of(n, h);
        *reinterpret_cast<float2*>(part + w.dim_of(n)) = {pair.x * a.value_scale,
                                                          pair.y * a.value_scale};
      }
    }
    if (lane % 4 == 0) *reinterpret_cast<float2*>(part + kDim) = {s.max, s.sum};
  }
}

// The same, finished.
template <class T, class Cache, int kDim, int kKeys>
__device__ void store_rows(WarpRows<T, Cache, kDim, kKeys>& w, const MmaArgs<T, Cache>& a,
                           const Queries& q, int row0) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = row0 + lane / 4 + 8 * h;
    if (row >= q.num_rows) continue;
    const int index = a.token_of(row), token = q.first_token + index,
              head = q.kv_head * a.group + row - index * a.group;
    SoftmaxState& s = w.state[h];
    const float kept = (a.sinks != nullptr ? s.push_sink(a.sinks[head]) : 1.f) * a.value_scale;
    const auto finished = [&](float value) { return s.sum > 0.f ? value * kept / s.sum : 0.f; };
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const float2 pair = w.pair_of(n, h);
      *reinterpret_cast<std::uint32_t*>(&a.out(token, head, w.dim_of(n))) =
          pack<T>(finished(pair.x), finished(pair.y));
    }
  }
}

// Decode: four warps hold partial results of the same 16 rows; the first warp gets their sum. The
// tiles that lay in shared memory have been read: the loop over them ends with a barrier.
template <class T, class Cache, int kDim, int kKeys>
__device__ void merge_warps(WarpRows<T, Cache, kDim, kKeys>& w, float* shared) {
  constexpr int kPerLane = kDim / 8 * 4 + 4;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float* mine = shared + (warp * 32 + lane) * kPerLane;
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) mine[n * 4 + i] = w.values[n].r[i];
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    mine[kDim / 2 + 2 * h] = w.state[h].max;
    mine[kDim / 2 + 2 * h + 1] = w.state[h].sum;
  }
  __syncthreads();
  if (warp != 0) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    SoftmaxState total;
    for (int o = 0; o < kWarps; ++o) {
      const float* other = shared + (o * 32 + lane) * kPerLane + kDim / 2 + 2 * h;
      total.merge({other[0], other[1]});
    }
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) w.values[n].r[2 * h] = w.values[n].r[2 * h + 1] = 0.f;
    for (int o = 0; o < kWarps; ++o) {
      const float* other = shared + (o * 32 + lane) * kPerLane;
      const float factor = SoftmaxState{other[kDim / 2 + 2 * h], 0.f}.factor(total.max);
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        w.values[n].r[2 * h] += other[n * 4 + 2 * h] * factor;
        w.values[n].r[2 * h + 1] += other[n * 4 + 2 * h + 1] * factor;
      }
    }
    w.state[h] = total;
  }
}

}  // namespace quire::cuda
