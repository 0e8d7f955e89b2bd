// RMSNorm of groups with a SiLU gate before or after it (Mamba2, gated delta net). Memory bound:
// x and gate are read once and kept in registers, where a group has at most kKept vectors a thread;
// what is beyond is read again.

#include "cuda/device/activation.cuh"
#include "cuda/device/any_view.cuh"
#include "cuda/device/block_sum.cuh"
#include "cuda/device/wide.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kKept = 4;
constexpr int kScalarThreads = 128;

template <class Out, class X>
struct GatedNormArgs {
  View<Out, 3> out;  // [T, groups, D]
  View<const X, 3> x;
  View<const Out, 3> gate;
  const Out* weight;
  std::int64_t weight_stride;  // 0: one weight for all groups
  float eps;
  bool norm_first;
};

__device__ __forceinline__ float silu(float x) { return activate(Activation::silu, x); }

// What is normalized, and what the result is multiplied by besides the weight.
struct GatedRow {
  Wide<float> value, factor;
};

template <class Out, class X>
__device__ __forceinline__ GatedRow load_gated(const X* x, const Out* gate, bool norm_first) {
  GatedRow row{load_wide_floats(x), load_wide_floats(gate)};
  for (int k = 0; k < kWideWidth; ++k) {
    const float g = silu(row.factor.at[k]);
    row.factor.at[k] = norm_first ? g : 1.f;
    if (!norm_first) row.value.at[k] *= g;
  }
  return row;
}

template <class Out>
__device__ __forceinline__ void store_gated(Out* out, const Out* weight, const GatedRow& row,
                                            float scale) {
  const Wide<float> w = load_wide_floats(weight);
  Wide<Out> o;
  for (int k = 0; k < kWideWidth; ++k)
    o.at[k] = Out(row.value.at[k] * scale * w.at[k] * row.factor.at[k]);
  store_wide(out, o);
}

// One block per group of a token.
template <class Out, class X, int kThreads>
__global__ void __launch_bounds__(kThreads)
    gated_norm_kernel(const __grid_constant__ GatedNormArgs<Out, X> a) {
  release_next_kernel();
  constexpr int kStep = kThreads * kWideWidth;
  const std::int64_t token = blockIdx.x / a.x.extent[1], group = blockIdx.x % a.x.extent[1];
  const int width = static_cast<int>(a.x.extent[2]), first = threadIdx.x * kWideWidth;
  prefetch(a.weight + group * a.weight_stride, width);
  await_previous_kernel();
  const X* x = &a.x(token, group, 0);
  const Out* gate = &a.gate(token, group, 0);
  const Out* weight = a.weight + group * a.weight_stride;
  Out* out = &a.out(token, group, 0);

  GatedRow kept[kKept];
  float sum = 0.f;
  const auto add_squares = [&](const GatedRow& row) {
    for (int k = 0; k < kWideWidth; ++k) sum += row.value.at[k] * row.value.at[k];
  };
#pragma unroll
  for (int j = 0; j < kKept; ++j) {
    const int i = first + j * kStep;
    if (i < width) add_squares(kept[j] = load_gated(x + i, gate + i, a.norm_first));
  }
  for (int i = first + kKept * kStep; i < width; i += kStep)
    add_squares(load_gated(x + i, gate + i, a.norm_first));

  const float scale =
      rsqrtf(block_reduce<kThreads>(sum, Add{}) / static_cast<float>(width) + a.eps);
#pragma unroll
  for (int j = 0; j < kKept; ++j) {
    const int i = first + j * kStep;
    if (i < width) store_gated(out + i, weight + i, kept[j], scale);
  }
  for (int i = first + kKept * kStep; i < width; i += kStep)
    store_gated(out + i, weight + i, load_gated(x + i, gate + i, a.norm_first), scale);
}

// Groups of any width, alignment and mixture of dtypes: an element at a time, read twice.
__global__ void __launch_bounds__(kScalarThreads)
    gated_norm_any_kernel(AnyView out, AnyView x, AnyView gate, AnyView weight, float eps,
                          bool norm_first) {
  release_next_kernel();
  await_previous_kernel();
  const std::int64_t token = blockIdx.x / x.extent[1], group = blockIdx.x % x.extent[1];
  const int width = static_cast<int>(x.extent[2]);
  const auto gated = [&](int i) {
    const float value = x.load(token, group, i);
    return norm_first ? value : value * silu(gate.load(token, group, i));
  };
  float sum = 0.f;
  for (int i = threadIdx.x; i < width; i += kScalarThreads) sum += gated(i) * gated(i);
  const float scale =
      rsqrtf(block_reduce<kScalarThreads>(sum, Add{}) / static_cast<float>(width) + eps);
  for (int i = threadIdx.x; i < width; i += kScalarThreads) {
    const float factor = norm_first ? silu(gate.load(token, group, i)) : 1.f;
    out.store(token, group, i, gated(i) * scale * weight.load(0, group, i) * factor);
  }
}

struct GatedNormCall {
  TensorView out, x, gate, weight;
  float eps;
  bool norm_first;
};

template <class Out, class X>
void launch_wide(const GatedNormCall& c, StreamRef stream) {
  const GatedNormArgs<Out, X> a{.out = device_view<Out, 3>(c.out),
                                .x = device_view<const X, 3>(c.x),
                                .gate = device_view<const Out, 3>(c.gate),
                                .weight = static_cast<const Out*>(c.weight.data()),
                                .weight_stride = c.weight.rank() == 2 ? c.weight.stride(0) : 0,
                                .eps = c.eps,
                                .norm_first = c.norm_first};
  const dim3 grid(static_cast<unsigned>(c.x.extent(0) * c.x.extent(1)));
  if (c.x.extent(2) <= 32 * kWideWidth * 2) {
    CUDA_CHECK(launch(gated_norm_kernel<Out, X, 32>, grid, dim3(32), 0, native(stream), a));
  } else {
    CUDA_CHECK(launch(gated_norm_kernel<Out, X, 256>, grid, dim3(256), 0, native(stream), a));
  }
}

bool fits_wide(const GatedNormCall& c) {
  const DType dtype = c.out.dtype();
  return c.weight.dtype() == dtype && c.gate.dtype() == dtype &&
         (c.x.dtype() == dtype || c.x.dtype() == DType::f32) && is_wide(c.out) && is_wide(c.x) &&
         is_wide(c.gate) && is_wide(c.weight);
}

}  // namespace

void gated_rms_norm(TensorView out, TensorView x, TensorView gate, TensorView weight, float eps,
                    bool norm_first, StreamRef stream) {
  if (x.numel() == 0) return;
  const GatedNormCall c{out, x, gate, weight, eps, norm_first};
  if (!fits_wide(c)) {
    CUDA_CHECK(launch(gated_norm_any_kernel, dim3(static_cast<unsigned>(x.extent(0) * x.extent(1))),
                      dim3(kScalarThreads), 0, native(stream), AnyView(out), AnyView(x),
                      AnyView(gate), AnyView(weight), eps, norm_first));
    return;
  }
  dispatch_device_float(out.dtype(), [&]<class Out>(Type<Out>) {
    if (x.dtype() == DType::f32) {
      launch_wide<Out, float>(c, stream);
    } else {
      launch_wide<Out, Out>(c, stream);
    }
  });
}

}  // namespace quire::cuda
