#pragma once
// What an expert product of a prompt copies to shared memory: a block's work is items, 128 tokens
// of an expert with 256 rows of its weights, of which a stage has as much of K as 128 bytes of a
// token. Copies run ahead of the products from one item into the next.

#include "cuda/device/async_copy.cuh"
#include "cuda/device/expert_rows.cuh"
#include "cuda/device/mxfp4.cuh"
#include "cuda/device/warpgroup.cuh"

namespace quire::cuda {

constexpr int kPromptGroups = 2, kGroupThreads = 128,
              kPromptThreads = kPromptGroups * kGroupThreads;
constexpr int kTokens = kPromptTileTokens, kFewTokens = kTokens / 2;
constexpr int kHalfRows = 128;    // gated: the gate's rows and their partners; else neighbours
constexpr int kPanelBytes = 128;  // of a token, in a stage

// What weights are: the type that tokens have, too, or this, and tokens in bf16.
struct Mxfp4 {};
template <class T>
constexpr bool kIsFp8 = std::is_same_v<T, __nv_fp8_e4m3>;
template <class T>
constexpr bool kIsMxfp4 = std::is_same_v<T, Mxfp4>;
template <class T>
using PromptElement = std::conditional_t<kIsMxfp4<T>, __nv_bfloat16, T>;  // of tokens
template <class T>
constexpr int kStepDepth = kPanelBytes / static_cast<int>(sizeof(PromptElement<T>));  // of K
template <class T>
constexpr int kStages = kIsMxfp4<T> ? 7 : 4;

struct PromptItem;

struct PromptProduct {
  ExpertBlock block;
  ExpertOutput output;
  const char *x, *weight;
  std::int64_t x_bytes, row_bytes, expert_bytes;  // of a row, of a row, of an expert
  int depth, column_tiles;
  const float *x_scales, *scales;  // of fp8; else null
  const std::uint8_t* exponents;   // of MXFP4
  std::uint32_t scale_stride, expert_scales;
  int x_rows;
  bool by_block, interleaves;  // fp8; MXFP4

  __device__ __forceinline__ int columns_of_item() const {
    return output.gated ? kHalfRows : 2 * kHalfRows;
  }
  // How far the second half's rows are from the first's.
  __device__ __forceinline__ int half_distance() const {
    return output.gated ? output.columns : kHalfRows;
  }
  // Of the weights' scales, for a row of a half and the first of K.
  __device__ __forceinline__ std::uint32_t scale_place(const PromptItem& item, int half,
                                                       int row) const;
  __device__ __forceinline__ float row_scale(const PromptItem& item, int half, int row) const {
    return scales == nullptr || by_block ? 1.f : scales[scale_place(item, half, row)];
  }
};

struct PromptItem {
  ExpertTile tile;
  int column0;

  // The columns of a tile follow each other: blocks at work share tokens, and experts.
  __device__ __forceinline__ PromptItem(const PromptProduct& p, int index)
      : tile(p.block.tiles[index / p.column_tiles]),
        column0(index % p.column_tiles * p.columns_of_item()) {}
  __device__ __forceinline__ int tokens() const { return tile.end - tile.begin; }
};

__device__ __forceinline__ std::uint32_t PromptProduct::scale_place(const PromptItem& item,
                                                                    int half, int row) const {
  // Rows that there are not have the last one's, and are not stored.
  const int first = half * half_distance(),
            rows = output.gated ? first + output.columns : output.columns;
  row = min(first + item.column0 + row, rows - 1);
  if (by_block) row /= kFp8Block;
  return item.tile.expert * expert_scales + row * scale_stride;
}

// Panels begin at multiples of 1,024 bytes.
template <class T>
struct PromptStage {
  unsigned char weight[2][kHalfRows][kPanelBytes];
  unsigned char x[kTokens][kPanelBytes];
};
// Groups of a row apart, so that eight rows of one fill the banks once.
template <>
struct PromptStage<Mxfp4> {
  static constexpr int kGroups = kStepDepth<Mxfp4> / kMxGroup;
  unsigned char weight[2][kGroups][kHalfRows][kMxGroupBytes];
  unsigned char x[kTokens][kPanelBytes];
};
// Sums on their way out.
constexpr int kSumsBytes = kTokens * (kHalfRows + 8) * 2;
// A thread's, of the item that is copied; a thread's own, in shared memory because products take
// the registers.
struct alignas(16) PromptPlaces {
  std::uint32_t x[kTokens / 32], weight;  // of its rows, in units of 16 bytes
  int rows;                               // of the weights, from its first on
  int scale_row, few;
};
template <class T>
struct PromptStages {
  PromptStage<T> stage[kStages<T>];
  PromptPlaces places[kPromptThreads];
  float x_scale[kStages<T>][kIsFp8<T> ? kTokens : 1];

  // Where sums may be while `last` is the latest stage that was multiplied: in it, as nothing is
  // copied there before the next step's barrier.
  __device__ __forceinline__ void* room(int last) { return &stage[last]; }
};
template <>
struct PromptStages<Mxfp4> {
  PromptStage<Mxfp4> stage[kStages<Mxfp4>];
  PromptPlaces places[kPromptThreads];
  alignas(16) unsigned char sums[kSumsBytes];  // stages are too small

  __device__ __forceinline__ void* room(int) { return sums; }
};

template <class T>
__device__ __forceinline__ int next_stage(int stage) {
  return stage + 1 == kStages<T> ? 0 : stage + 1;
}

// Eight threads to a row; of MXFP4's weights two.
template <class T>
class PromptCopies {
 public:
  __device__ __forceinline__ PromptCopies(const PromptProduct& p, PromptStages<T>& stages,
                                          int items)
      : p_(p), stages_(stages), items_(items), index_(static_cast<int>(blockIdx.x)) {
    begin();
  }

  // Of the next step; nothing behind the last.
  __device__ __forceinline__ void copy_next(int to) {
    if (index_ < items_) {
      PromptStage<T>& stage = stages_.stage[to];
      const PromptPlaces places = stages_.places[threadIdx.x];
      copy_weights(stage, places);
      const std::size_t at = k_ * sizeof(PromptElement<T>);
      const int bytes = bytes_at(k_ + lane() * kOfLane);
      const int chunk = swizzled_chunk(row(), lane()) * 16;
#pragma unroll
      for (int i = 0; i < kTokens / kPassRows; ++i) {
        if (i == kFewTokens / kPassRows && places.few != 0) break;
        async_copy<16>(&stage.x[i * kPassRows + row()][chunk],
                       p_.x + std::size_t{places.x[i]} * 16 + at, bytes);
      }
      if constexpr (kIsFp8<T>) {
        const int token = static_cast<int>(threadIdx.x);
        const std::int64_t group = k_ / kStepDepth<T>;
        if (token < kTokens)
          async_copy<4>(&stages_.x_scale[to][token],
                        p_.x_scales + group * p_.x_rows + places.scale_row);
      }
      k_ += kStepDepth<T>;
      if (k_ >= p_.depth) {
        index_ += static_cast<int>(gridDim.x);
        begin();
      }
    }
    async_copy_commit();
  }

 private:
  static constexpr int kLanes = kPanelBytes / 16, kPassRows = kPromptThreads / kLanes;
  static constexpr int kOfLane = 16 / static_cast<int>(sizeof(PromptElement<T>));  // elements

  // Of the weights' rows.
  static constexpr int kWeightLanes = kIsMxfp4<T> ? 2 : kLanes,
                       kWeightRows = kPromptThreads / kWeightLanes;
  static constexpr int kOfWeightLane = kIsMxfp4<T> ? kMxGroup : kOfLane;

  __device__ __forceinline__ static int row() { return static_cast<int>(threadIdx.x) / kLanes; }
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % kLanes; }
  __device__ __forceinline__ static int weight_row() {
    return static_cast<int>(threadIdx.x) / kWeightLanes;
  }
  __device__ __forceinline__ static int weight_lane() {
    return static_cast<int>(threadIdx.x) % kWeightLanes;
  }
  __device__ __forceinline__ int bytes_at(int k) const { return k < p_.depth ? 16 : 0; }

  __device__ __forceinline__ void copy_weights(PromptStage<T>& stage, const PromptPlaces& places) {
    const std::size_t at = static_cast<std::size_t>(k_ / kOfWeightLane) * 16;
    const int bytes = bytes_at(k_ + weight_lane() * kOfWeightLane);
    const std::uint32_t row_bytes = static_cast<std::uint32_t>(p_.row_bytes);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const char* weight = p_.weight + std::size_t{places.weight} * 16 + at +
                           (half == 0 ? 0 : p_.half_distance() * p_.row_bytes);
      const int rows = half == 0 || p_.output.gated ? places.rows : places.rows - kHalfRows;
#pragma unroll
      for (int r = 0; r < kHalfRows; r += kWeightRows) {
        unsigned char* to;
        if constexpr (kIsMxfp4<T>) {
          to = stage.weight[half][weight_lane()][r + weight_row()];
        } else {
          to = &stage.weight[half][r + row()][swizzled_chunk(row(), lane()) * 16];
        }
        async_copy<16>(to, weight + r * row_bytes, r < rows ? bytes : 0);
      }
    }
  }
  // Tokens that there are not, are another: nobody asks for their sums.
  __device__ __forceinline__ int x_row(const ExpertTile& tile, int token) const {
    return p_.block.x_row(min(tile.begin + token, tile.end - 1));
  }
  __device__ __forceinline__ void begin() {
    k_ = 0;
    if (index_ >= items_) return;
    const PromptItem item(p_, index_);
    PromptPlaces places;
    places.few = item.tokens() <= kFewTokens ? 1 : 0;
    places.rows = p_.output.columns - item.column0 - weight_row();
    const std::int64_t weights =
        item.tile.expert * p_.expert_bytes + (item.column0 + weight_row()) * p_.row_bytes;
    places.weight = static_cast<std::uint32_t>(weights / 16) + weight_lane();
#pragma unroll
    for (int i = 0; i < kTokens / kPassRows; ++i) {
      const std::int64_t bytes = std::int64_t{x_row(item.tile, i * kPassRows + row())} * p_.x_bytes;
      places.x[i] = static_cast<std::uint32_t>(bytes / 16) + lane();
    }
    places.scale_row = kIsFp8<T> ? x_row(item.tile, static_cast<int>(threadIdx.x) % kTokens) : 0;
    stages_.places[threadIdx.x] = places;
  }

  const PromptProduct& p_;
  PromptStages<T>& stages_;
  int items_, index_, k_ = 0;
};

}  // namespace quire::cuda
