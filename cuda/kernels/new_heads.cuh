#pragma once
// What becomes of the heads that a product made before they are attended to: norm, rotation, and
// rows of the cache. A few adjacent threads have a head, each two runs of its elements. Where a
// compiler might join a product and a sum it is said, so that all kernels get the same bits.

#include "backend/ops.h"
#include "cuda/device/dependent.cuh"
#include "cuda/device/fast_divide.cuh"
#include "cuda/device/wide.cuh"

namespace quire::cuda {

// Threads of a head of so many elements that have some of it, and all of them.
__host__ __device__ constexpr int pairs_of(int dim) { return dim / (2 * kWideWidth); }
__host__ __device__ constexpr int lanes_of(int dim) {
  int lanes = 1;
  while (lanes < pairs_of(dim)) lanes *= 2;
  return lanes;
}

// What one thread has of a head, and where in it.
struct HeadRuns {
  Wide<float> x, y;
  int first, second;
};

template <class T>
__device__ __forceinline__ void norm_run(Wide<float>& run, const Wide<T>& weight, float scale,
                                         float offset) {
#pragma unroll
  for (int k = 0; k < kWideWidth; ++k)
    run.at[k] = static_cast<float>(
        T(run.at[k] * scale * (static_cast<float>(weight.at[k]) + offset)));
}

template <class T>
__device__ __forceinline__ void turn(float& a, float& b, float cosine, float sine) {
  const float p = a, q = b;
  a = static_cast<float>(T(fmaf(p, cosine, -(q * sine))));
  b = static_cast<float>(T(fmaf(q, cosine, p * sine)));
}

// Of the pairs that a thread has.
struct Angles {
  Vec<float, kWideWidth> cosine, sine;
};

// a and b: the same dims of both halves, or neighbours where pairs are.
template <class T>
__device__ __forceinline__ void rotate(Wide<float>& a, Wide<float>& b, const Angles& angles,
                                       bool interleaved) {
  const Vec<float, kWideWidth>&cosine = angles.cosine, &sine = angles.sine;
#pragma unroll
  for (int k = 0; k < kWideWidth; ++k) {
    if (interleaved) {
      Wide<float>& pairs = k < kWideWidth / 2 ? a : b;
      const int at = 2 * (k % (kWideWidth / 2));
      turn<T>(pairs.at[at], pairs.at[at + 1], cosine.at[k], sine.at[k]);
    } else {
      turn<T>(a.at[k], b.at[k], cosine.at[k], sine.at[k]);
    }
  }
}

template <class T>
__device__ __forceinline__ void store_rounded(T* to, const Wide<float>& values) {
  Wide<T> rounded;
#pragma unroll
  for (int k = 0; k < kWideWidth; ++k) rounded.at[k] = T(values.at[k]);
  store_wide(to, rounded);
}

template <class Cache>
__device__ __forceinline__ void store_cached(Cache* to, const Wide<float>& values, float scale) {
  Vec<Cache, kWideWidth> run;
#pragma unroll
  for (int k = 0; k < kWideWidth; ++k) {
    float value = values.at[k];
    if constexpr (std::is_same_v<Cache, __nv_fp8_e4m3>) value /= scale;
    run.at[k] = Cache(value);
  }
  *reinterpret_cast<Vec<Cache, kWideWidth>*>(to) = run;
}

// HeadArgs with types; of what new_heads_suit().
template <class T, class Cache>
struct NewHeads {
  T* q = nullptr;
  const T *k, *v;
  std::int64_t q_stride[2], k_stride[2], v_stride[2];  // token, head
  Cache *k_cache, *v_cache;
  std::int64_t k_cache_stride[3], v_cache_stride[3];  // block, slot, head
  const T *q_norm, *k_norm;                           // null: no norm
  const std::int32_t* positions;
  const float* cos_sin;  // null: no rotation
  std::int64_t cos_sin_stride;
  const std::int64_t* slots;
  CacheScale scale;
  FastDivide slots_of_block;
  float width, eps, offset;
  int rotated;  // threads of a head whose runs rotate
  bool interleaved;

  NewHeads() = default;
  explicit NewHeads(const HeadArgs& args)
      : q(static_cast<T*>(args.q.data())),
        k(static_cast<const T*>(args.k.data())),
        v(static_cast<const T*>(args.v.data())),
        q_stride{args.q.stride(0), args.q.stride(1)},
        k_stride{args.k.stride(0), args.k.stride(1)},
        v_stride{args.v.stride(0), args.v.stride(1)},
        k_cache(static_cast<Cache*>(args.k_cache.data())),
        v_cache(static_cast<Cache*>(args.v_cache.data())),
        k_cache_stride{args.k_cache.stride(0), args.k_cache.stride(1), args.k_cache.stride(2)},
        v_cache_stride{args.v_cache.stride(0), args.v_cache.stride(1), args.v_cache.stride(2)},
        q_norm(static_cast<const T*>(args.q_norm.data())),
        k_norm(static_cast<const T*>(args.k_norm.data())),
        positions(static_cast<const std::int32_t*>(args.positions.data())),
        cos_sin(static_cast<const float*>(args.cos_sin.data())),
        cos_sin_stride(args.cos_sin.empty() ? 0 : args.cos_sin.stride(0)),
        slots(static_cast<const std::int64_t*>(args.slots.data())),
        scale(args.cache_scale),
        slots_of_block(static_cast<int>(args.k_cache.extent(1))),
        width(static_cast<float>(args.q.extent(2))),
        eps(args.norm_eps),
        offset(args.norm_offset),
        rotated(args.cos_sin.empty() ? 0 : pairs_of(static_cast<int>(args.cos_sin.extent(1)))),
        interleaved(args.style == RopeStyle::interleaved) {}

  // By all threads of a block, before it waits.
  __device__ __forceinline__ void prefetch_norms() const {
    if (q_norm == nullptr) return;
    prefetch(q_norm, static_cast<int>(width));
    prefetch(k_norm, static_cast<int>(width));
  }
  __device__ __forceinline__ T* query(std::int64_t token, int head) const {
    return q + token * q_stride[0] + head * q_stride[1];
  }
  __device__ __forceinline__ const T* key(std::int64_t token, int head) const {
    return k + token * k_stride[0] + head * k_stride[1];
  }

  // What the lane-th of a head's `lanes` threads has of it, normed and rotated. All threads of a
  // warp come here; of some there may be no head. kAhead: all that is read is asked for at once,
  // for who has the registers and nothing else to wait for.
  template <bool kAhead>
  __device__ __forceinline__ HeadRuns prepare(const T* head, const T* weight, std::int64_t token,
                                              int lane, int lanes, bool there) const {
    const bool rotates = lane < rotated;
    HeadRuns r{};
    r.first = (rotates && !interleaved ? lane : 2 * lane) * kWideWidth;
    r.second = r.first + (rotates && !interleaved ? rotated : 1) * kWideWidth;
    Wide<T> weights[2]{};
    Angles angles{};
    const auto read_weights = [&] {
      weights[0] = load_wide(weight + r.first);
      weights[1] = load_wide(weight + r.second);
    };
    const auto read_angles = [&] {
      const float* const row = cos_sin + positions[token] * cos_sin_stride + lane * kWideWidth;
      angles.cosine = *reinterpret_cast<const Vec<float, kWideWidth>*>(row);
      angles.sine = *reinterpret_cast<const Vec<float, kWideWidth>*>(row + rotated * kWideWidth);
    };
    if (there) {
      if (kAhead && rotates) read_angles();
      if (kAhead && weight != nullptr) read_weights();
      r.x = load_wide_floats(head + r.first);
      r.y = load_wide_floats(head + r.second);
    }
    if (weight != nullptr) {
      float sum = 0.f;
#pragma unroll
      for (int i = 0; i < kWideWidth; ++i)
        sum = fmaf(r.y.at[i], r.y.at[i], fmaf(r.x.at[i], r.x.at[i], sum));
      for (int other = lanes / 2; other != 0; other /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, other);
      if (there) {
        const float factor = rsqrtf(sum / width + eps);
        if (!kAhead) read_weights();
        norm_run(r.x, weights[0], factor, offset);
        norm_run(r.y, weights[1], factor, offset);
      }
    }
    if (there && rotates) {
      if (!kAhead) read_angles();
      rotate<T>(r.x, r.y, angles, interleaved);
    }
    return r;
  }

  // A prepared key and the value beside it, to their slot.
  __device__ __forceinline__ void store(const HeadRuns& r, std::int64_t token, int head) const {
    const int slot = static_cast<int>(slots[token]);
    if (slot < 0) return;
    const int block = slots_of_block(slot), place = slot - block * slots_of_block.divisor;
    const auto row_of = [&](Cache* cache, const std::int64_t* stride) {
      return cache + block * stride[0] + place * stride[1] + head * stride[2];
    };
    Cache* const keys = row_of(k_cache, k_cache_stride);
    store_cached(keys + r.first, r.x, scale.k);
    store_cached(keys + r.second, r.y, scale.k);
    const T* const value = v + token * v_stride[0] + head * v_stride[1];
    Cache* const values = row_of(v_cache, v_cache_stride);
    store_cached(values + r.first, load_wide_floats(value + r.first), scale.v);
    store_cached(values + r.second, load_wide_floats(value + r.second), scale.v);
  }
};

// Heads of whole pairs of runs at aligned addresses on both sides, at most a warp's.
inline bool new_heads_suit(const HeadArgs& args) {
  const auto aligned = [](const TensorView& t) {
    const std::size_t run = kWideWidth * size_of(t.dtype());
    return t.empty() || (is_wide(t) && t.stride(t.rank() - 1) == 1 &&
                         reinterpret_cast<std::uintptr_t>(t.data()) % run == 0);
  };
  const std::int64_t dim = args.q.extent(2);
  const auto same = [&](const TensorView& t) { return t.empty() || t.dtype() == args.q.dtype(); };
  return dim % (2 * kWideWidth) == 0 && dim <= 64 * kWideWidth && args.k.extent(2) == dim &&
         args.v.extent(2) == dim && args.v.extent(1) == args.k.extent(1) && same(args.k) &&
         same(args.v) && same(args.q_norm) && same(args.k_norm) && aligned(args.q) &&
         aligned(args.k) && aligned(args.v) && aligned(args.q_norm) && aligned(args.k_norm) &&
         aligned(args.k_cache) && aligned(args.v_cache) && aligned(args.cos_sin) &&
         (args.cos_sin.empty() || args.cos_sin.extent(1) % (2 * kWideWidth) == 0) &&
         args.k_cache.extent(1) == args.v_cache.extent(1) &&
         args.k_cache.extent(0) * args.k_cache.extent(1) <= 0x7fffffff;  // slots of 31 bits
}

}  // namespace quire::cuda
