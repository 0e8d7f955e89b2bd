#pragma once
// What attention_wgmma.cu is given, and what one of its blocks sees of it.

#include "cuda/kernels/paged_args.cuh"
#include "cuda/kernels/prompt_tiles.cuh"
#include "cuda/kernels/prompt_work.cuh"
#include "cuda/kernels/widened.h"
#include "cuda/runtime/tensor_map.h"

namespace quire::cuda {

constexpr float kLog2e = 1.44269504f;

struct Request {
  int first_token, num_tokens, num_rows, seq_len;

  template <class Args>
  __device__ __forceinline__ Request(const Args& a, int request)
      : first_token(a.query_start[request]),
        num_tokens(a.query_start[request + 1] - first_token),
        num_rows(num_tokens * a.group),
        seq_len(a.seq_lens[request]) {}
  __device__ __forceinline__ int position(int row, int group) const {
    return seq_len - num_tokens + ::min(row, num_rows - 1) / group;
  }
  // The last key that a position sees.
  __device__ __forceinline__ int seen_to(int position) const { return position; }
};

template <class T>
struct WgmmaArgs : PagedArgs<T, T> {
  CUtensorMap k_map, v_map;  // boxes of box_keys tokens of a page, a panel wide
  int box_keys;
  int least_rows;
  WidenedRequests widened;  // with none of them all requests, by the table
  PromptWork work;
  int place_floats = 0;       // of a part's results
  float* partials = nullptr;  // [KV heads, work.many, rows of a part, part_floats]
  int* arrived = nullptr;     // [KV heads, work.many]: a unit's parts; zeros between launches
  float to_exponent;          // 2 log2(e) times what tanh takes of a score; 0: no soft cap
  float to_log2;              // what comes then, times this, is a logarithm to base 2

  WgmmaArgs(const AttentionArgs& args, int least, const WidenedRequests& only)
      : PagedArgs<T, T>(args),
        box_keys(box_of(args.k_cache)),
        least_rows(least),
        widened(only),
        work{only.count > 0 ? only.count : static_cast<int>(args.seq_lens.extent(0)), 0, 0},
        to_exponent(args.soft_cap > 0.f ? 2.f * kLog2e * this->scale / args.soft_cap : 0.f),
        to_log2((args.soft_cap > 0.f ? args.soft_cap : this->scale) * kLog2e) {
    k_map = tensor_map(args.k_cache, {1, box_keys, 1, kPanelDims<T>});
    v_map = tensor_map(args.v_cache, {1, box_keys, 1, kPanelDims<T>});
  }

  // Keys that lie in one page wherever a tile begins: a power of two.
  static int box_of(const TensorView& cache) {
    const auto size = static_cast<int>(cache.extent(1));
    return std::min(tile_keys(cache.extent(3)), size & -size);
  }
  // Entries of the work are requests, or those that are widened.
  __device__ __forceinline__ int request_of(int entry) const {
    return widened.count > 0 ? widened.at[entry].request : entry;
  }
  // Its last unit sees most.
  template <int kDim>
  __device__ __forceinline__ PromptLoad load_of(int entry) const {
    const Request r(*this, request_of(entry));
    if (r.num_rows < least_rows) return {};
    const int units = (r.num_rows + kBlockRows - 1) / kBlockRows,
              first = r.position((units - 1) * kBlockRows, this->group);
    return {units,
            (r.seq_len - 1) / kTileKeys<kDim> + 1 - this->seen_from(first) / kTileKeys<kDim>};
  }
  __device__ __forceinline__ int place_of(const PromptPart& part, int kv_head) const {
    return kv_head * work.many + part.place;
  }
  __device__ __forceinline__ float* partials_of(int place) const {
    return partials + static_cast<std::int64_t>(place) * place_floats;
  }
};

// Where a request's pages are: in the table, or after each other.
class KeyPages {
 public:
  template <class T>
  __device__ __forceinline__ KeyPages(const WgmmaArgs<T>& a, int entry) {
    const int request = a.request_of(entry);
    if (a.widened.count > 0) {
      const int first = a.seen_from(Request(a, request).position(0, a.group));
      ahead_ = a.widened.at[entry].first_page - first / kWidenedKeys;
    } else {
      table_ = a.block_table.data + request * a.block_table.stride[0];
    }
  }
  __device__ __forceinline__ std::int32_t operator[](int page) const {
    return table_ != nullptr ? table_[page] : page + ahead_;
  }

 private:
  const std::int32_t* table_ = nullptr;
  int ahead_ = 0;
};

}  // namespace quire::cuda
