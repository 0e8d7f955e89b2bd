// Operators on single elements. Memory bound: 16 bytes a thread and step.

#include "cuda/device/activation.cuh"
#include "cuda/device/fast_divide.cuh"
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
  release_next_kernel();
  await_previous_kernel();
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
  release_next_kernel();
  await_previous_kernel();
  const std::int64_t i = global_index();
  if (i >= vectors) return;
  Vec16<T> v = load_vec(static_cast<const T*>(x) + i * kVecWidth<T>);
  for (int k = 0; k < kVecWidth<T>; ++k) v.at[k] = T(static_cast<float>(v.at[k]) * factor);
  store_vec(x + i * kVecWidth<T>, v);
}

// gate_up row: gate [width], then up [width].
template <class T, Activation kActivation>
__global__ void __launch_bounds__(kThreads)
    gated_activation_kernel(T* out, const T* gate_up, int width, std::int64_t out_stride,
                            std::int64_t in_stride, FastDivide per_row, int vectors) {
  release_next_kernel();
  await_previous_kernel();
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i >= vectors) return;
  const std::int64_t row = per_row(i);
  const int column = (i - static_cast<int>(row) * per_row.divisor) * kVecWidth<T>;
  Vec16<T> gate = load_vec(gate_up + row * in_stride + column);
  const Vec16<T> up = load_vec(gate_up + row * in_stride + width + column);
  for (int k = 0; k < kVecWidth<T>; ++k) {
    gate.at[k] = T(
        activate_gated(kActivation, static_cast<float>(gate.at[k]), static_cast<float>(up.at[k])));
  }
  store_vec(out + row * out_stride + column, gate);
}

template <class T, Activation kActivation>
void launch_gated(TensorView out, TensorView gate_up, StreamRef stream) {
  const int width = static_cast<int>(out.extent(1));
  const int per_row = width / kVecWidth<T>, vectors = static_cast<int>(out.extent(0)) * per_row;
  CUDA_CHECK(launch(gated_activation_kernel<T, kActivation>, grid_for(vectors), dim3(kThreads), 0,
                    native(stream), static_cast<T*>(out.data()),
                    static_cast<const T*>(gate_up.data()), width, out.stride(0), gate_up.stride(0),
                    FastDivide(per_row), vectors));
}

// Rows are whole 16-byte vectors at aligned addresses.
template <class T>
bool vectorized(const TensorView& tensor) {
  const int last = tensor.rank() - 1;
  return reinterpret_cast<std::uintptr_t>(tensor.data()) % 16 == 0 &&
         tensor.extent(last) % kVecWidth<T> == 0 && tensor.stride(last) == 1 &&
         (last == 0 || tensor.stride(last - 1) % kVecWidth<T> == 0);
}

// All of the tensor is.
template <class T>
bool vectorized_whole(const TensorView& tensor) {
  return tensor.contiguous() && reinterpret_cast<std::uintptr_t>(tensor.data()) % 16 == 0 &&
         tensor.numel() % kVecWidth<T> == 0;
}

}  // namespace

void add(TensorView out, TensorView a, TensorView b, StreamRef stream) {
  if (out.numel() == 0) return;
  dispatch_device_float(out.dtype(), [&]<class T>(Type<T>) {
    const bool same = a.dtype() == out.dtype() && b.dtype() == out.dtype();
    if (!same || !vectorized_whole<T>(out) || !vectorized_whole<T>(a) || !vectorized_whole<T>(b)) {
      return add_strided(out, a, b, stream);
    }
    const std::int64_t vectors = out.numel() / kVecWidth<T>;
    CUDA_CHECK(launch(add_kernel<T>, grid_for(vectors), dim3(kThreads), 0, native(stream),
                      static_cast<T*>(out.data()), static_cast<const T*>(a.data()),
                      static_cast<const T*>(b.data()), vectors));
  });
}

void scale(TensorView x, float factor, StreamRef stream) {
  if (x.numel() == 0) return;
  dispatch_device_float(x.dtype(), [&]<class T>(Type<T>) {
    if (!vectorized_whole<T>(x)) return scale_strided(x, factor, stream);
    const std::int64_t vectors = x.numel() / kVecWidth<T>;
    CUDA_CHECK(launch(scale_kernel<T>, grid_for(vectors), dim3(kThreads), 0, native(stream),
                      static_cast<T*>(x.data()), factor, vectors));
  });
}

void gated_activation(TensorView out, TensorView gate_up, Activation activation, StreamRef stream) {
  if (out.numel() == 0) return;
  dispatch_device_float(out.dtype(), [&]<class T>(Type<T>) {
    const bool whole = out.extent(1) % kVecWidth<T> == 0 && out.dtype() == gate_up.dtype() &&
                       out.numel() / kVecWidth<T> <= 0x7fffff00;  // indices of 31 bits
    if (!whole || !vectorized<T>(out) || !vectorized<T>(gate_up)) {
      return gated_activation_strided(out, gate_up, activation, stream);
    }
    switch (activation) {
      case Activation::silu:
        return launch_gated<T, Activation::silu>(out, gate_up, stream);
      case Activation::gelu_tanh:
        return launch_gated<T, Activation::gelu_tanh>(out, gate_up, stream);
      case Activation::relu2:
        return launch_gated<T, Activation::relu2>(out, gate_up, stream);
      case Activation::clamped_swiglu:
        return launch_gated<T, Activation::clamped_swiglu>(out, gate_up, stream);
    }
  });
}

}  // namespace quire::cuda
