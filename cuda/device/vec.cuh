#pragma once
// 16 bytes at a time, and floats in and out of storage types.

#include "backend/dispatch.h"
#include "backend/tensor.h"
#include "cuda/device/kernel.cuh"

namespace quire::cuda {

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Vec {
  T at[kCount];
};
template <class T>
constexpr int kVecWidth = 16 / static_cast<int>(sizeof(T));
template <class T>
using Vec16 = Vec<std::remove_const_t<T>, kVecWidth<T>>;

template <class T>
__device__ __forceinline__ Vec16<T> load_vec(const T* from) {
  return *reinterpret_cast<const Vec16<T>*>(from);
}
template <class T>
__device__ __forceinline__ void store_vec(T* to, const Vec16<T>& value) {
  *reinterpret_cast<Vec16<T>*>(to) = value;
}

// The same number, but what follows from it is computed where it is needed, and not in front of a
// loop to be kept in registers that are scarce there.
__device__ __forceinline__ int not_kept(int number) {
#ifdef __CUDACC__
  asm volatile("" : "+r"(number));
#endif
  return number;
}

// Every row begins at a multiple of 16 bytes.
inline bool is_aligned(const TensorView& tensor) {
  const auto per_chunk = static_cast<std::int64_t>(16 / size_of(tensor.dtype()));
  bool aligned = reinterpret_cast<std::uintptr_t>(tensor.data()) % 16 == 0 &&
                 tensor.stride(tensor.rank() - 1) == 1;
  for (int i = 0; i + 1 < tensor.rank(); ++i) aligned &= tensor.stride(i) % per_chunk == 0;
  return aligned;
}

// Device types of the storage dtypes.
template <class F>
decltype(auto) dispatch_device_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(Type<float>{});
    case DType::bf16:
      return f(Type<__nv_bfloat16>{});
    case DType::f16:
      return f(Type<__half>{});
    default:
      throw Failure(ErrorCode::internal, "no CUDA kernel for dtype " + std::string(name_of(dtype)));
  }
}

// Storage types of a KV cache: floats, and 8-bit floats, whose scale is the caller's.
template <class F>
decltype(auto) dispatch_cache(DType dtype, F&& f) {
  if (dtype == DType::fp8_e4m3) return f(Type<__nv_fp8_e4m3>{});
  return dispatch_device_float(dtype, f);
}

// View<T, Rank> of a tensor whose dtype is T's storage type.
template <class T, int kRank>
View<T, kRank> device_view(const TensorView& tensor) {
  View<T, kRank> view;
  view.data = static_cast<T*>(tensor.data());
  assert(tensor.empty() || (tensor.rank() == kRank && size_of(tensor.dtype()) == sizeof(T)));
  for (int i = 0; i < kRank && !tensor.empty(); ++i) {
    view.extent[i] = tensor.extent(i);
    view.stride[i] = tensor.stride(i);
  }
  return view;
}

}  // namespace quire::cuda
