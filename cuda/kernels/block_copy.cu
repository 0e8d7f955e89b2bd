// Whole pages copied or zeroed by block id. Memory bound.

#include "cuda/device/kernel.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

// One block per page and kThreads units of U; from null: zero.
template <class U>
__global__ void __launch_bounds__(kThreads)
    page_kernel(U* pages, std::int64_t page_units, const std::int32_t* to,
                const std::int32_t* from) {
  release_next_kernel();
  await_previous_kernel();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (i >= page_units) return;
  pages[to[blockIdx.x] * page_units + i] =
      from == nullptr ? U{} : pages[from[blockIdx.x] * page_units + i];
}

template <class U>
void launch_pages(TensorView pages, TensorView to, TensorView from, StreamRef stream) {
  const std::int64_t units = pages.extent(1) / static_cast<std::int64_t>(sizeof(U));
  const dim3 grid(static_cast<unsigned>(to.extent(0)),
                  static_cast<unsigned>((units + kThreads - 1) / kThreads));
  CUDA_CHECK(launch(
      page_kernel<U>, grid, dim3(kThreads), 0, native(stream), static_cast<U*>(pages.data()), units,
      static_cast<const std::int32_t*>(to.data()), static_cast<const std::int32_t*>(from.data())));
}

}  // namespace

void copy_blocks(TensorView pages, TensorView to, TensorView from, StreamRef stream) {
  if (to.numel() == 0) return;
  assert(pages.contiguous());
  const bool wide =
      pages.extent(1) % 16 == 0 && reinterpret_cast<std::uintptr_t>(pages.data()) % 16 == 0;
  if (wide) return launch_pages<uint4>(pages, to, from, stream);
  launch_pages<std::uint8_t>(pages, to, from, stream);
}

void zero_blocks(TensorView pages, TensorView ids, StreamRef stream) {
  copy_blocks(pages, ids, {}, stream);
}

cudaError_t find_kernel() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(page_kernel<uint4>));
}

}  // namespace quire::cuda
