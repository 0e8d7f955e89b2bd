// K and V of a step's tokens into their slots. Memory bound: read once, written once.

#include "cuda/device/fast_divide.cuh"
#include "cuda/device/wide.cuh"
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

// Where rows are made of whole runs of kWideWidth elements, at aligned addresses on both sides.
struct WideRows {
  FastDivide slots_of_block, runs_of_head;
  int runs;  // of a token
};

template <class Cache, class T>
__device__ __forceinline__ void write_wide(View<Cache, 4> cache, View<const T, 3> rows, float scale,
                                           std::int64_t token, int slot, const WideRows& wide) {
  using Run = Vec<Cache, kWideWidth>;
  const int block = wide.slots_of_block(slot), offset = slot - block * wide.slots_of_block.divisor;
  Cache* const to = cache.data + block * cache.stride[0] + offset * cache.stride[1];
  const T* const from = rows.data + token * rows.stride[0];
  for (int i = threadIdx.x; i < wide.runs; i += kThreads) {
    const int head = wide.runs_of_head(i),
              dim = (i - head * wide.runs_of_head.divisor) * kWideWidth;
    const Wide<float> values = load_wide_floats(from + head * rows.stride[1] + dim);
    Run run;
#pragma unroll
    for (int k = 0; k < kWideWidth; ++k) run.at[k] = stored<Cache>(values.at[k], scale);
    *reinterpret_cast<Run*>(to + head * cache.stride[2] + dim) = run;
  }
}

template <class Cache, class T>
__global__ void __launch_bounds__(kThreads)
    kv_write_wide_kernel(View<Cache, 4> k_cache, View<Cache, 4> v_cache, View<const T, 3> k,
                         View<const T, 3> v, const std::int64_t* slots, CacheScale scale,
                         WideRows wide) {
  release_next_kernel();
  await_previous_kernel();
  const std::int64_t token = blockIdx.x, slot = slots[token];
  if (slot < 0) return;
  write_wide(k_cache, k, scale.k, token, static_cast<int>(slot), wide);
  if (v_cache.data != nullptr) write_wide(v_cache, v, scale.v, token, static_cast<int>(slot), wide);
}

// One block per token; slot −1: the token is not kept.
template <class Cache, class T>
__global__ void __launch_bounds__(kThreads)
    kv_write_kernel(View<Cache, 4> k_cache, View<Cache, 4> v_cache, View<const T, 3> k,
                    View<const T, 3> v, const std::int64_t* slots, CacheScale scale) {
  release_next_kernel();
  await_previous_kernel();
  const std::int64_t token = blockIdx.x, slot = slots[token];
  if (slot < 0) return;
  write_row(k_cache, k, scale.k, token, slot);
  if (v_cache.data != nullptr) write_row(v_cache, v, scale.v, token, slot);
}

// K and V alike, if there are values.
bool suits_wide(const TensorView& k_cache, const TensorView& v_cache, const TensorView& k,
                const TensorView& v) {
  const auto aligned = [](const TensorView& t) {
    const std::size_t run = kWideWidth * size_of(t.dtype());
    return t.empty() || (is_wide(t) && t.stride(t.rank() - 1) == 1 &&
                         reinterpret_cast<std::uintptr_t>(t.data()) % run == 0);
  };
  const bool alike = v_cache.empty() || (v.extent(1) == k.extent(1) && v.extent(2) == k.extent(2) &&
                                         v_cache.extent(1) == k_cache.extent(1));
  return alike && aligned(k_cache) && aligned(v_cache) && aligned(k) && aligned(v) &&
         k_cache.extent(0) * k_cache.extent(1) <= 0x7fffffff;  // slots of 31 bits
}

template <class Cache, class T>
void launch_write(TensorView k_cache, TensorView v_cache, TensorView k, TensorView v,
                  TensorView slots, CacheScale scale, StreamRef stream) {
  if (suits_wide(k_cache, v_cache, k, v)) {
    const int runs_of_head = static_cast<int>(k.extent(2)) / kWideWidth;
    const WideRows wide{FastDivide(static_cast<int>(k_cache.extent(1))), FastDivide(runs_of_head),
                        static_cast<int>(k.extent(1)) * runs_of_head};
    CUDA_CHECK(launch(kv_write_wide_kernel<Cache, T>, dim3(static_cast<unsigned>(k.extent(0))),
                      dim3(kThreads), 0, native(stream), device_view<Cache, 4>(k_cache),
                      device_view<Cache, 4>(v_cache), device_view<const T, 3>(k),
                      device_view<const T, 3>(v), static_cast<const std::int64_t*>(slots.data()),
                      scale, wide));
    return;
  }
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
