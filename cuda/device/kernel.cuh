#pragma once
// What every kernel file includes first: nvcc sees CUDA, any other compiler the emulation in
// tests/cuda_emulation.
//
//   SHARED(tile, float[32][33]);         static shared memory, one per block
//   DYN_SHARED(scratch, float);  float* scratch: a launch's dynamic shared memory, 1024-byte aligned
//   launch(kernel, grid, block, dynamic_shared_bytes, stream, arguments…)
//
// Every kernel begins with release_next_kernel() and await_previous_kernel() (dependent.cuh).
//
// Rules for kernels: no <<<>>>, no PTX or __CUDA_ARCH__ outside cuda/device, no __shared__, no
// globals; every lane of a mask reaches the same intrinsic on the same line; no thread leaves
// before the last barrier; shuffles order no memory; no benign races; spin only with spin_pause().

#include <type_traits>
#include <utility>

#include "cuda/runtime/capability.h"

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace quire::cuda {

template <class T>
using SharedType = T;

__device__ __forceinline__ void spin_pause() { __nanosleep(20); }

}  // namespace quire::cuda

#define SHARED(name, ...) __shared__ ::quire::cuda::SharedType<__VA_ARGS__> name
#define DYN_SHARED(name, ...)                                              \
  extern __shared__ __align__(1024) unsigned char quire_dynamic_shared_[]; \
  __VA_ARGS__* name = reinterpret_cast<__VA_ARGS__*>(quire_dynamic_shared_)

#else
#include <cuda_emulation/kernel.h>
#endif

#include "cuda/device/dependent.cuh"

namespace quire::cuda {

// In the 4 KiB that every driver takes.
template <class... P>
constexpr bool fits_parameters = (std::size_t{0} + ... + ((sizeof(P) + 7) / 8 * 8)) <= 4096;

// attribute: null: begins when all before it has ended, as kernels without a wait must.
template <class... P, class... A>
cudaError_t launch_with(cudaLaunchAttribute* attribute, void (*kernel)(P...), dim3 grid, dim3 block,
                        std::size_t dynamic_shared, cudaStream_t stream, A&&... arguments) {
  static_assert(fits_parameters<P...>);
  // Without it static and dynamic shared memory together may be 48 KiB; 16 KiB are static at most.
  if (dynamic_shared > (32u << 10)) {
    const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(dynamic_shared));
    if (error != cudaSuccess) return error;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = dynamic_shared;
  config.stream = stream;
  config.attrs = attribute;
  config.numAttrs = attribute != nullptr ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, std::forward<A>(arguments)...);
}

// On Hopper the kernel may begin before the one in front of it has ended (dependent.cuh).
template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t dynamic_shared,
                   cudaStream_t stream, A&&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  return launch_with(is_hopper() && variants.begins_ahead ? &attribute : nullptr, kernel, grid,
                     block, dynamic_shared, stream, std::forward<A>(arguments)...);
}

// All blocks live at once, so that the grid can meet.
template <class... P, class... A>
cudaError_t launch_cooperative(void (*kernel)(P...), dim3 grid, dim3 block,
                               std::size_t dynamic_shared, cudaStream_t stream, A&&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  return launch_with(&attribute, kernel, grid, block, dynamic_shared, stream,
                     std::forward<A>(arguments)...);
}

}  // namespace quire::cuda
