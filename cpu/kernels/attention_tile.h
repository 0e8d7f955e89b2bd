#pragma once
// One item of paged attention: up to kAttentionRows query rows of one KV head against one segment
// of positions. Included by attention.cpp only.

#include "cpu/kernels/gemm_tile.h"
#include "cpu/kernels/isa.h"

namespace quire::cpu::QUIRE_CPU_ISA {

// Vectors of values and rows that one pass over a tile's values accumulates.
#if defined(__AVX512F__)
inline constexpr int kValueVectors = 4, kValueRows = 4;
#else
inline constexpr int kValueVectors = 2, kValueRows = 4;
#endif

template <class K>
class AttentionTile {
 public:
  // scratch as attention_scratch_floats() says.
  AttentionTile(const PagedArgs& args, const AttentionItem& item, float* scratch)
      : args_(args), item_(item), rows_(item.row_end - item.row_begin), q_(scratch) {
    scores_ = q_ + kAttentionRows * args.head_dim;
    states_ = scores_ + kAttentionRows * kAttentionTile;
    const Index group = args.heads / args.kv_heads;
    const Index first = args.query_start[item.request];
    const Index length = args.query_start[item.request + 1] - first;
    const Index cached = args.seq_lens[item.request] - length;
    for (Index r = 0; r < rows_; ++r) {
      const Index query = (item.row_begin + r) / group;
      const Index head = item.kv_head * group + (item.row_begin + r) % group;
      end_[r] = cached + query + 1;
      begin_[r] = args.window > 0 ? max_of(0, end_[r] - args.window) : 0;
      copy_query(r, (first + query) * args.heads + head);
    }
  }

  float* states() const { return states_; }

  // state: per row maximum, sum, value_dim weighted values.
  void run_segment(Index segment, float* state, Index row_floats) {
    state_ = state;
    row_floats_ = row_floats;
    for (Index r = 0; r < rows_; ++r) {
      float* const s = state + r * row_floats;
      for (Index i = 0; i < row_floats; ++i) s[i] = 0.f;
      s[0] = -__builtin_inff();
    }
    const Index stop = min_of((segment + 1) * kAttentionSegment, end_[rows_ - 1]);
    for (Index t = segment * kAttentionSegment; t < stop; t += kAttentionTile) {
      if (t + kAttentionTile <= begin_[0]) continue;
      run_tile(max_of(t, begin_[0]), min_of(t + kAttentionTile, stop));
    }
  }

 private:
  void copy_query(Index r, Index token_head) {
    with_float(args_.q.type, [&]<class Q>(Tag<Q>) {
      const Q* const from = row<Q>(args_.q, token_head);
      float* const to = q_ + r * args_.head_dim;
      for_lanes(args_.head_dim, [&](Index i, int n) { store(to + i, load(from + i, n), n); });
    });
  }

  const K* at(const void* cache, const Index (&stride)[3], Index position) const {
    const Index block =
        args_.block_table[item_.request * args_.table_stride + position / args_.block_size];
    return static_cast<const K*>(cache) + block * stride[0] +
           position % args_.block_size * stride[1] + item_.kv_head * stride[2];
  }

  // Rows of an item are in order of position, so its first row begins first and its last ends last.
  void run_tile(Index begin, Index end) {
    for (Index p = begin; p < end;) {
      const Index run = min_of(end, (p / args_.block_size + 1) * args_.block_size) - p;
      score_run(at(args_.k_cache, args_.k_stride, p), p - begin, run);
      p += run;
    }
    for (Index r = 0; r < rows_; ++r) correction_[r] = softmax_row(r, begin, end);
    for (Index p = begin; p < end; ++p) {
      values_[p - begin] = at(args_.v_cache, args_.v_stride, p);
    }
    Index r = 0;
    for (; r + kValueRows <= rows_; r += kValueRows) add_values<kValueRows>(r, end - begin);
    for (; r < rows_; ++r) add_values<1>(r, end - begin);
  }

  // scores[:, column …] for positions that lie in one block.
  void score_run(const K* keys, Index column, Index count) {
    Index r = 0;
    for (; r + kTileRows <= rows_; r += kTileRows) score_strip<kTileRows>(r, keys, column, count);
    for (; r < rows_; ++r) score_strip<1>(r, keys, column, count);
  }

  template <int kRows>
  void score_strip(Index r, const K* keys, Index column, Index count) {
    constexpr int kColumns = kRows == 1 ? kVectorColumns : kTileColumns;
    Index c = 0;
    for (; c + kColumns <= count; c += kColumns) score_tile<kRows, kColumns>(r, keys, column, c);
    for (; c < count; ++c) score_tile<kRows, 1>(r, keys, column, c);
  }

  template <int kRows, int kColumns>
  void score_tile(Index r, const K* keys, Index column, Index c) {
    float out[kRows][kColumns];
    dot_tile<F32Dot<K>, kRows, kColumns>(q_ + r * args_.head_dim, args_.head_dim,
                                         keys + c * args_.k_stride[1], args_.k_stride[1],
                                         args_.head_dim, Ahead{kColumns, 0, kColumns}, out);
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j) {
        scores_[(r + i) * kAttentionTile + column + c + j] = out[i][j];
      }
    }
  }

  // Scores → weights in place; returns what the row's earlier sums are multiplied by.
  float softmax_row(Index r, Index begin, Index end) {
    float* const row_scores = scores_ + r * kAttentionTile - begin;
    const Index from = max_of(begin, begin_[r]), to = max_of(from, min_of(end, end_[r]));
    for (Index p = begin; p < min_of(from, end); ++p) row_scores[p] = 0.f;
    for (Index p = to; p < end; ++p) row_scores[p] = 0.f;
    if (from >= to) return 1.f;
    float* const x = row_scores + from;
    const Vec scale = splat(args_.scale);
    const Vec cap = splat(args_.soft_cap);
    for_lanes(to - from, [&](Index i, int n) {
      const Vec s = load(x + i, n) * scale;
      store(x + i, args_.soft_cap > 0.f ? cap * tanh(s / cap) : s, n);
    });
    float& maximum = state_[r * row_floats_];
    float& total = state_[r * row_floats_ + 1];
    const float tile_maximum = row_max(x, to - from);
    const float top = tile_maximum > maximum ? tile_maximum : maximum;
    const float correction = total == 0.f ? 0.f : exp_one(maximum - top);
    total = total * correction + row_exp_sum(x, to - from, top, 1.f);
    maximum = top;
    return correction;
  }

  // values[row] ← values[row] · correction + Σ_j weight[row, j] · v[j], in the order of j.
  template <int kRows>
  void add_values(Index r, Index count) {
    Index d = 0;
    for (; d + kValueVectors * kLanes <= args_.value_dim; d += kValueVectors * kLanes) {
      add_value_columns<kRows, kValueVectors>(r, d, kLanes, count);
    }
    for (; d < args_.value_dim; d += kLanes) {
      add_value_columns<kRows, 1>(r, d, static_cast<int>(min_of(kLanes, args_.value_dim - d)),
                                  count);
    }
  }

  // lanes: of the last vector; the others are whole.
  template <int kRows, int kVectors>
  void add_value_columns(Index r, Index d, int lanes, Index count) {
    Vec acc[kRows][kVectors];
    float* to[kRows];
    const float* weight[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      to[i] = state_ + (r + i) * row_floats_ + 2 + d;
      weight[i] = scores_ + (r + i) * kAttentionTile;
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        acc[i][j] = load(to[i] + j * kLanes, lanes) * splat(correction_[r + i]);
      }
    }
    for (Index p = 0; p < count; ++p) {
      const K* const v = values_[p] + d;
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        const Vec value = load(v + j * kLanes, lanes);
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) acc[i][j] = fma(splat(weight[i][p]), value, acc[i][j]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) store(to[i] + j * kLanes, acc[i][j], lanes);
    }
  }

  const PagedArgs& args_;
  const AttentionItem& item_;
  Index rows_;
  float* q_;       // [rows, head_dim]
  float* scores_;  // [rows, kAttentionTile]
  float* states_;  // two states of all rows
  float* state_ = nullptr;
  Index row_floats_ = 0;
  Index begin_[kAttentionRows], end_[kAttentionRows];  // positions that a row sees
  float correction_[kAttentionRows];
  const K* values_[kAttentionTile];
};

}  // namespace quire::cpu::QUIRE_CPU_ISA
