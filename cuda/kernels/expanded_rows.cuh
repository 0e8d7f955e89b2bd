#pragma once
// What the kernels of expanded latent attention are given, and what one of their blocks sees of it.
// Positions are counted from the first of a piece.

#include "cuda/device/softmax_state.cuh"
#include "cuda/device/typed_mma.cuh"
#include "cuda/device/vec.cuh"
#include "cuda/kernels/expanded_attention.h"

namespace quire::cuda {

struct ExpandedPiece {
  int request, begin, count, slot;
  int first_item, parts;  // a unit of rows has so many
};

// A block's work: a unit of a piece's rows, and a part of the tiles that it sees.
struct ExpandedItem {
  ExpandedPiece piece;
  int unit, part, parts;
  int place;  // of the unit's first part, among all items
};

template <class T>
struct ExpandedArgs {
  static constexpr int group = 1;            // query heads of a key head
  static constexpr float to_exponent = 0.f;  // no soft cap

  View<T, 3> out;
  View<const T, 3> q;
  const T *rows, *heads;
  const std::int32_t *query_start, *seq_lens;
  float* states;
  float* partials =
      nullptr;             // [heads, items, rows of a unit, kExpandedState] of units that are cut
  int* arrived = nullptr;  // [heads, items]: a unit's parts; zeros between launches
  int latent, num_heads, num_tokens;  // of a latent; heads; of states
  int items = 0, num_pieces = 0;
  float scale, value_scale;
  float to_log2 = 0.f;  // what scores are multiplied by for logarithms to base 2
  ExpandedPiece pieces[kMostPieces] = {};

  explicit ExpandedArgs(const ExpandedRound& r)
      : out(device_view<T, 3>(r.out)),
        q(device_view<const T, 3>(r.q)),
        rows(static_cast<const T*>(r.rows.data())),
        heads(static_cast<const T*>(r.heads.data())),
        query_start(static_cast<const std::int32_t*>(r.query_start.data())),
        seq_lens(static_cast<const std::int32_t*>(r.seq_lens.data())),
        states(static_cast<float*>(r.states.data())),
        latent(static_cast<int>(r.rows.extent(1)) - kExpandedRope),
        num_heads(static_cast<int>(r.heads.extent(1))),
        num_tokens(static_cast<int>(r.states.extent(1))),
        scale(r.scale),
        value_scale(r.value_scale) {}

  // Units of so many rows that see any of the piece, as the host knows them: of requests with
  // drafts that do not hold there are fewer.
  static int units_of(const LatentPiece& piece, int unit_rows) {
    const int hidden = std::max(0, piece.begin - piece.prompt.num_cached);
    return (piece.prompt.num_tokens - hidden + unit_rows - 1) / unit_rows;
  }
  // parts_of(units, positions)
  template <class PartsOf>
  void add_pieces(std::span<const LatentPiece> all, int unit_rows, const PartsOf& parts_of) {
    for (const LatentPiece& piece : all) {
      const int units = units_of(piece, unit_rows), count = piece.end - piece.begin;
      const int parts = parts_of(units, count);
      pieces[num_pieces++] = {piece.prompt.request, piece.begin, count, piece.slot, items, parts};
      items += units * parts;
    }
  }

  // Units that see most come first of a piece's.
  __device__ __forceinline__ ExpandedItem item(int index) const {
    int of = 0;
    while (of + 1 < num_pieces && pieces[of + 1].first_item <= index) ++of;
    const ExpandedPiece piece = pieces[of];
    const int end = of + 1 < num_pieces ? pieces[of + 1].first_item : items;
    const int units = (end - piece.first_item) / piece.parts, at = index - piece.first_item,
              unit = at / piece.parts;
    return {piece, units - 1 - unit, at - unit * piece.parts, piece.parts,
            piece.first_item + unit * piece.parts};
  }
  __device__ __forceinline__ float* state_of(int head, int row) const {
    return states + (std::int64_t{head} * num_tokens + row) * kExpandedState;
  }
  __device__ __forceinline__ int seen_from(int) const { return 0; }
};

// The new tokens that see any of a piece's positions.
struct PieceRows {
  int first_token, num_tokens, num_rows, seq_len;
  int first_row;  // the first of them, of the request's new tokens
  int count;      // positions of the piece
  bool goes_on;   // there were pieces before

  template <class T>
  __device__ __forceinline__ PieceRows(const ExpandedArgs<T>& a, const ExpandedPiece& piece) {
    const int start = a.query_start[piece.request], all = a.query_start[piece.request + 1] - start;
    seq_len = a.seq_lens[piece.request] - piece.begin;
    first_row = ::max(0, all - seq_len);
    first_token = start + first_row;
    num_tokens = num_rows = all - first_row;
    count = piece.count;
    goes_on = piece.begin > 0;
  }
  __device__ __forceinline__ int position(int row) const {
    return seq_len - num_tokens + ::min(row, num_rows - 1);
  }
  __device__ __forceinline__ int seen_to(int position) const { return ::min(position, count - 1); }
  // Whether pieces to come have more for the row.
  __device__ __forceinline__ bool is_open(int row) const { return position(row) >= count; }
};

}  // namespace quire::cuda
