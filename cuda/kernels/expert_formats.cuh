#pragma once
// Formats of expert weights on tensor cores: how a slice of a row becomes fragments.

#include "cuda/device/fp8.cuh"
#include "cuda/device/mxfp4.cuh"
#include "cuda/device/typed_mma.cuh"

namespace quire::cuda {

constexpr int kSlice = 32;  // of K: two instructions

// A lane holds elements 8 · (lane % 4) … + 7 of a slice of a row, which two instructions take as
// they like, if weights and tokens agree.
struct LaneSlice {
  std::uint32_t pair[4];
};
template <class T>
__device__ __forceinline__ LaneSlice lane_slice(const T* slice) {
  const int first = threadIdx.x % 4 * 8;
  return *reinterpret_cast<const LaneSlice*>(slice + first);
}

// kScaleDepth: elements of K under one scale, by which sums of products are multiplied; 0: none.
// kFoldDepth: elements under a scale of a row that weights() applies itself, relative to the row's
// largest. kFewResident: blocks of few tokens on a multiprocessor.
template <class T>
struct PlainFormat {
  using Element = T;
  static constexpr int kSliceBytes = kSlice * sizeof(T);
  using Scale = std::uint8_t;  // none
  static constexpr int kScaleDepth = 0, kFoldDepth = 0, kFewResident = 3;

  // Rows r and r + 8 of a warp's sixteen.
  __device__ __forceinline__ static void weights(FragmentA (&a)[2], const unsigned char* low,
                                                 const unsigned char* high) {
    const LaneSlice l = lane_slice(reinterpret_cast<const T*>(low));
    const LaneSlice h = lane_slice(reinterpret_cast<const T*>(high));
    a[0] = {{l.pair[0], h.pair[0], l.pair[1], h.pair[1]}};
    a[1] = {{l.pair[2], h.pair[2], l.pair[3], h.pair[3]}};
  }
  __device__ __forceinline__ static void tokens(FragmentB (&b)[2], const LaneSlice& x) {
    b[0] = {{x.pair[0], x.pair[1]}};
    b[1] = {{x.pair[2], x.pair[3]}};
  }
};

// Pairs are of elements i and i + 4, as e2m1_pair gives them.
struct Mxfp4Format {
  using Element = __nv_bfloat16;
  static constexpr int kSliceBytes = kMxGroupBytes;
  using Scale = std::uint8_t;
  static constexpr int kScaleDepth = 0, kFoldDepth = kMxGroup, kFewResident = 6;
  static_assert(kSlice == kMxGroup);

  __device__ __forceinline__ static __nv_bfloat162 pair_of(Scale exponent) {
    return pair_of_bits(exponent * 0x00800080u);
  }
  // Of eight nibbles of rows r and r + 8.
  __device__ __forceinline__ static void weights(FragmentA (&a)[2], std::uint32_t l,
                                                 std::uint32_t h, __nv_bfloat162 ls,
                                                 __nv_bfloat162 hs) {
    a[0] = {{e2m1_pair<0>(l, ls), e2m1_pair<0>(h, hs), e2m1_pair<1>(l, ls), e2m1_pair<1>(h, hs)}};
    a[1] = {{e2m1_pair<2>(l, ls), e2m1_pair<2>(h, hs), e2m1_pair<3>(l, ls), e2m1_pair<3>(h, hs)}};
  }
  __device__ __forceinline__ static void weights(FragmentA (&a)[2], const unsigned char* low,
                                                 const unsigned char* high, __nv_bfloat162 ls,
                                                 __nv_bfloat162 hs) {
    const int first = threadIdx.x % 4 * 4;
    weights(a, *reinterpret_cast<const std::uint32_t*>(low + first),
            *reinterpret_cast<const std::uint32_t*>(high + first), ls, hs);
  }
  __device__ __forceinline__ static void tokens(FragmentB (&b)[2], const LaneSlice& x) {
    const auto low = [&](int i) { return __byte_perm(x.pair[i], x.pair[i + 2], 0x5410); };
    const auto high = [&](int i) { return __byte_perm(x.pair[i], x.pair[i + 2], 0x7632); };
    b[0] = {{low(0), high(0)}};
    b[1] = {{low(1), high(1)}};
  }
};

template <class T>
struct Fp8Format {
  using Element = T;
  static constexpr int kSliceBytes = kSlice;
  using Scale = float;
  static constexpr int kScaleDepth = kFp8Block, kFoldDepth = 0, kFewResident = 5;
  static_assert(kScaleDepth % kSlice == 0);

  __device__ __forceinline__ static float scale(Scale value) { return value; }
  __device__ __forceinline__ static void weights(FragmentA (&a)[2], const unsigned char* low,
                                                 const unsigned char* high) {
    using EightCodes = Vec<__nv_fp8x2_e4m3, 4>;
    const int first = threadIdx.x % 4 * 8;
    const auto l = *reinterpret_cast<const EightCodes*>(low + first);
    const auto h = *reinterpret_cast<const EightCodes*>(high + first);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      a[i] = {{wide_pair<T>(l.at[2 * i]), wide_pair<T>(h.at[2 * i]), wide_pair<T>(l.at[2 * i + 1]),
               wide_pair<T>(h.at[2 * i + 1])}};
    }
  }
  __device__ __forceinline__ static void tokens(FragmentB (&b)[2], const LaneSlice& x) {
    PlainFormat<T>::tokens(b, x);
  }
};

}  // namespace quire::cuda
