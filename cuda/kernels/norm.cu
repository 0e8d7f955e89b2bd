// RMSNorm over the last dimension, alone or after adding to a residual. Memory bound: a row is read
// once and kept in registers, where it has at most kKept vectors a thread; what is beyond is read
// again.

#include "cuda/device/any_view.cuh"
#include "cuda/device/dependent.cuh"
#include "cuda/device/row_norm.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kKept = 4;
constexpr int kScalarThreads = 128;

template <class Out, class X, class Residual>
struct NormArgs {
  Out* out;
  const X* x;
  Residual* residual;  // null: none
  const Out* weight;
  unsigned inner;  // a row is [outer, inner]
  std::int64_t out_stride[2], x_stride[2], residual_stride;
  int width;
  float inverse_width, eps, weight_offset;
};

// x, or x plus the residual, which takes the sum rounded to its dtype.
template <class X, class Residual>
__device__ __forceinline__ Wide<float> load_row(const X* x, Residual* residual, int i) {
  Wide<float> row = load_wide_floats(x + i);
  if (residual == nullptr) return row;
  Wide<Residual> r = load_wide(static_cast<const Residual*>(residual) + i);
  for (int k = 0; k < kWideWidth; ++k) {
    r.at[k] = Residual(row.at[k] + static_cast<float>(r.at[k]));
    row.at[k] = static_cast<float>(r.at[k]);
  }
  store_wide(residual + i, r);
  return row;
}

// One block per row.
template <class Out, class X, class Residual, int kThreads>
__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(const __grid_constant__ NormArgs<Out, X, Residual> a) {
  release_next_kernel();
  prefetch(a.weight, a.width);
  await_previous_kernel();
  constexpr int kStep = kThreads * kWideWidth;
  const unsigned outer = blockIdx.x / a.inner, inner = blockIdx.x % a.inner;
  const X* x = a.x + outer * a.x_stride[0] + inner * a.x_stride[1];
  Out* out = a.out + outer * a.out_stride[0] + inner * a.out_stride[1];
  Residual* residual = a.residual == nullptr ? nullptr : a.residual + outer * a.residual_stride;

  constexpr int kSums = kThreads == 32 ? 2 : 1;  // a warp alone has those of two
  Wide<float> kept[kKept];
  float sums[kSums] = {};
  const int first = threadIdx.x * kWideWidth;
#pragma unroll
  for (int j = 0; j < kKept; ++j) {
    if (first + j * kStep < a.width)
      add_squares(sums[j % kSums], kept[j] = load_row(x, residual, first + j * kStep));
  }
  for (int i = first + kKept * kStep; i < a.width; i += kStep)
    add_squares(sums[0], load_row(x, residual, i));

  float squares;
  if constexpr (kSums == 2) {
    squares = warp_reduce(sums[0], Add{}) + warp_reduce(sums[1], Add{});
  } else {
    squares = block_reduce<kThreads>(sums[0], Add{});
  }
  const float scale = norm_scale(squares, a.inverse_width, a.eps);
  const auto store = [&](const Wide<float>& row, int i) {
    store_normed(out + i, row, scale, load_wide_floats(a.weight + i), a.weight_offset);
  };
#pragma unroll
  for (int j = 0; j < kKept; ++j) {
    if (first + j * kStep < a.width) store(kept[j], first + j * kStep);
  }
  Residual* const none = nullptr;
  for (int i = first + kKept * kStep; i < a.width; i += kStep) {
    store(residual == nullptr ? load_row(x, none, i) : load_row(residual, none, i), i);
  }
}

// Rows of any width, alignment and mixture of dtypes: an element at a time, the row read twice.
__global__ void __launch_bounds__(kScalarThreads)
    rms_norm_any_kernel(AnyView out, AnyView x, AnyView residual, AnyView weight, float eps,
                        float weight_offset) {
  release_next_kernel();
  await_previous_kernel();
  const std::int64_t outer = blockIdx.x / x.extent[1], inner = blockIdx.x % x.extent[1];
  const int width = static_cast<int>(x.extent[2]);
  const bool adds = residual.data != nullptr;
  float sum = 0.f;
  for (int i = threadIdx.x; i < width; i += kScalarThreads) {
    float value = x.load(outer, inner, i);
    if (adds) value = residual.store(outer, inner, i, value + residual.load(outer, inner, i));
    sum += value * value;
  }
  const float scale =
      norm_scale(block_reduce<kScalarThreads>(sum, Add{}), 1.f / static_cast<float>(width), eps);
  for (int i = threadIdx.x; i < width; i += kScalarThreads) {
    const float value = adds ? residual.load(outer, inner, i) : x.load(outer, inner, i);
    out.store(outer, inner, i, value * scale * (weight.load(0, 0, i) + weight_offset));
  }
}

// [rows, width] as [rows, 1, width].
TensorView with_heads(TensorView tensor) {
  if (tensor.empty() || tensor.rank() == 3) return tensor;
  return tensor.split_last(tensor.extent(1));
}

struct NormCall {
  TensorView out, residual, x, weight;
  float eps, weight_offset;
};

template <class Out, class X, class Residual>
void launch_vectorized(const NormCall& c, StreamRef stream) {
  const std::int64_t width = c.x.extent(2);
  const NormArgs<Out, X, Residual> a{
      .out = static_cast<Out*>(c.out.data()),
      .x = static_cast<const X*>(c.x.data()),
      .residual = static_cast<Residual*>(c.residual.data()),
      .weight = static_cast<const Out*>(c.weight.data()),
      .inner = static_cast<unsigned>(c.x.extent(1)),
      .out_stride = {c.out.stride(0), c.out.stride(1)},
      .x_stride = {c.x.stride(0), c.x.stride(1)},
      .residual_stride = c.residual.empty() ? 0 : c.residual.stride(0),
      .width = static_cast<int>(width),
      .inverse_width = 1.f / static_cast<float>(width),
      .eps = c.eps,
      .weight_offset = c.weight_offset};
  const dim3 grid(static_cast<unsigned>(c.x.extent(0) * c.x.extent(1)));
  if (width <= 2 * 32 * kWideWidth) {
    CUDA_CHECK(launch(rms_norm_kernel<Out, X, Residual, 32>, grid, dim3(32), 0, native(stream), a));
  } else {
    CUDA_CHECK(launch(rms_norm_kernel<Out, X, Residual, kNormLanes>, grid, dim3(kNormLanes), 0,
                      native(stream), a));
  }
}

// x and the residual each have out's dtype or f32.
template <class Out>
void launch_mixed(const NormCall& c, StreamRef stream) {
  const bool wide_x = c.x.dtype() == DType::f32, wide_residual = c.residual.dtype() == DType::f32;
  if (c.residual.empty())
    return wide_x ? launch_vectorized<Out, float, Out>(c, stream)
                  : launch_vectorized<Out, Out, Out>(c, stream);
  if (wide_residual)
    return wide_x ? launch_vectorized<Out, float, float>(c, stream)
                  : launch_vectorized<Out, Out, float>(c, stream);
  return wide_x ? launch_vectorized<Out, float, Out>(c, stream)
                : launch_vectorized<Out, Out, Out>(c, stream);
}

void launch_norm(NormCall c, StreamRef stream) {
  if (c.x.numel() == 0) return;
  c.out = with_heads(c.out), c.residual = with_heads(c.residual), c.x = with_heads(c.x);
  const DType dtype = c.out.dtype();
  const auto fits = [&](const TensorView& t) {
    return t.dtype() == dtype || t.dtype() == DType::f32;
  };
  if (c.weight.dtype() == dtype && fits(c.x) && (c.residual.empty() || fits(c.residual)) &&
      is_wide(c.weight) && is_wide(c.out) && is_wide(c.x) && is_wide(c.residual)) {
    return dispatch_device_float(dtype,
                                 [&]<class Out>(Type<Out>) { launch_mixed<Out>(c, stream); });
  }
  CUDA_CHECK(launch(rms_norm_any_kernel, dim3(static_cast<unsigned>(c.x.extent(0) * c.x.extent(1))),
                    dim3(kScalarThreads), 0, native(stream), AnyView(c.out), AnyView(c.x),
                    AnyView(c.residual), AnyView(c.weight), c.eps, c.weight_offset));
}

}  // namespace

void rms_norm(TensorView out, TensorView x, TensorView weight, float eps, float weight_offset,
              StreamRef stream) {
  launch_norm({out, {}, x, weight, eps, weight_offset}, stream);
}

void add_rms_norm(TensorView out, TensorView residual, TensorView x, TensorView weight, float eps,
                  float weight_offset, StreamRef stream) {
  launch_norm({out, residual, x, weight, eps, weight_offset}, stream);
}

}  // namespace quire::cuda
