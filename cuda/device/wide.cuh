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
__device__ __forceinline__ Wide<float> floats_of(const Wide<T>& values) {
  Wide<float> floats;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {  // which are the upper halves of theirs
    std::uint32_t pairs[kWideWidth / 2];
    memcpy(pairs, &values, sizeof pairs);
#pragma unroll
    for (int i = 0; i < kWideWidth / 2; ++i) {
      floats.at[2 * i] = __uint_as_float(pairs[i] << 16);
      floats.at[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int k = 0; k < kWideWidth; ++k) floats.at[k] = static_cast<float>(values.at[k]);
  }
  return floats;
}
template <class T>
__device__ __forceinline__ Wide<T> rounded(const Wide<float>& floats) {
  Wide<T> values;
#pragma unroll
  for (int k = 0; k < kWideWidth; ++k) values.at[k] = T(floats.at[k]);
  return values;
}
template <class T>
__device__ __forceinline__ Wide<float> load_wide_floats(const T* from) {
  return floats_of(load_wide(from));
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
