#pragma once
// What CUDA C++ offers kernels beyond C++, in terms of core.h.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "core.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_fp8.h"

namespace emulation {
EMULATION_NO_TSAN inline void count_true(Lane** lanes, int count) {
  int sum = 0;
  for (int i = 0; i < count; ++i) sum += *static_cast<const int*>(lanes[i]->in) != 0;
  for (int i = 0; i < count; ++i) *static_cast<int*>(lanes[i]->out) = sum;
}
}  // namespace emulation

// Barriers.
inline void __syncthreads(EMULATION_SITE) {
  if (emulation::deleted(EMULATION_HERE("__syncthreads"))) return;
  emulation::block_collective(0, nullptr, nullptr, nullptr, EMULATION_HERE("__syncthreads"));
}
inline int __syncthreads_count(int predicate, EMULATION_SITE) {
  int result = 0;
  emulation::block_collective(0, emulation::count_true, &predicate, &result,
                              EMULATION_HERE("__syncthreads_count"));
  return result;
}
inline int __syncthreads_or(int predicate, EMULATION_SITE) {
  return __syncthreads_count(predicate, file_, line_) != 0;
}
inline int __syncthreads_and(int predicate, EMULATION_SITE) {
  return __syncthreads_count(!predicate, file_, line_) == 0;
}
inline void __syncwarp(unsigned mask = ~0u, EMULATION_SITE) {
  if (emulation::deleted(EMULATION_HERE("__syncwarp"))) return;
  emulation::warp_collective(mask, nullptr, nullptr, nullptr, 0, true,
                             EMULATION_HERE("__syncwarp"));
}
inline void __threadfence(EMULATION_SITE) {
  if (!emulation::deleted(EMULATION_HERE("__threadfence"))) emulation::fence();
}
inline void __threadfence_block(EMULATION_SITE) { __threadfence(file_, line_); }
inline void __nanosleep(unsigned) { emulation::yield(); }

// Warp intrinsics. Shuffles order no memory.
namespace emulation {
template <class T>
T shuffled(unsigned mask, T value, int mode, int delta, int width, Site site) {
  static_assert(std::is_trivially_copyable_v<T> &&
                (sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8));
  shuffle(mask, &value, sizeof(T), mode, delta, width, site);
  return value;
}
}  // namespace emulation
template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, EMULATION_SITE) {
  return emulation::shuffled(mask, value, 0, lane, width, EMULATION_HERE("__shfl_sync"));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int delta, int width = 32, EMULATION_SITE) {
  return emulation::shuffled(mask, value, 1, delta, width, EMULATION_HERE("__shfl_up_sync"));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, int delta, int width = 32, EMULATION_SITE) {
  return emulation::shuffled(mask, value, 2, delta, width, EMULATION_HERE("__shfl_down_sync"));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, EMULATION_SITE) {
  return emulation::shuffled(mask, value, 3, lanes, width, EMULATION_HERE("__shfl_xor_sync"));
}
inline unsigned __ballot_sync(unsigned mask, int predicate, EMULATION_SITE) {
  return static_cast<unsigned>(emulation::vote(mask, emulation::Vote::ballot, predicate != 0, false,
                                               EMULATION_HERE("__ballot_sync")));
}
inline int __any_sync(unsigned mask, int predicate, EMULATION_SITE) {
  return emulation::vote(mask, emulation::Vote::ballot, predicate != 0, false,
                         EMULATION_HERE("__any_sync")) != 0;
}
inline int __all_sync(unsigned mask, int predicate, EMULATION_SITE) {
  return emulation::vote(mask, emulation::Vote::ballot, predicate == 0, false,
                         EMULATION_HERE("__all_sync")) == 0;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, EMULATION_SITE) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return static_cast<unsigned>(emulation::vote(mask, emulation::Vote::match, bits, false,
                                               EMULATION_HERE("__match_any_sync")));
}
namespace emulation {
template <class T>
T voted(unsigned mask, Vote kind, T value, Site site) {
  return static_cast<T>(vote(mask, kind,
                             static_cast<std::uint64_t>(static_cast<std::int64_t>(value)),
                             std::is_signed_v<T>, site));
}
}  // namespace emulation
template <class T>
T __reduce_add_sync(unsigned mask, T value, EMULATION_SITE) {
  return emulation::voted(mask, emulation::Vote::add, value, EMULATION_HERE("__reduce_add_sync"));
}
template <class T>
T __reduce_min_sync(unsigned mask, T value, EMULATION_SITE) {
  return emulation::voted(mask, emulation::Vote::min, value, EMULATION_HERE("__reduce_min_sync"));
}
template <class T>
T __reduce_max_sync(unsigned mask, T value, EMULATION_SITE) {
  return emulation::voted(mask, emulation::Vote::max, value, EMULATION_HERE("__reduce_max_sync"));
}

// Atomics: relaxed, as in CUDA.
namespace emulation {
template <class T, class Change>
T read_modify_write(T* address, Change change) {
  AtomicScope scope(address);
  std::atomic_ref<T> value(*address);
  T old = value.load(std::memory_order_relaxed);
  while (!value.compare_exchange_weak(old, change(old), std::memory_order_relaxed)) {
  }
  return old;
}
}  // namespace emulation
template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  return emulation::read_modify_write(p, [=](T old) { return static_cast<T>(old + v); });
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> v) {
  return emulation::read_modify_write(p, [=](T old) { return old < v ? v : old; });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> v) {
  return emulation::read_modify_write(p, [=](T old) { return v < old ? v : old; });
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> v) {
  return emulation::read_modify_write(p, [=](T old) { return static_cast<T>(old | v); });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> v) {
  return emulation::read_modify_write(p, [=](T) { return v; });
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> desired) {
  emulation::AtomicScope scope(p);
  std::atomic_ref<T>(*p).compare_exchange_strong(expected, desired, std::memory_order_relaxed);
  return expected;
}

// Loads, bits, arithmetic.
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, std::type_identity_t<T> value) {
  *p = value;
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const std::uint64_t bytes = x | std::uint64_t{y} << 32;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return result;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(std::uint64_t{a} * b >> 32);
}
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
// glibc declares __expf and friends without exporting them, hence macros.
#define __expf(x) expf(x)
#define __exp2f(x) exp2f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
template <class A, class B>
requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using C = std::common_type_t<A, B>;
  return static_cast<C>(b) < static_cast<C>(a) ? static_cast<C>(b) : static_cast<C>(a);
}
template <class A, class B>
requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using C = std::common_type_t<A, B>;
  return static_cast<C>(a) < static_cast<C>(b) ? static_cast<C>(b) : static_cast<C>(a);
}
