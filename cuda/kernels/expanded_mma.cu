// Expanded latent attention on tensor cores of a warp, for devices without warpgroups. A block has
// 128 rows of one head, 16 for each of eight warps, which share tiles of keys and values.

#include "cuda/device/async_copy.cuh"
#include "cuda/kernels/attention_tile.cuh"
#include "cuda/kernels/expanded_rows.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32, kWarpRows = 16, kBlockRows = kWarps * kWarpRows;
constexpr int kKeys = 64;  // of a tile

template <class T>
struct Stage {
  KeyTile<T, kExpandedKey, kKeys> k;
  KeyTile<T, kExpandedValue, kKeys> v;
};
template <class T>
using Rows = WarpRows<T, T, kExpandedKey, kKeys, kExpandedValue>;

// f(h, row) of a lane's two rows that there are.
template <class F>
__device__ __forceinline__ void for_own_rows(const PieceRows& r, int row0, const F& f) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = row0 + static_cast<int>(threadIdx.x) % 32 / 4 + 8 * h;
    if (row < r.num_rows) f(h, row);
  }
}

template <class T>
__device__ __forceinline__ void load_rows(Rows<T>& w, const ExpandedArgs<T>& a, const PieceRows& r,
                                          int head, int row0) {
  w.clear();
  w.scale[0] = w.scale[1] = a.scale;
  w.visible[0] = w.visible[1] = {1, 0};
  for (FragmentA& some : w.q) some = {};
  for_own_rows(r, row0, [&](int h, int row) {
    w.visible[h] = {0, r.seen_to(r.position(row))};
    const T* from = &a.q(r.first_token + row, head, w.dim_of(0));
#pragma unroll
    for (int n = 0; n < kExpandedKey / 8; ++n)
      w.q[n / 2].r[h + n % 2 * 2] = *reinterpret_cast<const std::uint32_t*>(from + n * 8);
    if (!r.goes_on) return;
    const float* state = a.state_of(head, r.first_row + row);
    const float2 sums = *reinterpret_cast<const float2*>(state + kExpandedValue);
    w.state[h] = {sums.x, threadIdx.x % 4 == 0 ? sums.y : 0.f};  // lanes have parts of the sum
#pragma unroll
    for (int n = 0; n < kExpandedValue / 8; ++n) {
      const float2 pair = *reinterpret_cast<const float2*>(state + w.dim_of(n));
      w.values[n].r[2 * h] = pair.x;
      w.values[n].r[2 * h + 1] = pair.y;
    }
  });
}

template <class T>
__device__ __forceinline__ void store_rows(const Rows<T>& w, const ExpandedArgs<T>& a,
                                           const PieceRows& r, int head, int row0) {
  for_own_rows(r, row0, [&](int h, int row) {
    const SoftmaxState& s = w.state[h];
    if (r.is_open(row)) {
      float* state = a.state_of(head, r.first_row + row);
#pragma unroll
      for (int n = 0; n < kExpandedValue / 8; ++n)
        *reinterpret_cast<float2*>(state + w.dim_of(n)) = w.pair_of(n, h);
      if (threadIdx.x % 4 == 0) *reinterpret_cast<float2*>(state + kExpandedValue) = {s.max, s.sum};
      return;
    }
    const float factor = s.sum > 0.f ? a.value_scale / s.sum : 0.f;
    T* to = &a.out(r.first_token + row, head, w.dim_of(0));
#pragma unroll
    for (int n = 0; n < kExpandedValue / 8; ++n) {
      const float2 pair = w.pair_of(n, h);
      *reinterpret_cast<std::uint32_t*>(to + n * 8) = pack<T>(pair.x * factor, pair.y * factor);
    }
  });
}

// Eight threads to a row; positions from `end` on become zeros.
template <class T>
class TileCopies {
 public:
  __device__ __forceinline__ TileCopies(const ExpandedArgs<T>& a, const ExpandedPiece& piece,
                                        int head, int end)
      : end_(end),
        head_step_(std::int64_t{a.num_heads} * kExpandedHead),
        row_step_(a.latent + kExpandedRope),
        heads_(a.heads + (piece.slot + row()) * head_step_ + head * kExpandedHead +
               lane() * kVecWidth<T>),
        rotated_(a.rows + (piece.slot + row()) * row_step_ + a.latent + lane() * kVecWidth<T>) {}

  __device__ __forceinline__ void copy(int tile, Stage<T>& to) const {
#pragma unroll
    for (int pass = 0; pass < kKeys; pass += kPassRows) {
      const int key = tile * kKeys + pass, bytes = key + row() < end_ ? 16 : 0;
      const T *of_head = heads_ + key * head_step_, *rotated = rotated_ + key * row_step_;
#pragma unroll
      for (int c = 0; c < kExpandedNope; c += kLanesDims)
        async_copy<16>(to.k.at(pass + row(), c + lane() * kVecWidth<T>), of_head + c, bytes);
#pragma unroll
      for (int c = 0; c < kExpandedRope; c += kLanesDims)
        async_copy<16>(to.k.at(pass + row(), kExpandedNope + c + lane() * kVecWidth<T>),
                       rotated + c, bytes);
#pragma unroll
      for (int c = 0; c < kExpandedValue; c += kLanesDims)
        async_copy<16>(to.v.at(pass + row(), c + lane() * kVecWidth<T>),
                       of_head + kExpandedNope + c, bytes);
    }
  }

 private:
  static constexpr int kLanes = 8, kPassRows = kThreads / kLanes,
                       kLanesDims = kLanes * kVecWidth<T>;
  __device__ __forceinline__ static int row() { return static_cast<int>(threadIdx.x) / kLanes; }
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % kLanes; }

  int end_;
  std::int64_t head_step_, row_step_;
  const T *heads_, *rotated_;
};

// Grid (items, heads).
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    expanded_mma_kernel(const __grid_constant__ ExpandedArgs<T> a) {
  release_next_kernel();
  await_previous_kernel();  // survives deletion: where tests reach it no kernel begins early
  DYN_SHARED(stages, Stage<T>);  // [2]
  const int head = static_cast<int>(blockIdx.y), warp = static_cast<int>(threadIdx.x) / 32;
  const ExpandedItem item = a.item(static_cast<int>(blockIdx.x));
  const PieceRows r(a, item.piece);
  const int block_row = item.unit * kBlockRows, row0 = block_row + warp * kWarpRows;
  if (block_row >= r.num_rows) return;
  Rows<T> w;
  load_rows(w, a, r, head, row0);
  const int end = r.seen_to(r.position(block_row + kBlockRows - 1)) + 1,
            tiles = (end + kKeys - 1) / kKeys;
  const TileCopies<T> copies(a, item.piece, head, end);
  copies.copy(0, stages[0]);
  async_copy_commit();
  for (int t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) copies.copy(t + 1, stages[(t + 1) % 2]);
    async_copy_commit();
    async_copy_wait<1>();
    __syncthreads();
    const Stage<T>& stage = stages[t % 2];
    w.score(stage.k, 0);
    w.softmax(0.f, t * kKeys);
    w.accumulate(stage.v, 0);
    __syncthreads();  // before the stage is filled again
  }
  w.finish_sums();
  store_rows(w, a, r, head, row0);
}

template <class T>
void launch_expanded(const ExpandedRound& round, StreamRef stream) {
  ExpandedArgs<T> a(round);
  a.add_pieces(round.pieces, kBlockRows, [](int, int) { return 1; });
  if (a.items == 0) return;
  CUDA_CHECK(launch(expanded_mma_kernel<T>,
                    dim3(static_cast<unsigned>(a.items), static_cast<unsigned>(a.num_heads)),
                    dim3(kThreads), 2 * sizeof(Stage<T>), native(stream), a));
}

}  // namespace

void expanded_mma(const ExpandedRound& round, StreamRef stream) {
  assert(is_aligned(round.q) && is_aligned(round.out));
  if (round.q.dtype() == DType::bf16) return launch_expanded<__nv_bfloat16>(round, stream);
  launch_expanded<__half>(round, stream);
}

}  // namespace quire::cuda
