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

void launch_norm(TensorView out, TensorView residual, TensorView x, TensorView weight, float eps,
                 float weight_offset, StreamRef stream) {
  const int rank = x.rank();
  const std::int64_t inner = rank == 3 ? x.extent(1) : 1, rows = x.extent(0) * inner,
                     width = x.extent(rank - 1);
  if (rows == 0) return;
  dispatch_device_float(x.dtype(), [&]<class T>(Type<T>) {
    assert(width % kVecWidth<T> == 0 && weight.dtype() == x.dtype());
    NormArgs<T> a{.out = static_cast<T*>(out.data()),
                  .x = static_cast<const T*>(x.data()),
                  .residual = static_cast<T*>(residual.data()),
                  .weight = static_cast<const T*>(weight.data()),
                  .inner = inner,
                  .out_stride = {out.stride(0), rank == 3 ? out.stride(1) : 0},
                  .x_stride = {x.stride(0), rank == 3 ? x.stride(1) : 0},
                  .residual_stride = residual.empty() ? 0 : residual.stride(0),
                  .width = static_cast<int>(width),
                  .eps = eps,
                  .weight_offset = weight_offset};
    const dim3 grid(static_cast<unsigned>(rows));
    if (width <= 32 * kVecWidth<T> * 2) {
      CUDA_CHECK(launch(rms_norm_kernel<T, 32>, grid, dim3(32), 0, native(stream), a));
    } else {
      CUDA_CHECK(launch(rms_norm_kernel<T, 256>, grid, dim3(256), 0, native(stream), a));
    }
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
