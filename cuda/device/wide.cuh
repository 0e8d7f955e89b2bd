#pragma once
// Eight elements at a time, whatever their dtype, so that rows of different dtypes are cut alike.

#include "cuda/device/vec.cuh"

namespace quire::cuda {

constexpr int kWideWidth = 8;

template <class T>
struct alignas(16) Wide {
  T at[kWideWidth];
};
template <class T>
__device__ __forceinline__ Wide<T> load_wide(const T* from) {
  return *reinterpret_cast<const Wide<T>*>(from);
}
template <class T>
__device__ __forceinline__ void store_wide(T* to, const Wide<T>& value) {
  *reinterpret_cast<Wide<T>*>(to) = value;
}
template <class T>
__device__ __forceinline__ Wide<float> load_wide_floats(const T* from) {
  const Wide<T> raw = load_wide(from);
  Wide<float> value;
  for (int k = 0; k < kWideWidth; ++k) value.at[k] = static_cast<float>(raw.at[k]);
  return value;
}

// Rows are made of whole Wides at aligned addresses.
inline bool is_wide(const TensorView& tensor) {
  if (tensor.empty()) return true;
  const int last = tensor.rank() - 1;
  bool whole = reinterpret_cast<std::uintptr_t>(tensor.data()) % 16 == 0 &&
               tensor.extent(last) % kWideWidth == 0;
  for (int i = 0; i < last; ++i) whole = whole && tensor.stride(i) % kWideWidth == 0;
  return whole;
}

}  // namespace quire::cuda
