#pragma once
// Reference versions of the instructions in cuda/device/warpgroup.cuh. A product happens at its
// wait (late copies) or at once (eager ones); until then its sums are NaN.

#include "cuda/device/warpgroup.cuh"
#include "instructions.h"

namespace quire::cuda {

constexpr bool kHasWarpgroups = true;

inline SharedMatrix shared_matrix(const void* at, int panel_bytes = 0) {
  return describe_matrix(emulation::shared_address(at), panel_bytes);
}

// Byte address of B's element (k, n), as PTX describes panels of 128 bytes that are swizzled. T:
// the elements, of one byte (Major::k) or two.
template <class T, Major kMajor>
std::uint32_t element_address(std::uint64_t descriptor, int k, int n) {
  static_assert(sizeof(T) == 2 || kMajor == Major::k);
  constexpr int kSize = sizeof(T);
  const auto field = [&](int shift) { return static_cast<int>(descriptor >> shift & 0x3fff) << 4; };
  const int start = field(0), leading = field(16), stride = field(32);
  const int at = kMajor == Major::k
                     ? start + n / 8 * stride + n % 8 * 128 + k * kSize
                     : start + n / 64 * leading + k / 8 * stride + k % 8 * 128 + n % 64 * 2;
  return static_cast<std::uint32_t>(at ^ (at >> 7 & 7) << 4);
}

template <class T, Major kMajor>
T element_of(std::uint64_t descriptor, int k, int n) {
  T value;
  std::memcpy(&value, emulation::shared_pointer(element_address<T, kMajor>(descriptor, k, n)),
              sizeof value);
  return value;
}

template <class T>
constexpr int kProductDepth = 32 / sizeof(T);  // of K: 32 bytes

// A product's `a`: its registers, or, where A is in shared memory, the descriptor itself.
inline const void* as_operand(SharedMatrix a) {
  return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(a.descriptor));
}
inline std::uint64_t descriptor_of(const emulation::GroupProduct& p) {
  return reinterpret_cast<std::uintptr_t>(p.a);
}

// Every thread reads its share of B, and of A, itself, so that the sanitizers know who reads.
template <class T, Major kMajor, bool kSharedA>
void touch(const emulation::GroupProduct& p) {
  constexpr int kDepth = kProductDepth<T>;
  std::uint8_t raw[sizeof(T)];
  volatile std::uint8_t sink;
  const int columns = p.count * 2;
  const auto read = [&](std::uint32_t address) {
    std::memcpy(raw, emulation::shared_pointer(address), sizeof raw);
    sink = raw[0];
  };
  for (int i = emulation::group_thread(); kSharedA && i < kDepth * 64; i += 128)
    read(element_address<T, Major::k>(descriptor_of(p), i % kDepth, i / kDepth));
  for (int i = emulation::group_thread(); i < kDepth * columns; i += 128)
    read(element_address<T, kMajor>(p.b, i / columns, i % columns));
  (void)sink;
}

template <class T, Major kMajor>
float product_operand(std::uint64_t descriptor, int k, int n) {
  emulation::check_proxy(element_address<T, kMajor>(descriptor, k, n));
  return static_cast<float>(element_of<T, kMajor>(descriptor, k, n));
}

template <class T, Major kMajor, bool kSharedA>
EMULATION_NO_TSAN void multiply_lanes(emulation::Lane** lanes, int) {
  constexpr int kDepth = kProductDepth<T>;
  const auto product = [&](int t) -> const emulation::GroupProduct& {
    return *static_cast<const emulation::GroupProduct*>(lanes[t]->in);
  };
  const int n_count = product(0).count * 2;
  float b[kDepth][128], a[kDepth], sums[128];
  for (int k = 0; k < kDepth; ++k) {
    for (int n = 0; n < n_count; ++n) b[k][n] = product_operand<T, kMajor>(product(0).b, k, n);
  }
  for (int m = 0; m < 64; ++m) {
    const int first = m / 16 * 32 + m % 8 * 4, h = m % 16 / 8;  // lane with columns 0 and 1
    for (int k = 0; k < kDepth; ++k) {
      if constexpr (kSharedA) {
        a[k] = product_operand<T, Major::k>(descriptor_of(product(0)), k, m);
      } else {
        a[k] = half_of<T>(
            static_cast<const FragmentA*>(product(first + k % 8 / 2).a)->r[h + k / 8 * 2], k & 1);
      }
    }
    for (int n = 0; n < n_count; ++n) sums[n] = 0.f;
    for (int k = 0; k < kDepth; ++k) {
      for (int n = 0; n < n_count; ++n) sums[n] += a[k] * b[k][n];
    }
    for (int n = 0; n < n_count; ++n) {
      const emulation::GroupProduct& p = product(first + n % 8 / 2);
      float& d = p.sums[n / 8 * 4 + 2 * h + n % 2];
      d = sums[n] + (p.accumulate ? d : 0.f);
    }
  }
}

template <class Chunk>
void store_operand(void* shared, const Chunk& chunk) {
  static_assert(sizeof chunk == 16 && alignof(Chunk) == 16);
  *static_cast<Chunk*>(shared) = chunk;
  emulation::note_landing(shared, 16);
}
inline void fence_async_proxy(EMULATION_SITE) {
  if (!emulation::deleted(EMULATION_HERE("fence_async_proxy"))) emulation::proxy_fence();
}
inline void warpgroup_fence(EMULATION_SITE) {
  if (!emulation::deleted(EMULATION_HERE("warpgroup_fence"))) emulation::group_fence();
}
inline void warpgroup_commit(EMULATION_SITE) {
  if (!emulation::deleted(EMULATION_HERE("warpgroup_commit"))) emulation::group_commit();
}
template <int kGroupsLeft>
void warpgroup_wait(EMULATION_SITE) {
  if (!emulation::deleted(EMULATION_HERE("warpgroup_wait")))
    emulation::group_wait(kGroupsLeft, EMULATION_HERE("warpgroup_wait"));
}
template <class Fragment, int kCount>
void hold(Fragment (&)[kCount]) {}

// The emulation's type for an operand's.
template <class T>
using Operand =
    std::conditional_t<std::is_same_v<T, __half>, f16,
                       std::conditional_t<std::is_same_v<T, __nv_fp8_e4m3>, __nv_fp8_e4m3, bf16>>;

template <class T, Major kMajor, bool kSharedA, int kBlocks>
void issue_product(FragmentC (&d)[kBlocks], const void* a, SharedMatrix b, bool accumulate,
                   emulation::Site site) {
  static_assert(kBlocks == 4 || kBlocks == 8 || kBlocks == 16);
  emulation::group_issue({.d = d[0].r,
                          .a = a,
                          .b = b.descriptor,
                          .count = kBlocks * 4,
                          .accumulate = accumulate,
                          .compute = multiply_lanes<Operand<T>, kMajor, kSharedA>,
                          .touch = touch<Operand<T>, kMajor, kSharedA>},
                         site);
}
template <class T, Major kMajor, int kBlocks>
void warpgroup_mma(FragmentC (&d)[kBlocks], const FragmentA& a, SharedMatrix b, bool accumulate,
                   EMULATION_SITE) {
  issue_product<T, kMajor, false>(d, &a, b, accumulate, EMULATION_HERE("warpgroup_mma"));
}
template <class T, int kBlocks>
void warpgroup_mma(FragmentC (&d)[kBlocks], SharedMatrix a, SharedMatrix b, bool accumulate,
                   EMULATION_SITE) {
  issue_product<T, Major::k, true>(d, as_operand(a), b, accumulate,
                                   EMULATION_HERE("warpgroup_mma"));
}

}  // namespace quire::cuda
