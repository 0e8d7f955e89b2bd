// Queries, keys and values between their products and attention: norm by head, rotation and cache
// writes in one launch in place of five. Memory bound: all of it is read once and written once.

#include <bit>

#include "cuda/kernels/launchers.h"
#include "cuda/kernels/new_heads.cuh"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 128;

// Blocks go over (token, heads of it); a key's threads have its value too.
template <class T, class Cache>
__global__ void __launch_bounds__(kThreads)
    prepare_heads_kernel(const __grid_constant__ NewHeads<T, Cache> a, int queries, int heads,
                         int pairs, int lanes_log2) {
  release_next_kernel();
  a.prefetch_norms();
  await_previous_kernel();
  const int token = static_cast<int>(blockIdx.x);
  const int thread = blockIdx.y * kThreads + threadIdx.x, lanes = 1 << lanes_log2;
  const int lane = thread & (lanes - 1), head = thread >> lanes_log2, key = head - queries;
  const bool has_some = lane < pairs, there = has_some && head < heads;
  // Who has none reads of the first key, which nobody writes.
  const bool is_query = there && key < 0;
  const HeadRuns<T> runs = a.template prepare<false>(
      is_query ? a.query(token, head) : a.key(token, there ? key : 0),
      is_query ? a.q_norm : a.k_norm, token, has_some ? lane : 0, lanes, has_some);
  if (!there) return;
  if (!is_query) return a.store(runs, token, key);
  T* const to = a.query(token, head);
  store_wide(to + runs.first, runs.x);
  store_wide(to + runs.second, runs.y);
}

template <class T, class Cache>
void launch_heads(const HeadArgs& args, StreamRef stream) {
  const int dim = static_cast<int>(args.q.extent(2)), lanes = lanes_of(dim);
  const int queries = static_cast<int>(args.q.extent(1));
  const int heads = queries + static_cast<int>(args.k.extent(1));
  const dim3 grid(static_cast<unsigned>(args.q.extent(0)),
                  static_cast<unsigned>((heads * lanes + kThreads - 1) / kThreads));
  CUDA_CHECK(launch(prepare_heads_kernel<T, Cache>, grid, dim3(kThreads), 0, native(stream),
                    NewHeads<T, Cache>(args), queries, heads, pairs_of(dim),
                    std::countr_zero(static_cast<unsigned>(lanes))));
}

// Any widths, alignment and mixture of dtypes.
void prepare_apart(const HeadArgs& args, StreamRef stream) {
  if (!args.q_norm.empty()) {
    rms_norm(args.q, args.q, args.q_norm, args.norm_eps, args.norm_offset, stream);
    rms_norm(args.k, args.k, args.k_norm, args.norm_eps, args.norm_offset, stream);
  }
  if (!args.cos_sin.empty()) {
    rope(args.q, args.positions, args.cos_sin, args.style, stream);
    rope(args.k, args.positions, args.cos_sin, args.style, stream);
  }
  kv_write(args.k_cache, args.v_cache, args.k, args.v, args.slots, args.cache_scale, stream);
}

}  // namespace

void prepare_heads(const HeadArgs& args, StreamRef stream) {
  if (args.q.extent(0) == 0) return;
  if (!new_heads_suit(args)) return prepare_apart(args, stream);
  dispatch_device_float(args.q.dtype(), [&]<class T>(Type<T>) {
    dispatch_cache(args.k_cache.dtype(),
                   [&]<class Cache>(Type<Cache>) { launch_heads<T, Cache>(args, stream); });
  });
}

}  // namespace quire::cuda
