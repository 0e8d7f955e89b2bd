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

// Byte address of B's element (k, n), as PTX describes panels of 128 bytes that are swizzled.
template <Major kMajor>
std::uint32_t element_address(std::uint64_t descriptor, int k, int n) {
  const auto field = [&](int shift) { return static_cast<int>(descriptor >> shift & 0x3fff) << 4; };
  const int start = field(0), leading = field(16), stride = field(32);
  const int at = kMajor == Major::k
                     ? start + n / 8 * stride + n % 8 * 128 + k * 2
                     : start + n / 64 * leading + k / 8 * stride + k % 8 * 128 + n % 64 * 2;
  return static_cast<std::uint32_t>(at ^ (at >> 7 & 7) << 4);
}

template <class T, Major kMajor>
T element_of(std::uint64_t descriptor, int k, int n) {
  T value;
  std::memcpy(&value, emulation::shared_pointer(element_address<kMajor>(descriptor, k, n)),
              sizeof value);
  return value;
}

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
  volatile T sink;
  const int columns = p.count * 2;
  for (int i = emulation::group_thread(); kSharedA && i < 16 * 64; i += 128)
    sink = element_of<T, Major::k>(descriptor_of(p), i % 16, i / 16);
  for (int i = emulation::group_thread(); i < 16 * columns; i += 128)
    sink = element_of<T, kMajor>(p.b, i / columns, i % columns);
  (void)sink;
}

template <class T, Major kMajor, bool kSharedA>
EMULATION_NO_TSAN void multiply_lanes(emulation::Lane** lanes, int) {
  const auto product = [&](int t) -> const emulation::GroupProduct& {
    return *static_cast<const emulation::GroupProduct*>(lanes[t]->in);
  };
  const int n_count = product(0).count * 2;
  float b[16][128], a[16], sums[128];
  for (int k = 0; k < 16; ++k) {
    for (int n = 0; n < n_count; ++n) {
      const std::uint32_t address = element_address<kMajor>(product(0).b, k, n);
      emulation::check_proxy(address);
      b[k][n] = half_of<T>(element_of<std::uint16_t, kMajor>(product(0).b, k, n), 0);
    }
  }
  for (int m = 0; m < 64; ++m) {
    const int first = m / 16 * 32 + m % 8 * 4, h = m % 16 / 8;  // lane with columns 0 and 1
    for (int k = 0; k < 16; ++k) {
      if constexpr (kSharedA) {
        const std::uint64_t descriptor = descriptor_of(product(0));
        emulation::check_proxy(element_address<Major::k>(descriptor, k, m));
        a[k] = half_of<T>(element_of<std::uint16_t, Major::k>(descriptor, k, m), 0);
      } else {
        a[k] = half_of<T>(
            static_cast<const FragmentA*>(product(first + k % 8 / 2).a)->r[h + k / 8 * 2], k & 1);
      }
    }
    for (int n = 0; n < n_count; ++n) sums[n] = 0.f;
    for (int k = 0; k < 16; ++k) {
      for (int n = 0; n < n_count; ++n) sums[n] += a[k] * b[k][n];
    }
    for (int n = 0; n < n_count; ++n) {
      const emulation::GroupProduct& p = product(first + n % 8 / 2);
      float& d = p.sums[n / 8 * 4 + 2 * h + n % 2];
      d = sums[n] + (p.accumulate ? d : 0.f);
    }
  }
}

inline void clear_operand(void* shared) {
  *static_cast<uint4*>(shared) = uint4{};
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
template <int kCount>
void hold(FragmentC (&)[kCount]) {}

template <class T, Major kMajor, bool kSharedA, int kBlocks>
void issue_product(FragmentC (&d)[kBlocks], const void* a, SharedMatrix b, bool accumulate,
                   emulation::Site site) {
  static_assert(kBlocks == 4 || kBlocks == 8 || kBlocks == 16);
  using Half = std::conditional_t<std::is_same_v<T, __half>, f16, bf16>;
  emulation::group_issue({.d = d[0].r,
                          .a = a,
                          .b = b.descriptor,
                          .count = kBlocks * 4,
                          .accumulate = accumulate,
                          .compute = multiply_lanes<Half, kMajor, kSharedA>,
                          .touch = touch<std::uint16_t, kMajor, kSharedA>},
                         site);
}
template <class T, Major kMajor, int kBlocks>
void warpgroup_mma(FragmentC (&d)[kBlocks], const FragmentA& a, SharedMatrix b, bool accumulate,
                   EMULATION_SITE) {
  issue_product<T, kMajor, false>(d, &a, b, accumulate, EMULATION_HERE("warpgroup_mma"));
}
template <class T>
void warpgroup_mma(FragmentC (&d)[4], SharedMatrix a, SharedMatrix b, bool accumulate,
                   EMULATION_SITE) {
  issue_product<T, Major::k, true>(d, as_operand(a), b, accumulate,
                                   EMULATION_HERE("warpgroup_mma"));
}

}  // namespace quire::cuda
