// Operators on single elements. Memory bound: 16 bytes a thread and step.

#include "cuda/device/vec.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

dim3 grid_for(std::int64_t vectors) {
  return dim3(static_cast<unsigned>((vectors + kThreads - 1) / kThreads));
}

__device__ __forceinline__ std::int64_t global_index() {
  return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_kernel(T* out, const T* a, const T* b, std::int64_t vectors) {
  const std::int64_t i = global_index();
  if (i >= vectors) return;
  Vec16<T> x = load_vec(a + i * kVecWidth<T>);
  const Vec16<T> y = load_vec(b + i * kVecWidth<T>);
  for (int k = 0; k < kVecWidth<T>; ++k)
    x.at[k] = T(static_cast<float>(x.at[k]) + static_cast<float>(y.at[k]));
  store_vec(out + i * kVecWidth<T>, x);
}

template <class T>
__global__ void __launch_bounds__(kThreads) scale_kernel(T* x, float factor, std::int64_t vectors) {
  const std::int64_t i = global_index();
  if (i >= vectors) return;
  Vec16<T> v = load_vec(static_cast<const T*>(x) + i * kVecWidth<T>);
  for (int k = 0; k < kVecWidth<T>; ++k) v.at[k] = T(static_cast<float>(v.at[k]) * factor);
  store_vec(x + i * kVecWidth<T>, v);
}

template <Activation kActivation>
__device__ __forceinline__ float activate(float x) {
  if constexpr (kActivation == Activation::silu) return x / (1.f + __expf(-x));
  if constexpr (kActivation == Activation::relu2) return x > 0.f ? x * x : 0.f;
  return 0.5f * x * (1.f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

// gate_up row: gate [width], then up [width].
template <class T, Activation kActivation>
__global__ void __launch_bounds__(kThreads)
    gated_activation_kernel(T* out, const T* gate_up, int width, std::int64_t out_stride,
                            std::int64_t in_stride, std::int64_t vectors) {
  const std::int64_t i = global_index();
  if (i >= vectors) return;
  const int per_row = width / kVecWidth<T>;
  const std::int64_t row = i / per_row, column = i % per_row * kVecWidth<T>;
  Vec16<T> gate = load_vec(gate_up + row * in_stride + column);
  const Vec16<T> up = load_vec(gate_up + row * in_stride + width + column);
  for (int k = 0; k < kVecWidth<T>; ++k) {
    gate.at[k] =
        T(activate<kActivation>(static_cast<float>(gate.at[k])) * static_cast<float>(up.at[k]));
  }
  store_vec(out + row * out_stride + column, gate);
}

template <class T, Activation kActivation>
void launch_gated(TensorView out, TensorView gate_up, StreamRef stream) {
  const int width = static_cast<int>(out.extent(1));
  assert(width % kVecWidth<T> == 0 && gate_up.extent(1) == 2 * width);
  const std::int64_t vectors = out.extent(0) * (width / kVecWidth<T>);
  CUDA_CHECK(launch(gated_activation_kernel<T, kActivation>, grid_for(vectors), dim3(kThreads), 0,
                    native(stream), static_cast<T*>(out.data()),
                    static_cast<const T*>(gate_up.data()), width, out.stride(0), gate_up.stride(0),
                    vectors));
}

}  // namespace

void add(TensorView out, TensorView a, TensorView b, StreamRef stream) {
  if (out.numel() == 0) return;
  assert(out.contiguous() && a.contiguous() && b.contiguous());
  dispatch_device_float(out.dtype(), [&]<class T>(Type<T>) {
    assert(out.numel() % kVecWidth<T> == 0);
    const std::int64_t vectors = out.numel() / kVecWidth<T>;
    CUDA_CHECK(launch(add_kernel<T>, grid_for(vectors), dim3(kThreads), 0, native(stream),
                      static_cast<T*>(out.data()), static_cast<const T*>(a.data()),
                      static_cast<const T*>(b.data()), vectors));
  });
}

void scale(TensorView x, float factor, StreamRef stream) {
  if (x.numel() == 0) return;
  assert(x.contiguous());
  dispatch_device_float(x.dtype(), [&]<class T>(Type<T>) {
    assert(x.numel() % kVecWidth<T> == 0);
    const std::int64_t vectors = x.numel() / kVecWidth<T>;
    CUDA_CHECK(launch(scale_kernel<T>, grid_for(vectors), dim3(kThreads), 0, native(stream),
                      static_cast<T*>(x.data()), factor, vectors));
  });
}

void gated_activation(TensorView out, TensorView gate_up, Activation activation, StreamRef stream) {
  if (out.numel() == 0) return;
  dispatch_device_float(out.dtype(), [&]<class T>(Type<T>) {
    switch (activation) {
      case Activation::silu:
        return launch_gated<T, Activation::silu>(out, gate_up, stream);
      case Activation::gelu_tanh:
        return launch_gated<T, Activation::gelu_tanh>(out, gate_up, stream);
      case Activation::relu2:
        return launch_gated<T, Activation::relu2>(out, gate_up, stream);
      case Activation::clamped_swiglu:
        break;  // inside MoE experts only
    }
    throw Failure(ErrorCode::internal, "no CUDA kernel for this gated activation");
  });
}

}  // namespace quire::cuda
