#pragma once
// What an expert product of a prompt copies to shared memory: a block's work is items, 128 tokens
// of an expert with 256 rows of its weights, of which a stage has 128 bytes of K. Copies run ahead
// of the products from one item into the next.

#include "cuda/device/async_copy.cuh"
#include "cuda/device/expert_rows.cuh"
#include "cuda/device/warpgroup.cuh"

namespace quire::cuda {

constexpr int kPromptGroups = 2, kGroupThreads = 128,
              kPromptThreads = kPromptGroups * kGroupThreads;
constexpr int kTokens = kPromptTileTokens, kFewTokens = kTokens / 2;
constexpr int kHalfRows = 128;  // gated: the gate's rows and their partners; else neighbours
constexpr int kStages = 4;
constexpr int kPanelBytes = 128;  // of K, in a stage

template <class T>
constexpr bool kIsFp8 = std::is_same_v<T, __nv_fp8_e4m3>;
template <class T>
constexpr int kStepDepth = kPanelBytes / static_cast<int>(sizeof(T));  // elements of K

struct PromptItem;

struct PromptProduct {
  ExpertBlock block;
  ExpertOutput output;
  const char *x, *weight;
  std::int64_t x_bytes, row_bytes, expert_bytes;  // of a row, of a row, of an expert
  int depth, column_tiles;
  const float *x_scales, *scales;  // of fp8; else null
  std::uint32_t scale_stride, expert_scales;
  int x_rows;
  bool by_block;

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
struct PromptStage {
  unsigned char weight[2][kHalfRows][kPanelBytes];
  unsigned char x[kTokens][kPanelBytes];
};
// A thread's, of the item that is copied; a thread's own, in shared memory because products take
// the registers.
struct alignas(16) PromptPlaces {
  std::uint32_t x[kTokens / 32], weight;  // of its rows, in units of 16 bytes
  int rows;                               // of the weights, from its first on
  int scale_row, few;
};
template <class T>
struct PromptStages {
  PromptStage stage[kStages];
  PromptPlaces places[kPromptThreads];
  float x_scale[kStages][kIsFp8<T> ? kTokens : 1];
};

__device__ __forceinline__ int next_stage(int stage) { return (stage + 1) % kStages; }

// Eight threads to a row.
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
      PromptStage& stage = stages_.stage[to];
      const PromptPlaces places = stages_.places[threadIdx.x];
      const std::size_t at = k_ * sizeof(T);
      const int bytes = k_ + lane() * kOfLane < p_.depth ? 16 : 0;
      const int chunk = swizzled_chunk(row(), lane()) * 16;
      const std::uint32_t row_bytes = static_cast<std::uint32_t>(p_.row_bytes);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const char* weight = p_.weight + std::size_t{places.weight} * 16 + at +
                             (half == 0 ? 0 : p_.half_distance() * p_.row_bytes);
        const int rows = half == 0 || p_.output.gated ? places.rows : places.rows - kHalfRows;
#pragma unroll
        for (int r = 0; r < kHalfRows; r += kPassRows) {
          async_copy<16>(&stage.weight[half][r + row()][chunk], weight + r * row_bytes,
                         r < rows ? bytes : 0);
        }
      }
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
  static constexpr int kOfLane = 16 / static_cast<int>(sizeof(T));  // elements

  __device__ __forceinline__ static int row() { return static_cast<int>(threadIdx.x) / kLanes; }
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % kLanes; }
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
    places.rows = p_.output.columns - item.column0 - row();
    const std::int64_t weights =
        item.tile.expert * p_.expert_bytes + (item.column0 + row()) * p_.row_bytes;
    places.weight = static_cast<std::uint32_t>(weights / 16) + lane();
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
