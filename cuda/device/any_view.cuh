#pragma once
// A view whose dtype is known at run time: for paths where one kernel for all dtypes is worth more
// than speed.

#include "cuda/device/vec.cuh"

namespace quire::cuda {

// [outer, inner, width] of a tensor of rank 1 to 3; null data: an absent optional tensor.
struct AnyView {
  void* data;
  DType dtype;
  std::int64_t extent[3], stride[3];

  explicit AnyView(const TensorView& tensor) : data(tensor.data()), dtype(tensor.dtype()) {
    for (int i = 0; i < 3; ++i) {
      const int from = i - 3 + tensor.rank();
      extent[i] = from >= 0 ? tensor.extent(from) : 1;
      stride[i] = from >= 0 ? tensor.stride(from) : 0;
    }
  }

  __device__ __forceinline__ std::int64_t at(std::int64_t r, std::int64_t h, std::int64_t i) const {
    return r * stride[0] + h * stride[1] + i * stride[2];
  }
  __device__ float load(std::int64_t r, std::int64_t h, std::int64_t i) const {
    const std::int64_t offset = at(r, h, i);
    if (dtype == DType::bf16)
      return static_cast<float>(static_cast<const __nv_bfloat16*>(data)[offset]);
    if (dtype == DType::f16) return static_cast<float>(static_cast<const __half*>(data)[offset]);
    return static_cast<const float*>(data)[offset];
  }
  // Returns the value as it was rounded.
  __device__ float store(std::int64_t r, std::int64_t h, std::int64_t i, float value) const {
    const std::int64_t offset = at(r, h, i);
    if (dtype == DType::bf16) {
      return static_cast<float>(static_cast<__nv_bfloat16*>(data)[offset] = __nv_bfloat16(value));
    }
    if (dtype == DType::f16)
      return static_cast<float>(static_cast<__half*>(data)[offset] = __half(value));
    return static_cast<float*>(data)[offset] = value;
  }
};

}  // namespace quire::cuda
