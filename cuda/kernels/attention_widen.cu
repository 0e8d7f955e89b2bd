// Keys and values of an fp8 cache as the queries' dtype, which has each of their values, in pages
// that attention_wgmma.cu reads. Memory bound: a byte read and two written.

#include "cuda/device/fp8.cuh"
#include "cuda/kernels/attention.h"
#include "cuda/kernels/launchers.h"
#include "cuda/kernels/prompt_args.cuh"

namespace quire::cuda {
namespace {

// Threads of a block: whole rows of them, each with a few codes.
template <int kDim>
constexpr int kWideners = 16 * (kDim == 96 ? 12 : 16);

template <class T>
struct WidenArgs {
  PagedArgs<T, __nv_fp8_e4m3> from;
  View<T, 4> k, v;  // [pages, kWidenedKeys, KV heads, head_dim]
  WidenedRequests requests;

  // Whose page it is.
  __device__ __forceinline__ const WidenedRequest& owner_of(int page) const {
    int found = 0;
    for (int step = kWidenedRequests / 2; step != 0; step /= 2) {
      if (found + step < requests.count && requests.at[found + step].first_page <= page)
        found += step;
    }
    return requests.at[found];
  }
};

// Grid (pages, KV heads). Of a page that is not seen to its ends the first and last key seen fill
// the rest.
template <class T, int kDim>
__global__ void __launch_bounds__(kWideners<kDim>)
    attention_widen_kernel(const __grid_constant__ WidenArgs<T> a) {
  release_next_kernel();
  await_previous_kernel();
  constexpr int kLanes = kDim / kCodes, kRows = kWideners<kDim> / kLanes;  // of a pass
  constexpr int kTogether = 4;  // passes whose loads are on the way
  static_assert(kWideners<kDim> % kLanes == 0 && kWidenedKeys % (kTogether * kRows) == 0);
  using Wide = Vec<std::uint32_t, kCodes / 2>;
  const int page = static_cast<int>(blockIdx.x), kv_head = static_cast<int>(blockIdx.y);
  const int row = static_cast<int>(threadIdx.x) / kLanes,
            dim = static_cast<int>(threadIdx.x) % kLanes * kCodes;
  const WidenedRequest& mine = a.owner_of(page);
  const Request r(a.from, mine.request);
  const int first_key = a.from.seen_from(r.position(0, a.from.group));
  const int key0 = (first_key / kWidenedKeys + page - mine.first_page) * kWidenedKeys;
  if (key0 >= r.seq_len) return;
  const std::int32_t* const table =
      a.from.block_table.data + mine.request * a.from.block_table.stride[0];
  const std::int64_t in_token = kv_head * a.from.k_cache.stride[2] + dim;
#pragma unroll 1
  for (int pass = 0; pass < kWidenedKeys; pass += kTogether * kRows) {
    Wide k[kTogether], v[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int key = min(max(key0 + pass + i * kRows + row, first_key), r.seq_len - 1),
                block = a.from.block_size(key);
      const std::int64_t at = table[block] * a.from.k_cache.stride[0] +
                              (key - block * a.from.block_size.divisor) * a.from.k_cache.stride[1] +
                              in_token;
      k[i] = wide_codes<T>(a.from.k_cache.data + at);
      v[i] = wide_codes<T>(a.from.v_cache.data + at);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      *reinterpret_cast<Wide*>(&a.k(page, pass + i * kRows + row, kv_head, dim)) = k[i];
      *reinterpret_cast<Wide*>(&a.v(page, pass + i * kRows + row, kv_head, dim)) = v[i];
    }
  }
}

template <class T>
void launch_widen(const TensorView& k, const TensorView& v, const AttentionArgs& args,
                  const WidenedRequests& requests, StreamRef stream) {
  const WidenArgs<T> a{PagedArgs<T, __nv_fp8_e4m3>(args), device_view<T, 4>(k),
                       device_view<T, 4>(v), requests};
  const dim3 grid(static_cast<unsigned>(requests.pages), static_cast<unsigned>(k.extent(2)));
  const auto run = [&]<int kDim>(std::integral_constant<int, kDim>) {
    CUDA_CHECK(
        launch(attention_widen_kernel<T, kDim>, grid, dim3(kWideners<kDim>), 0, native(stream), a));
  };
  if (k.extent(3) == 64) return run(std::integral_constant<int, 64>{});
  if (k.extent(3) == 96) return run(std::integral_constant<int, 96>{});
  if (k.extent(3) == 128) return run(std::integral_constant<int, 128>{});
  run(std::integral_constant<int, 256>{});
}

}  // namespace

void attention_widen(TensorView k, TensorView v, const AttentionArgs& args,
                     const WidenedRequests& requests, StreamRef stream) {
  if (k.dtype() == DType::bf16) return launch_widen<__nv_bfloat16>(k, v, args, requests, stream);
  launch_widen<__half>(k, v, args, requests, stream);
}

}  // namespace quire::cuda
