// RMSNorm over the last dimension, alone or after adding a residual. Memory bound: a row is read
// once and kept in registers, where it has at most kKept vectors a thread; what is beyond is read
// again.

#include "cuda/device/block_sum.cuh"
#include "cuda/device/vec.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kKept = 4;
constexpr int kScalarThreads = 128;

template <class T>
struct NormArgs {
  T* out;
  const T* x;
  T* residual;  // null: none
  const T* weight;
  std::int64_t inner, out_stride[2], x_stride[2], residual_stride;  // a row is [outer, inner]
  int width;
  float eps, weight_offset;
};

// x (+ residual, which takes the rounded sum, as the models do in their dtype).
template <class T>
__device__ __forceinline__ Vec16<T> load_row(const T* x, T* residual, int i) {
  Vec16<T> v = load_vec(x + i);
  if (residual == nullptr) return v;
  const Vec16<T> r = load_vec(static_cast<const T*>(residual) + i);
  for (int k = 0; k < kVecWidth<T>; ++k)
    v.at[k] = T(static_cast<float>(v.at[k]) + static_cast<float>(r.at[k]));
  store_vec(residual + i, v);
  return v;
}

template <class T>
__device__ __forceinline__ void store_row(const NormArgs<T>& a, T* out, const Vec16<T>& v,
                                          float scale, int i) {
  const Vec16<T> w = load_vec(a.weight + i);
  Vec16<T> o;
  for (int k = 0; k < kVecWidth<T>; ++k) {
    o.at[k] =
        T(static_cast<float>(v.at[k]) * scale * (static_cast<float>(w.at[k]) + a.weight_offset));
  }
  store_vec(out + i, o);
}

// One block per row.
template <class T, int kThreads>
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(const __grid_constant__ NormArgs<T> a) {
  constexpr int kStep = kThreads * kVecWidth<T>;
  const std::int64_t outer = blockIdx.x / a.inner, inner = blockIdx.x % a.inner;
  const T* x = a.x + outer * a.x_stride[0] + inner * a.x_stride[1];
  T* out = a.out + outer * a.out_stride[0] + inner * a.out_stride[1];
  T* residual = a.residual == nullptr ? nullptr : a.residual + outer * a.residual_stride;

  Vec16<T> kept[kKept];
  float sum = 0.f;
  const auto add_squares = [&](const Vec16<T>& v) {
    for (int k = 0; k < kVecWidth<T>; ++k) {
      const float f = static_cast<float>(v.at[k]);
      sum += f * f;
    }
  };
  const int first = threadIdx.x * kVecWidth<T>;
#pragma unroll
  for (int j = 0; j < kKept; ++j) {
    if (first + j * kStep < a.width)
      add_squares(kept[j] = load_row(x, residual, first + j * kStep));
  }
  for (int i = first + kKept * kStep; i < a.width; i += kStep)
    add_squares(load_row(x, residual, i));

  const float scale =
      rsqrtf(block_reduce<kThreads>(sum, Add{}) / static_cast<float>(a.width) + a.eps);
#pragma unroll
  for (int j = 0; j < kKept; ++j) {
    if (first + j * kStep < a.width) store_row(a, out, kept[j], scale, first + j * kStep);
  }
  const T* again = residual == nullptr ? x : residual;
  for (int i = first + kKept * kStep; i < a.width; i += kStep)
    store_row(a, out, load_vec(again + i), scale, i);
}

// Rows of any width and alignment, weights of another dtype: an element at a time, the row read
// twice.
template <class T, class W>
__global__ void __launch_bounds__(kScalarThreads)
    rms_norm_scalar_kernel(View<T, 3> out, View<const T, 3> x, View<T, 3> residual, const W* weight,
                           float eps, float weight_offset) {
  const std::int64_t outer = blockIdx.x / x.extent[1], inner = blockIdx.x % x.extent[1];
  const int width = static_cast<int>(x.extent[2]);
  float sum = 0.f;
  for (int i = threadIdx.x; i < width; i += kScalarThreads) {
    T value = x(outer, inner, i);
    if (residual.data != nullptr) {
      value = T(static_cast<float>(value) + static_cast<float>(residual(outer, inner, i)));
      residual(outer, inner, i) = value;
    }
    sum += static_cast<float>(value) * static_cast<float>(value);
  }
  const float scale =
      rsqrtf(block_reduce<kScalarThreads>(sum, Add{}) / static_cast<float>(width) + eps);
  for (int i = threadIdx.x; i < width; i += kScalarThreads) {
    const T value = residual.data != nullptr ? residual(outer, inner, i) : x(outer, inner, i);
    out(outer, inner, i) =
        T(static_cast<float>(value) * scale * (static_cast<float>(weight[i]) + weight_offset));
  }
}

// [rows, width] as [rows, 1, width].
TensorView with_heads(TensorView tensor) {
  if (tensor.empty() || tensor.rank() == 3) return tensor;
  return tensor.split_last(tensor.extent(1));
}

bool vectorized(const TensorView& tensor, std::int64_t unit) {
  if (tensor.empty()) return true;
  return reinterpret_cast<std::uintptr_t>(tensor.data()) % 16 == 0 &&
         tensor.stride(0) % unit == 0 && tensor.stride(1) % unit == 0 &&
         tensor.extent(2) % unit == 0;
}

template <class T>
void launch_vectorized(TensorView out, TensorView residual, TensorView x, TensorView weight,
                       float eps, float weight_offset, StreamRef stream) {
  const std::int64_t width = x.extent(2);
  const NormArgs<T> a{.out = static_cast<T*>(out.data()),
                      .x = static_cast<const T*>(x.data()),
                      .residual = static_cast<T*>(residual.data()),
                      .weight = static_cast<const T*>(weight.data()),
                      .inner = x.extent(1),
                      .out_stride = {out.stride(0), out.stride(1)},
                      .x_stride = {x.stride(0), x.stride(1)},
                      .residual_stride = residual.empty() ? 0 : residual.stride(0),
                      .width = static_cast<int>(width),
                      .eps = eps,
                      .weight_offset = weight_offset};
  const dim3 grid(static_cast<unsigned>(x.extent(0) * x.extent(1)));
  if (width <= 32 * kVecWidth<T> * 2) {
    CUDA_CHECK(launch(rms_norm_kernel<T, 32>, grid, dim3(32), 0, native(stream), a));
  } else {
    CUDA_CHECK(launch(rms_norm_kernel<T, 256>, grid, dim3(256), 0, native(stream), a));
  }
}

void launch_norm(TensorView out, TensorView residual, TensorView x, TensorView weight, float eps,
                 float weight_offset, StreamRef stream) {
  if (x.numel() == 0) return;
  out = with_heads(out), residual = with_heads(residual), x = with_heads(x);
  dispatch_device_float(x.dtype(), [&]<class T>(Type<T>) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(weight.data()) % 16 == 0;
    if (aligned && weight.dtype() == x.dtype() && vectorized(out, kVecWidth<T>) &&
        vectorized(x, kVecWidth<T>) && vectorized(residual, kVecWidth<T>)) {
      return launch_vectorized<T>(out, residual, x, weight, eps, weight_offset, stream);
    }
    dispatch_device_float(weight.dtype(), [&]<class W>(Type<W>) {
      CUDA_CHECK(launch(rms_norm_scalar_kernel<T, W>,
                        dim3(static_cast<unsigned>(x.extent(0) * x.extent(1))),
                        dim3(kScalarThreads), 0, native(stream), device_view<T, 3>(out),
                        device_view<const T, 3>(x), device_view<T, 3>(residual),
                        static_cast<const W*>(weight.data()), eps, weight_offset));
    });
  });
}

}  // namespace

void rms_norm(TensorView out, TensorView x, TensorView weight, float eps, float weight_offset,
              StreamRef stream) {
  launch_norm(out, {}, x, weight, eps, weight_offset, stream);
}

void add_rms_norm(TensorView out, TensorView residual, TensorView x, TensorView weight, float eps,
                  float weight_offset, StreamRef stream) {
  launch_norm(out, residual, x, weight, eps, weight_offset, stream);
}

}  // namespace quire::cuda
