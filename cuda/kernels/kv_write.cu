// K and V of a step's tokens into their slots. Memory bound: read once, written once.

#include "cuda/device/vec.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 128;

template <class Cache>
__device__ __forceinline__ Cache stored(float value, float scale) {
  if constexpr (std::is_same_v<Cache, __nv_fp8_e4m3>) value /= scale;
  return Cache(value);
}

template <class Cache, class T>
__device__ __forceinline__ void write_row(View<Cache, 4> cache, View<const T, 3> rows, float scale,
                                          std::int64_t token, std::int64_t slot) {
  const std::int64_t block = slot / cache.extent[1], offset = slot % cache.extent[1];
  const int dim = static_cast<int>(rows.extent[2]), count = static_cast<int>(rows.extent[1]) * dim;
  for (int i = threadIdx.x; i < count; i += kThreads) {
    cache(block, offset, i / dim, i % dim) =
        stored<Cache>(static_cast<float>(rows(token, i / dim, i % dim)), scale);
  }
}

// One block per token; slot −1: the token is not kept.
template <class Cache, class T>
__global__ void __launch_bounds__(kThreads)
    kv_write_kernel(View<Cache, 4> k_cache, View<Cache, 4> v_cache, View<const T, 3> k,
                    View<const T, 3> v, const std::int64_t* slots, CacheScale scale) {
  const std::int64_t token = blockIdx.x, slot = slots[token];
  if (slot < 0) return;
  write_row(k_cache, k, scale.k, token, slot);
  if (v_cache.data != nullptr) write_row(v_cache, v, scale.v, token, slot);
}

template <class Cache, class T>
void launch_write(TensorView k_cache, TensorView v_cache, TensorView k, TensorView v,
                  TensorView slots, CacheScale scale, StreamRef stream) {
  CUDA_CHECK(launch(kv_write_kernel<Cache, T>, dim3(static_cast<unsigned>(k.extent(0))),
                    dim3(kThreads), 0, native(stream), device_view<Cache, 4>(k_cache),
                    device_view<Cache, 4>(v_cache), device_view<const T, 3>(k),
                    device_view<const T, 3>(v), static_cast<const std::int64_t*>(slots.data()),
                    scale));
}

}  // namespace

void kv_write(TensorView k_cache, TensorView v_cache, TensorView k, TensorView v, TensorView slots,
              CacheScale scale, StreamRef stream) {
  if (k.extent(0) == 0) return;
  dispatch_device_float(k.dtype(), [&]<class T>(Type<T>) {
    dispatch_cache(k_cache.dtype(), [&]<class Cache>(Type<Cache>) {
      launch_write<Cache, T>(k_cache, v_cache, k, v, slots, scale, stream);
    });
  });
}

}  // namespace quire::cuda
