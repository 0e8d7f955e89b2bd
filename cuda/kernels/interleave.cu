// Rows of bf16 whose groups of 32 are put in another order, for products with MXFP4.

#include "cuda/device/mxfp4.cuh"
#include "cuda/device/vec.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

struct InterleaveArgs {
  const __nv_bfloat16* x;
  __nv_bfloat16* out;
  std::int64_t x_stride, out_stride;
  int groups, all_groups;  // of a row, of all
};

// A group a thread; memory bound. Pairs of a word become pairs of neighbours: of chunk c elements i
// and i + 4 are the c-th pair of chunk i.
__global__ void __launch_bounds__(kThreads)
    interleave_groups_kernel(const __grid_constant__ InterleaveArgs p) {
  release_next_kernel();
  await_previous_kernel();
  using Words = Vec<std::uint32_t, 4>;
  const int at = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (at >= p.all_groups) return;
  const int row = at / p.groups, group = at - row * p.groups;
  const auto* from = reinterpret_cast<const Words*>(p.x + row * p.x_stride + group * kMxGroup);
  auto* to = reinterpret_cast<Words*>(p.out + row * p.out_stride + group * kMxGroup);
  Words chunk[4], result[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) chunk[c] = from[c];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      result[i].at[c] =
          __byte_perm(chunk[c].at[i / 2], chunk[c].at[i / 2 + 2], i % 2 == 0 ? 0x5410 : 0x7632);
    }
  }
  static_assert(interleaved(0) == 0 && interleaved(4) == 1 && interleaved(8) == 2 &&
                interleaved(1) == 8);
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = result[i];
}

}  // namespace

void interleave_groups(TensorView out, TensorView x, StreamRef stream) {
  assert(x.dtype() == DType::bf16 && x.extent(1) % kMxGroup == 0 && is_aligned(x) &&
         is_aligned(out));
  const InterleaveArgs p{.x = static_cast<const __nv_bfloat16*>(x.data()),
                         .out = static_cast<__nv_bfloat16*>(out.data()),
                         .x_stride = x.stride(0),
                         .out_stride = out.stride(0),
                         .groups = static_cast<int>(x.extent(1)) / kMxGroup,
                         .all_groups = static_cast<int>(x.numel()) / kMxGroup};
  const dim3 grid(static_cast<unsigned>((p.all_groups + kThreads - 1) / kThreads));
  CUDA_CHECK(launch(interleave_groups_kernel, grid, dim3(kThreads), 0, native(stream), p));
}

}  // namespace quire::cuda
