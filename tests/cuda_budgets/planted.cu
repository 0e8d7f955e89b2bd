// Kernels that do what budgets.txt forbids, one thing each: kernel_budgets_test.py --planted.

#include "cuda/device/async_copy.cuh"
#include "cuda/device/typed_mma.cuh"

namespace quire::cuda {
namespace {

constexpr int kThreads = 128, kTile = 128 * 16;

enum class Bug : int { none, strides, spill, spin, division, registers };

struct PlantedArgs {
  float* out;
  const float* in;
  const char* pages;
  const std::int32_t* table;
  std::int64_t stride[4];
  int tiles;
};

template <Bug kBug>
__device__ __forceinline__ const char* place(const PlantedArgs& a, int tile, int i) {
  if constexpr (kBug == Bug::strides) {  // an address of four dimensions for every copy
    const std::int64_t row = threadIdx.x / 8 + i * 16;
    return a.pages + a.table[tile + i] * a.stride[0] + row * a.stride[1] + tile * a.stride[2] +
           threadIdx.x % 8 * a.stride[3];
  } else {
    return a.pages + threadIdx.x * 16 + (tile * 8 + i) * std::int64_t{kTile};
  }
}

template <Bug kBug>
__global__ void __launch_bounds__(kThreads) planted_kernel(const __grid_constant__ PlantedArgs a) {
  SHARED(tile, unsigned char[8][kTile]);
  SHARED(total, unsigned long long);
  FragmentC sum{};
  FragmentA x{};
  float kept[kBug == Bug::registers ? 96 : 1] = {};
  for (int t = 0; t < a.tiles; ++t) {
#pragma unroll
    for (int i = 0; i < 8; ++i) async_copy<16>(&tile[i][threadIdx.x * 16], place<kBug>(a, t, i));
    async_copy_commit();
    async_copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      FragmentB y;
      y.r[0] = *reinterpret_cast<const std::uint32_t*>(&tile[i][threadIdx.x * 4]);
      y.r[1] = x.r[0] = y.r[0] + 1;
      mma<__nv_bfloat16>(sum, x, y);
    }
#pragma unroll
    for (float& k : kept) k = k * a.in[t] + sum.r[0];
    if constexpr (kBug == Bug::spin) atomicAdd(&total, static_cast<unsigned long long>(t));
    if constexpr (kBug == Bug::division) sum.r[0] /= a.in[t];
    __syncthreads();
  }
  if constexpr (kBug == Bug::spill) {  // an index that only the run knows
    float values[16];
    for (int i = 0; i < 16; ++i) values[i] = a.in[i * kThreads + threadIdx.x];
    sum.r[1] += values[a.table[threadIdx.x] % 16] * values[a.table[threadIdx.x + 1] % 16];
  }
  float all = sum.r[0] + sum.r[1];
#pragma unroll
  for (const float k : kept) all += k * k;
  if constexpr (kBug == Bug::spin) all += static_cast<float>(total);
  a.out[threadIdx.x] = all;
}

template __global__ void planted_kernel<Bug::none>(const __grid_constant__ PlantedArgs);
template __global__ void planted_kernel<Bug::strides>(const __grid_constant__ PlantedArgs);
template __global__ void planted_kernel<Bug::spill>(const __grid_constant__ PlantedArgs);
template __global__ void planted_kernel<Bug::spin>(const __grid_constant__ PlantedArgs);
template __global__ void planted_kernel<Bug::division>(const __grid_constant__ PlantedArgs);
template __global__ void planted_kernel<Bug::registers>(const __grid_constant__ PlantedArgs);

}  // namespace
}  // namespace quire::cuda
