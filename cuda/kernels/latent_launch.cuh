#pragma once
// The launches of latent attention: of requests with few new tokens, whose units are cut, of their
// merge, and of prompts.

#include <algorithm>

#include "cuda/kernels/attention.h"
#include "cuda/kernels/latent_work.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/merge_row.cuh"
#include "cuda/runtime/capability.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {

// Grid (rows, blocks of the kernel before): of the unit that a block began and did not end.
template <class T, class Cache>
__global__ void __launch_bounds__(kMergeThreads)
    merge_latents_kernel(const __grid_constant__ LatentParams<T, Cache> p) {
  release_next_kernel();
  await_previous_kernel();
  const int block = static_cast<int>(blockIdx.y), blocks = static_cast<int>(gridDim.y),
            row = static_cast<int>(blockIdx.x);
  const int4 cut = p.cuts[block];
  if (cut.z == 0) return;
  const LatentRows rows(p, cut.x, cut.y);
  if (rows.position(row, p.heads) < 0) return;
  const int at = rows.row0 + row, token = at / p.heads;
  merge_row(p.out, rows.first_token + token, at - token * p.heads, nullptr, cut.z, [&](int part) {
    const int half = part == 0 ? cut.w : 0;
    return p.partials +
           ((static_cast<std::int64_t>(half) * blocks + block + part) * kLatentRows + row) *
               kPartFloats;
  });
}

// kernel: with one block on a multiprocessor.
template <class T, class Cache>
void launch_latents(void (*kernel)(LatentParams<T, Cache>), unsigned threads,
                    std::size_t shared_bytes, const MlaArgs& args, SplitScratch scratch,
                    StreamRef stream) {
  LatentParams<T, Cache> p(args);
  const auto above = [](std::int64_t n, std::int64_t by) { return (n + by - 1) / by; };
  const std::int64_t rows = p.heads * std::int64_t{args.max_query_len};
  // Where lengths allow fewer tiles than all blocks must have, blocks that had none are not there.
  const std::int64_t units = above(args.q.extent(0) * p.heads, kLatentRows) + p.requests;
  const std::int64_t tiles = units * above(args.max_seq_len, kLatentKeys);
  constexpr std::int64_t kPart = kLatentRows * kPartFloats;  // two a block, after four numbers
  const std::int64_t blocks = std::clamp<std::int64_t>(
      std::min<std::int64_t>({above(tiles, kLeastTiles), processor_count(), kMostMerged,
                              scratch.floats / (2 * kPart + 4)}),
      1, kMostMerged);
  if (blocks > 1) {
    p.cuts = reinterpret_cast<int4*>(scratch.data);
    p.partials = scratch.data + 4 * blocks;
  }
  const auto count = static_cast<unsigned>(blocks);
  CUDA_CHECK(launch(kernel, dim3(count), dim3(threads), shared_bytes, native(stream), p));
  if (blocks > 1) {
    const auto most_rows = static_cast<unsigned>(std::min<std::int64_t>(rows, kLatentRows));
    CUDA_CHECK(launch(merge_latents_kernel<T, Cache>, dim3(most_rows, count), dim3(kMergeThreads),
                      0, native(stream), p));
  }
  if (args.max_query_len <= kFewTokens) return;
  p.prompts = true;
  p.cuts = nullptr;
  const dim3 grid(static_cast<unsigned>(above(rows, kLatentRows)),
                  static_cast<unsigned>(p.requests));
  CUDA_CHECK(launch(kernel, grid, dim3(threads), shared_bytes, native(stream), p));
}

}  // namespace quire::cuda
