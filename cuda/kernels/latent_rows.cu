// Rows of latent caches, side by side. Memory bound.

#include "cuda/device/fp8.cuh"
#include "cuda/kernels/expanded_attention.h"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

struct Gathered {
  int request, begin, slot;  // positions from `begin` on
};

template <class T, class Cache>
struct GatherArgs {
  T* rows;
  const Cache* cache;
  std::int64_t page_stride, token_stride;
  const std::int32_t* table;
  std::int64_t table_stride;
  int block_size, width, filled;
  int count;
  Gathered pieces[kMostPieces];
};

// A thread has kCodes elements, 16 bytes of T.
template <class T, class Cache>
__global__ void __launch_bounds__(kThreads)
    gather_latents_kernel(const __grid_constant__ GatherArgs<T, Cache> a) {
  release_next_kernel();
  await_previous_kernel();
  const int chunks = a.width / kCodes;
  const int index = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const int slot = index / chunks, d = (index - slot * chunks) * kCodes;
  if (slot >= a.filled) return;
  int piece = 0;
  while (piece + 1 < a.count && a.pieces[piece + 1].slot <= slot) ++piece;
  const Gathered& of = a.pieces[piece];
  const int position = of.begin + slot - of.slot, page = position / a.block_size;
  const std::int64_t block = a.table[of.request * a.table_stride + page];
  const Cache* from =
      a.cache + block * a.page_stride + (position - page * a.block_size) * a.token_stride + d;
  T* to = a.rows + std::int64_t{slot} * a.width + d;
  if constexpr (std::is_same_v<T, Cache>) {
    store_vec(to, load_vec(from));
  } else {
    widen(to, from);
  }
}

template <class T, class Cache>
void launch_gather(TensorView rows, TensorView cache, TensorView block_table,
                   std::span<const LatentPiece> pieces, StreamRef stream) {
  GatherArgs<T, Cache> a{.rows = static_cast<T*>(rows.data()),
                         .cache = static_cast<const Cache*>(cache.data()),
                         .page_stride = cache.stride(0),
                         .token_stride = cache.stride(1),
                         .table = static_cast<const std::int32_t*>(block_table.data()),
                         .table_stride = block_table.stride(0),
                         .block_size = static_cast<int>(cache.extent(1)),
                         .width = static_cast<int>(cache.extent(2)),
                         .filled = 0,
                         .count = 0,
                         .pieces = {}};
  for (const LatentPiece& piece : pieces) {
    a.pieces[a.count++] = {piece.prompt.request, piece.begin, piece.slot};
    a.filled = piece.slot + piece.end - piece.begin;
  }
  const int threads = a.filled * (a.width / kCodes);
  CUDA_CHECK(launch(gather_latents_kernel<T, Cache>,
                    dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads)),
                    dim3(kThreads), 0, native(stream), a));
}

}  // namespace

void gather_latents(TensorView rows, TensorView cache, TensorView block_table,
                    std::span<const LatentPiece> pieces, StreamRef stream) {
  const auto launch_on = [&]<class T>(Type<T>) {
    if (cache.dtype() == DType::fp8_e4m3)
      return launch_gather<T, __nv_fp8_e4m3>(rows, cache, block_table, pieces, stream);
    launch_gather<T, T>(rows, cache, block_table, pieces, stream);
  };
  if (rows.dtype() == DType::bf16) return launch_on(Type<__nv_bfloat16>{});
  launch_on(Type<__half>{});
}

}  // namespace quire::cuda
