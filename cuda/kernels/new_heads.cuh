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
template <class T>
struct HeadRuns {
  Wide<T> x, y;
  int first, second;
};

template <class T>
__device__ __forceinline__ Wide<T> normed_run(const Wide<T>& run, const Wide<T>& weight,
                                              float scale, float offset) {
  Wide<float> values = floats_of(run);
  const Wide<float> weights = floats_of(weight);
#pragma unroll
  for (int k = 0; k < kWideWidth; ++k)
    values.at[k] = values.at[k] * scale * (weights.at[k] + offset);
  return rounded<T>(values);
}

__device__ __forceinline__ void turn(float& a, float& b, float cosine, float sine) {
  const float p = a, q = b;
  a = fmaf(p, cosine, -(q * sine));
  b = fmaf(q, cosine, p * sine);
}

// Of the pairs that a thread has.
struct Angles {
  Vec<float, kWideWidth> cosine, sine;
};

// The runs: the same dims of both halves, or neighbours where pairs are.
template <class T>
__device__ __forceinline__ void rotate(HeadRuns<T>& runs, const Angles& angles, bool interleaved) {
  const Vec<float, kWideWidth>&cosine = angles.cosine, &sine = angles.sine;
  Wide<float> a = floats_of(runs.x), b = floats_of(runs.y);
  constexpr int kHalf = kWideWidth / 2;
  if (interleaved) {
#pragma unroll
    for (int k = 0; k < kHalf; ++k) {
      turn(a.at[2 * k], a.at[2 * k + 1], cosine.at[k], sine.at[k]);
      turn(b.at[2 * k], b.at[2 * k + 1], cosine.at[kHalf + k], sine.at[kHalf + k]);
    }
  } else {
#pragma unroll
    for (int k = 0; k < kWideWidth; ++k) turn(a.at[k], b.at[k], cosine.at[k], sine.at[k]);
  }
  runs.x = rounded<T>(a);
  runs.y = rounded<T>(b);
}

template <class Cache, class T>
__device__ __forceinline__ void store_cached(Cache* to, const Wide<T>& values, float scale) {
  Vec<Cache, kWideWidth> run;
#pragma unroll
  for (int k = 0; k < kWideWidth; ++k) {
    if constexpr (std::is_same_v<Cache, T>) {
      run.at[k] = values.at[k];
    } else {
      float value = static_cast<float>(values.at[k]);
      if constexpr (std::is_same_v<Cache, __nv_fp8_e4m3>) value /= scale;
      run.at[k] = Cache(value);
    }
  }
  *reinterpret_cast<Vec<Cache, kWideWidth>*>(to) = run;
}

// Elements from one to the next, of which new_heads_suit() says that they fit.
struct HeadStride {
  int token, head;

  HeadStride() = default;
  explicit HeadStride(const TensorView& t, int dim = 0)
      : token(static_cast<int>(t.stride(dim))), head(static_cast<int>(t.stride(dim + 1))) {}
  __device__ __forceinline__ int to(int token_index, int head_index) const {
    return token_index * token + head_index * head;
  }
};

// HeadArgs with types; of what new_heads_suit().
template <class T, class Cache>
struct NewHeads {
  T* q = nullptr;
  const T *k, *v;
  HeadStride q_stride, k_stride, v_stride;
  Cache *k_cache, *v_cache;
  int block_stride;  // of both
  HeadStride slot_stride;
  const T *q_norm, *k_norm;  // null: no norm
  const std::int32_t* positions;
  const float* cos_sin;  // null: no rotation
  const std::int64_t* slots;
  CacheScale scale;
  FastDivide slots_of_block;
  int dim, cos_sin_stride;
  float inverse_dim, eps, offset;
  int rotated;  // threads of a head whose runs rotate
  bool interleaved;

  NewHeads() = default;
  explicit NewHeads(const HeadArgs& args)
      : q(static_cast<T*>(args.q.data())),
        k(static_cast<const T*>(args.k.data())),
        v(static_cast<const T*>(args.v.data())),
        q_stride(args.q),
        k_stride(args.k),
        v_stride(args.v),
        k_cache(static_cast<Cache*>(args.k_cache.data())),
        v_cache(static_cast<Cache*>(args.v_cache.data())),
        block_stride(static_cast<int>(args.k_cache.stride(0))),
        slot_stride(args.k_cache, 1),
        q_norm(static_cast<const T*>(args.q_norm.data())),
        k_norm(static_cast<const T*>(args.k_norm.data())),
        positions(static_cast<const std::int32_t*>(args.positions.data())),
        cos_sin(static_cast<const float*>(args.cos_sin.data())),
        slots(static_cast<const std::int64_t*>(args.slots.data())),
        scale(args.cache_scale),
        slots_of_block(static_cast<int>(args.k_cache.extent(1))),
        dim(static_cast<int>(args.q.extent(2))),
        cos_sin_stride(args.cos_sin.empty() ? 0 : static_cast<int>(args.cos_sin.stride(0))),
        inverse_dim(1.f / static_cast<float>(dim)),
        eps(args.norm_eps),
        offset(args.norm_offset),
        rotated(args.cos_sin.empty() ? 0 : pairs_of(static_cast<int>(args.cos_sin.extent(1)))),
        interleaved(args.style == RopeStyle::interleaved) {}

  // By all threads of a block, before it waits.
  __device__ __forceinline__ void prefetch_norms() const {
    if (q_norm == nullptr) return;
    prefetch(q_norm, dim);
    prefetch(k_norm, dim);
  }
  __device__ __forceinline__ T* query(int token, int head) const {
    return q + q_stride.to(token, head);
  }
  __device__ __forceinline__ const T* key(int token, int head) const {
    return k + k_stride.to(token, head);
  }

  // What the lane-th of a head's `lanes` threads has of it, normed and rotated. All threads of a
  // warp come here with some head and lane, those for whom there is none with another's; `counts`:
  // not those that are beside a head's last. kAhead: all that is read is asked for at once, for who
  // has the registers and nothing else to wait for.
  template <bool kAhead>
  __device__ __forceinline__ HeadRuns<T> prepare(const T* head, const T* weight, int token,
                                                 int lane, int lanes, bool counts) const {
    const bool rotates = lane < rotated;
    HeadRuns<T> r;
    r.first = (rotates && !interleaved ? lane : 2 * lane) * kWideWidth;
    r.second = r.first + (rotates && !interleaved ? rotated : 1) * kWideWidth;
    Wide<T> weights[2];
    Angles angles;
    const auto read_weights = [&] {
      weights[0] = load_wide(weight + r.first);
      weights[1] = load_wide(weight + r.second);
    };
    const auto read_angles = [&] {
      const float* const row = cos_sin + (positions[token] * cos_sin_stride + lane * kWideWidth);
      angles.cosine = *reinterpret_cast<const Vec<float, kWideWidth>*>(row);
      angles.sine = *reinterpret_cast<const Vec<float, kWideWidth>*>(row + rotated * kWideWidth);
    };
    if (kAhead && rotates) read_angles();
    if (kAhead && weight != nullptr) read_weights();
    r.x = load_wide(head + r.first);
    r.y = load_wide(head + r.second);
    if (weight != nullptr) {
      const Wide<float> x = floats_of(r.x), y = floats_of(r.y);
      float sum = 0.f;
#pragma unroll
      for (int i = 0; i < kWideWidth; ++i)
        sum = fmaf(y.at[i], y.at[i], fmaf(x.at[i], x.at[i], sum));
      if (!counts) sum = 0.f;
      for (int other = lanes / 2; other != 0; other /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, other);
      const float factor = rsqrtf(fmaf(sum, inverse_dim, eps));
      if (!kAhead) read_weights();
      r.x = normed_run(r.x, weights[0], factor, offset);
      r.y = normed_run(r.y, weights[1], factor, offset);
    }
    if (rotates) {
      if (!kAhead) read_angles();
      rotate(r, angles, interleaved);
    }
    return r;
  }

  // A prepared key and the value beside it, to their slot.
  __device__ __forceinline__ void store(const HeadRuns<T>& r, int token, int head) const {
    const int slot = static_cast<int>(slots[token]);
    const T* const value = v + v_stride.to(token, head);
    const Wide<T> x = load_wide(value + r.first), y = load_wide(value + r.second);
    if (slot < 0) return;
    const int block = slots_of_block(slot), place = slot - block * slots_of_block.divisor;
    const std::int64_t at = std::int64_t{block} * block_stride + slot_stride.to(place, head);
    store_cached(k_cache + at + r.first, r.x, scale.k);
    store_cached(k_cache + at + r.second, r.y, scale.k);
    store_cached(v_cache + at + r.first, x, scale.v);
    store_cached(v_cache + at + r.second, y, scale.v);
  }
};

// Heads of whole pairs of runs at aligned addresses on both sides, at most a warp's, with strides
// and slots of 31 bits; caches that are laid out alike.
inline bool new_heads_suit(const HeadArgs& args) {
  constexpr std::int64_t kMost = 0x7fffffff;
  const auto aligned = [](const TensorView& t) {
    const std::size_t run = kWideWidth * size_of(t.dtype());
    return t.empty() || (is_wide(t) && t.stride(t.rank() - 1) == 1 &&
                         reinterpret_cast<std::uintptr_t>(t.data()) % run == 0);
  };
  const std::int64_t dim = args.q.extent(2);
  const auto same = [&](const TensorView& t) { return t.empty() || t.dtype() == args.q.dtype(); };
  const auto fits = [](const TensorView& t, int dim = 0) {
    return t.empty() ||
           t.extent(dim) * t.stride(dim) + t.extent(dim + 1) * t.stride(dim + 1) <= kMost;
  };
  const TensorView &k_cache = args.k_cache, &v_cache = args.v_cache;
  bool alike = k_cache.extent(1) == v_cache.extent(1);
  for (int i = 0; i < 3; ++i) alike = alike && k_cache.stride(i) == v_cache.stride(i);
  return dim % (2 * kWideWidth) == 0 && dim <= 64 * kWideWidth && args.k.extent(2) == dim &&
         args.v.extent(2) == dim && args.v.extent(1) == args.k.extent(1) && same(args.k) &&
         same(args.v) && same(args.q_norm) && same(args.k_norm) && aligned(args.q) &&
         aligned(args.k) && aligned(args.v) && aligned(args.q_norm) && aligned(args.k_norm) &&
         aligned(k_cache) && aligned(v_cache) && aligned(args.cos_sin) && fits(args.q) &&
         fits(args.k) && fits(args.v) && fits(args.cos_sin) && fits(k_cache, 1) &&
         k_cache.stride(0) <= kMost && alike &&
         (args.cos_sin.empty() || args.cos_sin.extent(1) % (2 * kWideWidth) == 0) &&
         k_cache.extent(0) * k_cache.extent(1) <= kMost;
}

}  // namespace quire::cuda
