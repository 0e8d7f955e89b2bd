#pragma once
// A SIMD register of floats for the kernel sources, which are compiled once per instruction set
// (QUIRE_CPU_ISA names it). Everything is in that set's namespace and this file includes nothing
// that defines inline functions elsewhere: a copy compiled for AVX-512 must never be what the
// linker picks for an older machine.

#include "cpu/kernels/kernels.h"

#if defined(__AVX512F__)
#include "cpu/kernels/vec_avx512.h"
#elif defined(__AVX2__)
#include "cpu/kernels/vec_avx2.h"
#else
#include "cpu/kernels/vec_portable.h"
#endif

namespace quire::cpu::QUIRE_CPU_ISA {

template <class T>
struct Tag {
  using type = T;
};

template <class F>
inline void with_float(Float type, F&& f) {
  switch (type) {
    case Float::f32:
      return f(Tag<float>{});
    case Float::bf16:
      return f(Tag<Bf16>{});
    case Float::f16:
      return f(Tag<F16>{});
    case Float::e4m3:
      __builtin_unreachable();  // with_cache() is for those
  }
}

template <class F>
inline void with_cache(Float type, F&& f) {
  if (type == Float::e4m3) return f(Tag<E4m3>{});
  with_float(type, f);
}

template <class T>
inline T* row(const Rows& rows, std::int64_t i) {
  return static_cast<T*>(rows.data) + i / rows.inner * rows.stride +
         i % rows.inner * rows.inner_stride;
}

inline std::int64_t min_of(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
inline std::int64_t max_of(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

// f(i, n) for i = 0, kLanes, …: n lanes are there.
template <class F>
inline void for_lanes(std::int64_t size, F&& f) {
  std::int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) f(i, kLanes);
  if (i < size) f(i, static_cast<int>(size - i));
}

template <class T>
inline Vec load(const T* p, int n) {
  return n == kLanes ? load(p) : load_some(p, n);
}

template <class T>
inline void store(T* p, Vec v, int n) {
  if (n == kLanes) {
    store(p, v);
  } else {
    store_some(p, v, n);
  }
}

#if !defined(__AVX512F__)
// to[r · stride + c] = sum(v[r · kColumns + c])
template <int kRows, int kColumns>
inline __attribute__((always_inline)) void store_sums(const Vec* v, float* to,
                                                      std::int64_t stride) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) to[r * stride + c] = sum(v[r * kColumns + c]);
  }
}
#endif

inline float exp_one(float x) { return max_lane(exp(splat(x))); }
inline Vec sigmoid(Vec x) { return splat(1.f) / (splat(1.f) + exp(-x)); }
inline Vec silu(Vec x) { return x / (splat(1.f) + exp(-x)); }
// Absolute error about 1e-7, which is what its users need.
inline Vec tanh(Vec x) { return splat(1.f) - splat(2.f) / (exp(x + x) + splat(1.f)); }

}  // namespace quire::cpu::QUIRE_CPU_ISA
