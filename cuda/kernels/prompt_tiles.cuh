#pragma once
// What attention_wgmma.cu has in shared memory: tiles of keys and of values, swizzled as its
// products read them, and rings of them.

#include "cuda/device/tma.cuh"
#include "cuda/device/warpgroup.cuh"

namespace quire::cuda {

// Barriers of roles.cuh: where all that attend meet, and from kFirstTurn on the groups' turns.
constexpr int kAllAttend = 1, kFirstTurn = 2;

// Warpgroups that attend, 64 rows each, and one more, whose first warp brings tiles; and the
// registers of their threads, of which a multiprocessor has 65,536.
constexpr int kGroups = 2, kGroupThreads = 128, kGroupRows = 64;
constexpr int kAttending = kGroups * kGroupThreads, kThreads = kAttending + kGroupThreads;
constexpr int kBlockRows = kGroups * kGroupRows;
// Of keys; where values are as wide as heads of 256 half as many: their sums take the registers.
constexpr int tile_keys(std::int64_t dim) { return dim <= 192 ? 128 : 64; }
template <int kDim>
constexpr int kTileKeys = tile_keys(kDim);
constexpr int kRegistersOfAttending = 240, kRegistersOfBringing = 24;

constexpr int kPanelBytes = 128;  // of a row
template <class T>
constexpr int kPanelDims = kPanelBytes / static_cast<int>(sizeof(T));
// Of a row; what is beyond kDim, with heads of 96, comes as zeros.
template <class T, int kDim>
constexpr int kPanels = (kDim + kPanelDims<T> - 1) / kPanelDims<T>;

template <class T, int kDim>
struct alignas(1024) SwizzledTile {
  static constexpr int kCount = kPanels<T, kDim>, kRows = kTileKeys<kDim>;
  static constexpr int kBytes = kRows * kPanelBytes;  // of a panel
  T panel[kCount][kRows][kPanelDims<T>];
};
// Of a warpgroup, where registers have no room for them.
template <int kDim>
constexpr bool kSharesQueries = kDim > 128;
template <class T, int kDim>
struct alignas(1024) QueryTile {
  static constexpr int kBytes = kGroupRows * kPanelBytes;
  T panel[kPanels<T, kDim>][kGroupRows][kPanelDims<T>];
};
struct NoQueries {};

// Of a ring of tiles.
template <int kCount>
struct RingBarriers {
  Mbarrier full[kCount], empty[kCount];
  // By one thread: how many fill a tile, beside its boxes, and empty it.
  __device__ __forceinline__ void init(int filling, int emptying) {
    for (int s = 0; s < kCount; ++s) {
      init_barrier(full[s], filling);
      init_barrier(empty[s], emptying);
    }
  }
};
// A place in a ring, and how often around, modulo two.
template <int kCount>
struct Turn {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage < kCount) return;
    stage = 0;
    parity ^= 1;
  }
};

template <class T, int kDim, int kValueDim = kDim>
struct Stages {
  static constexpr int kStages = kSharesQueries<kDim> ? 2 : 3;
  SwizzledTile<T, kDim> k[kStages];
  SwizzledTile<T, kValueDim> v[kStages];
  std::conditional_t<kSharesQueries<kDim>, QueryTile<T, kDim>, NoQueries> q[kGroups];
  RingBarriers<kStages> k_ready, v_ready;

  __device__ __forceinline__ void init() {
    k_ready.init(1, kAttending / 32);
    v_ready.init(1, kAttending / 32);
  }
};
// The keys that a block's rows see, and the tiles that are the block's.
struct Span {
  int first_key, end_key;  // seen by any of them
  int all_from, all_to;    // by all: first and last
  int begin, tiles;        // where they begin, and end

  __device__ __forceinline__ bool sees(int key) const { return first_key <= key && key < end_key; }
};

}  // namespace quire::cuda
