// Products of at most four rows with a weight matrix: bound by reading the weights, which go from
// memory to registers once, past the caches. A warp has two rows of the weight and takes 256
// columns of them at a time, four such steps ahead. The first steps are fetched before the kernel
// that computes x has ended.

#include "cuda/device/any_view.cuh"
#include "cuda/device/block_sum.cuh"
#include "cuda/device/dependent.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/capability.h"

namespace quire::cuda {
namespace {

constexpr int kWarps = 4, kRows = 2, kDepth = 4, kBlocksPerProcessor = 5;
constexpr int kWidth = 8;  // elements in 16 bytes
constexpr std::int64_t kMostTokens = 4;

template <class T>
struct SmallLinearArgs {
  AnyView out, bias;  // [1, tokens, N], [1, 1, N]
  const T* x;
  const T* weight;
  std::int64_t x_stride, weight_stride;
  int rows, columns;  // of the weight: N, K
};

// Eight elements as they lie in memory.
struct Packed {
  std::uint32_t pair[4];
};
__device__ __forceinline__ Packed packed(const uint4& bits) {
  return {{bits.x, bits.y, bits.z, bits.w}};
}
template <class T>
__device__ __forceinline__ float element(const Packed& p, int i) {
  const std::uint32_t pair = p.pair[i / 2];
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __uint_as_float(i % 2 != 0 ? pair & 0xffff0000u : pair << 16);
  } else {
    return static_cast<float>(reinterpret_cast<const __half*>(&pair)[i % 2]);
  }
}

template <class T, int kTokens>
__global__ void __launch_bounds__(kWarps * 32, kBlocksPerProcessor)
    small_linear_kernel(const __grid_constant__ SmallLinearArgs<T> a) {
  constexpr int kStep = 32 * kWidth;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row0 =
      (static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32) * kRows;
  const T* from[kRows];
  // Rows past the end are not stored.
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    from[r] = a.weight + min(row0 + r, a.rows - 1) * a.weight_stride;

  Packed ahead[kDepth][kRows];
  const auto fetch = [&](Packed(&w)[kRows], int column) {
    if (column >= a.columns) return;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      w[r] = packed(__ldcs(reinterpret_cast<const uint4*>(from[r] + column)));
  };
#pragma unroll
  for (int s = 0; s < kDepth; ++s) fetch(ahead[s], lane * kWidth + s * kStep);
  release_next_kernel();
  await_previous_kernel();

  float sums[kTokens][kRows] = {};
  for (int column = lane * kWidth; column < a.columns; column += kDepth * kStep) {
#pragma unroll
    for (int s = 0; s < kDepth; ++s) {
      const int at = column + s * kStep;
      if (at < a.columns) {
#pragma unroll
        for (int t = 0; t < kTokens; ++t) {
          const Packed x = packed(*reinterpret_cast<const uint4*>(a.x + t * a.x_stride + at));
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
#pragma unroll
            for (int i = 0; i < kWidth; ++i)
              sums[t][r] += element<T>(x, i) * element<T>(ahead[s][r], i);
          }
        }
      }
      fetch(ahead[s], at + kDepth * kStep);
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float sum = warp_reduce(sums[t][r], Add{});
      if (lane != t * kRows + r || row0 + r >= a.rows) continue;
      a.out.store(0, t, row0 + r,
                  sum + (a.bias.data != nullptr ? a.bias.load(0, 0, row0 + r) : 0.f));
    }
  }
}

template <class T>
void launch_small(TensorView out, TensorView x, TensorView weight, TensorView bias,
                  StreamRef stream) {
  const SmallLinearArgs<T> a{.out = AnyView(out),
                             .bias = AnyView(bias),
                             .x = static_cast<const T*>(x.data()),
                             .weight = static_cast<const T*>(weight.data()),
                             .x_stride = x.stride(0),
                             .weight_stride = weight.stride(0),
                             .rows = static_cast<int>(weight.extent(0)),
                             .columns = static_cast<int>(weight.extent(1))};
  constexpr int kBlockRows = kWarps * kRows;
  const dim3 grid(static_cast<unsigned>((a.rows + kBlockRows - 1) / kBlockRows));
  const auto go = [&](auto kernel) {
    CUDA_CHECK(
        launch_dependent(is_hopper(), kernel, grid, dim3(kWarps * 32), 0, native(stream), a));
  };
  switch (x.extent(0)) {
    case 1:
      return go(small_linear_kernel<T, 1>);
    case 2:
      return go(small_linear_kernel<T, 2>);
    case 3:
      return go(small_linear_kernel<T, 3>);
    default:
      return go(small_linear_kernel<T, 4>);
  }
}

}  // namespace

bool small_linear_supports(TensorView x, TensorView weight) {
  const DType dtype = weight.dtype();
  return x.extent(0) >= 1 && x.extent(0) <= kMostTokens && x.dtype() == dtype &&
         (dtype == DType::bf16 || dtype == DType::f16) && weight.extent(1) % kWidth == 0 &&
         is_aligned(x) && is_aligned(weight);
}

void small_linear(TensorView out, TensorView x, TensorView weight, TensorView bias,
                  StreamRef stream) {
  if (weight.dtype() == DType::bf16)
    return launch_small<__nv_bfloat16>(out, x, weight, bias, stream);
  launch_small<__half>(out, x, weight, bias, stream);
}

}  // namespace quire::cuda
