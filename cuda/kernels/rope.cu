// Rotary position embedding in place. Memory bound: x is read and written once, the table's rows
// come from L2.

#include <algorithm>

#include "cuda/device/fast_divide.cuh"
#include "cuda/device/vec.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kMaxThreads = 256;

// Rows of x in whole 16 bytes: a thread has that many elements of either half, or neighbours in
// pairs. One block per token; threads go over (head, run of elements).
template <class T, RopeStyle kStyle>
__global__ void __launch_bounds__(kMaxThreads)
    rope_wide_kernel(View<T, 3> x, const std::int32_t* positions, View<const float, 2> cos_sin,
                     FastDivide runs) {
  release_next_kernel();
  await_previous_kernel();
  constexpr int kWidth = kVecWidth<T>;
  constexpr bool kHalves = kStyle == RopeStyle::halves;
  constexpr int kPairs = kHalves ? kWidth : kWidth / 2;  // of a thread
  const std::int64_t token = blockIdx.x;
  const int half = static_cast<int>(cos_sin.extent[1]) / 2;
  const int heads = static_cast<int>(x.extent[1]);
  const float* row = cos_sin.data + positions[token] * cos_sin.stride[0];
  T* const to = x.data + token * x.stride[0];
  for (int i = threadIdx.x; i < heads * runs.divisor; i += blockDim.x) {
    const int head = runs(i), pair = (i - head * runs.divisor) * kPairs;
    const auto cosines = *reinterpret_cast<const Vec<float, kPairs>*>(row + pair);
    const auto sines = *reinterpret_cast<const Vec<float, kPairs>*>(row + half + pair);
    T* const at = to + head * x.stride[1] + (kHalves ? pair : 2 * pair);
    Vec16<T> a = load_vec(static_cast<const T*>(at)), b{};
    if constexpr (kHalves) b = load_vec(static_cast<const T*>(at + half));
#pragma unroll
    for (int k = 0; k < kPairs; ++k) {
      T& first = kHalves ? a.at[k] : a.at[2 * k];
      T& second = kHalves ? b.at[k] : a.at[2 * k + 1];
      const float p = static_cast<float>(first), q = static_cast<float>(second);
      first = T(p * cosines.at[k] - q * sines.at[k]);
      second = T(q * cosines.at[k] + p * sines.at[k]);
    }
    store_vec(at, a);
    if constexpr (kHalves) store_vec(at + half, b);
  }
}

// One block per token; threads go over (head, pair).
template <class T, RopeStyle kStyle>
__global__ void __launch_bounds__(kMaxThreads)
    rope_kernel(View<T, 3> x, const std::int32_t* positions, View<const float, 2> cos_sin) {
  release_next_kernel();
  await_previous_kernel();
  const std::int64_t token = blockIdx.x;
  const int heads = static_cast<int>(x.extent[1]);
  const int half = static_cast<int>(cos_sin.extent[1]) / 2;
  const float* row = cos_sin.data + positions[token] * cos_sin.stride[0];
  for (int i = threadIdx.x; i < heads * half; i += blockDim.x) {
    const int head = i / half, pair = i % half;
    const float cosine = row[pair], sine = row[half + pair];
    T& a = x(token, head, kStyle == RopeStyle::halves ? pair : 2 * pair);
    T& b = x(token, head, kStyle == RopeStyle::halves ? pair + half : 2 * pair + 1);
    const float p = static_cast<float>(a), q = static_cast<float>(b);
    a = T(p * cosine - q * sine);
    b = T(q * cosine + p * sine);
  }
}

template <class T, RopeStyle kStyle>
void launch_rope(TensorView x, TensorView positions, TensorView cos_sin, StreamRef stream) {
  const int heads = static_cast<int>(x.extent(1)), half = static_cast<int>(cos_sin.extent(1)) / 2;
  const int pairs = kStyle == RopeStyle::halves ? kVecWidth<T> : kVecWidth<T> / 2;
  const dim3 grid(static_cast<unsigned>(x.extent(0)));
  const auto block = [&](int threads) {
    return dim3(static_cast<unsigned>(std::min((threads + 31) / 32 * 32, kMaxThreads)));
  };
  const auto* at = static_cast<const std::int32_t*>(positions.data());
  const auto table = device_view<const float, 2>(cos_sin);
  // Vectors of the table are aligned as a whole: 32 bytes where 16 of x are eight elements.
  const bool wide = is_aligned(x) && half % kVecWidth<T> == 0 && cos_sin.stride(0) % 8 == 0 &&
                    reinterpret_cast<std::uintptr_t>(cos_sin.data()) % 32 == 0 && half % pairs == 0;
  if (wide) {
    const FastDivide runs(half / pairs);
    CUDA_CHECK(launch(rope_wide_kernel<T, kStyle>, grid, block(heads * runs.divisor), 0,
                      native(stream), device_view<T, 3>(x), at, table, runs));
  } else {
    CUDA_CHECK(launch(rope_kernel<T, kStyle>, grid, block(heads * half), 0, native(stream),
                      device_view<T, 3>(x), at, table));
  }
}

}  // namespace

void rope(TensorView x, TensorView positions, TensorView cos_sin, RopeStyle style,
          StreamRef stream) {
  if (x.numel() == 0) return;
  dispatch_device_float(x.dtype(), [&]<class T>(Type<T>) {
    if (style == RopeStyle::halves) {
      launch_rope<T, RopeStyle::halves>(x, positions, cos_sin, stream);
    } else {
      launch_rope<T, RopeStyle::interleaved>(x, positions, cos_sin, stream);
    }
  });
}

}  // namespace quire::cuda
