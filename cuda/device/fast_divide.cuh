#pragma once
// Division of numbers below 2³¹ by a divisor that the host knows: a multiplication and a shift.
// Granlund, Montgomery, "Division by invariant integers using multiplication", 1994.

#include <bit>
#include <cassert>

#include "cuda/device/kernel.cuh"

namespace quire::cuda {

struct FastDivide {
  std::uint32_t factor = 0;
  int shift = 0, divisor = 0;

  FastDivide() = default;
  explicit FastDivide(int by)
      : shift(std::bit_width(static_cast<unsigned>(by) - 1)), divisor(by) {  // ⌈log2 by⌉
    assert(by >= 1);
    const auto d = static_cast<std::uint64_t>(by);
    factor = static_cast<std::uint32_t>(((std::uint64_t{1} << (31 + shift)) + d - 1) / d);
  }
  __device__ __forceinline__ int operator()(int n) const {
    return static_cast<int>(__umulhi(2 * static_cast<unsigned>(n), factor) >> shift);
  }
};

}  // namespace quire::cuda
