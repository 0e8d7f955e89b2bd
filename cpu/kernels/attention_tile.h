#pragma once
// One item of paged attention: up to kAttentionRows query rows of one KV head against one segment
// of positions, a tile of kAttentionTile positions at a time. Scores have positions in their lanes
// and are summed over the head dimension in order, by pairs where both sides are bf16 and the
// instruction set multiplies these; so neither the tile's other rows nor the position's place in it
// enter a result. Included by attention.cpp only.

#include "cpu/kernels/isa.h"
#include "cpu/kernels/transpose.h"

namespace quire::cpu::QUIRE_CPU_ISA {

// Registers that hold scores or values: rows × vectors of them.
#if defined(__AVX512F__)
inline constexpr int kBlockRows = 6, kBlockVectors = 4;
#else
inline constexpr int kBlockRows = 5, kBlockVectors = 2;
#endif

template <class T>
inline constexpr bool kIsBf16 = false;
template <>
inline constexpr bool kIsBf16<Bf16> = true;

template <class K>
class AttentionTile {
 public:
  // scratch as kernels.h says.
  AttentionTile(const PagedArgs& args, const AttentionItem& item, float* scratch)
      : args_(args),
        item_(item),
        rows_(item.row_end - item.row_begin),
        has_pairs_(kMayPair && args.q.type == Float::bf16),
        q_(scratch) {
    scores_ = q_ + kAttentionRows * args.head_dim;
    keys_ = scores_ + kAttentionRows * kAttentionTile;
    values_ = keys_ + kAttentionTile * args.head_dim;
    states_ = values_ + kAttentionTile * args.value_dim;
    const Index group = args.heads / args.kv_heads;
    const Index first = args.query_start[item.request];
    const Index length = args.query_start[item.request + 1] - first;
    const Index cached = args.seq_lens[item.request] - length;
    for (Index r = 0; r < rows_; ++r) {
      const Index query = (item.row_begin + r) / group;
      end_[r] = cached + query + 1;
      begin_[r] = args.window > 0 ? max_of(0, end_[r] - args.window) : 0;
      for (Index h = 0; h < heads(); ++h) {
        const Index head = (item.head_begin + h) * group + (item.row_begin + r) % group;
        copy_query(h * rows_ + r, (first + query) * args.heads + head);
      }
    }
  }

  float* states() const { return states_; }

  // state: per row of every head maximum, sum, value_dim weighted values.
  void run_segment(Index segment, float* state, Index row_floats) {
    row_floats_ = row_floats;
    for (Index r = 0; r < heads() * rows_; ++r) {
      float* const s = state + r * row_floats;
      for (Index i = 0; i < row_floats; ++i) s[i] = 0.f;
      s[0] = -__builtin_inff();
    }
    // Rows are in order of position: the first begins first and the last ends last.
    const Index begin = max_of(segment * kAttentionSegment, begin_[0]);
    const Index end = min_of((segment + 1) * kAttentionSegment, end_[rows_ - 1]);
    if (begin >= end) return;
    find_rows(*next_, 0, begin, tile_end(begin, end));
    for (Index p = begin; p < end;) {
      const Index stop = tile_end(p, end);
      for (Index h = 0; h < heads(); ++h) {
        CacheRows* const now = next_;
        next_ = now_;
        now_ = now;
        if (h + 1 < heads()) {
          find_rows(*next_, h + 1, p, stop);
        } else {
          find_rows(*next_, 0, stop, tile_end(stop, end_[rows_ - 1]));
        }
        state_ = state + h * rows_ * row_floats;
        run_tile(h, p, stop);
      }
      p = stop;
    }
  }

 private:
#if defined(__AVX512BF16__)
  static constexpr bool kMayPair = kIsBf16<K>;
#else
  static constexpr bool kMayPair = false;
#endif

  void copy_query(Index r, Index token_head) {
    if (has_pairs_) {
      float* const to = q_ + r * args_.head_dim;
      to[(args_.head_dim - 1) / 2] = 0.f;  // half of it, where the number is odd
      __builtin_memcpy(to, row<Bf16>(args_.q, token_head),
                       static_cast<std::size_t>(args_.head_dim) * sizeof(Bf16));
      return;
    }
    with_float(args_.q.type, [&]<class Q>(Tag<Q>) {
      const Q* const from = row<Q>(args_.q, token_head);
      float* const to = q_ + r * args_.head_dim;
      for_lanes(args_.head_dim, [&](Index i, int n) { store(to + i, load(from + i, n), n); });
    });
  }

  Index heads() const { return item_.head_end - item_.head_begin; }

  // f(position, key row, value row) of a KV head for positions [begin, end).
  template <class F>
  void for_positions(Index head, Index begin, Index end, F&& f) const {
    const std::int32_t* const table = args_.block_table + item_.request * args_.table_stride;
    for (Index p = begin; p < end;) {
      const Index block = p / args_.block_size, stop = min_of(end, (block + 1) * args_.block_size);
      const Index slot = p - block * args_.block_size;
      const auto at = [&](const void* cache, const Index(&stride)[3]) {
        return static_cast<const K*>(cache) + table[block] * stride[0] + slot * stride[1] +
               head * stride[2];
      };
      const K* key = at(args_.k_cache, args_.k_stride);
      const K* value = at(args_.v_cache, args_.v_stride);
      for (; p < stop; ++p, key += args_.k_stride[1], value += args_.v_stride[1]) f(p, key, value);
    }
  }

  // Where the keys and values of a tile's positions begin.
  struct CacheRows {
    Index count = 0;
    const K *keys[kAttentionTile], *values[kAttentionTile];
  };

  static Index tile_end(Index position, Index end) {
    return min_of(end, (position / kAttentionTile + 1) * kAttentionTile);
  }

  void find_rows(CacheRows& rows, Index h, Index begin, Index end) const {
    for_positions(item_.head_begin + h, begin, end, [&](Index p, const K* key, const K* value) {
      rows.keys[p - begin] = key;
      rows.values[p - begin] = value;
    });
    rows.count = max_of(0, end - begin);
  }

  // Rows i, i + step … of the next tile into the L2 cache: a few at a time while this one is
  // computed, so that memory is read all the time.
  static inline __attribute__((always_inline)) void fetch(const K* const* rows, Index count,
                                                          Index width, Index i, Index step) {
    constexpr Index kLine = 64 / static_cast<Index>(sizeof(K));
    for (; i < count; i += step) {
      for (Index d = 0; d < width; d += kLine) __builtin_prefetch(rows[i] + d, 0, 2);
    }
  }

  // Positions [begin, end) of one tile for one of the item's heads.
  void run_tile(Index h, Index begin, Index end) {
    const bool copy_values = rows_ > kBlockRows;
    for (Index p = 0; copy_values && p < end - begin; ++p) {
      float* const to = values_ + p * args_.value_dim;
      for_lanes(args_.value_dim,
                [&](Index i, int n) { store(to + i, load(now_->values[p] + i, n), n); });
    }
    const Index count = end - begin;
    score_tile(h, count);
    for (Index r = 0; r < rows_; ++r) correction_[r] = softmax_row(r, begin, end);
    for_blocks([&]<int kRows>(Tag<Rows_<kRows>>, Index r) {
      if (copy_values) {
        add_values<kRows>(r, count, [&](Index p) { return values_ + p * args_.value_dim; });
      } else {
        add_values<kRows>(r, count, [&](Index p) { return now_->values[p]; });
      }
    });
  }

  void score_tile(Index h, Index count) {
    if constexpr (kMayPair) {
      if (has_pairs_) {
        transpose_pairs<kAttentionTile>(now_->keys, count, args_.head_dim, keys_);
        return for_blocks([&]<int kRows>(Tag<Rows_<kRows>>, Index r) {
          score_rows<kRows, true>(h * rows_ + r, r, count);
        });
      }
    }
    transpose_rows<kAttentionTile>(now_->keys, count, args_.head_dim, keys_);
    for_blocks([&]<int kRows>(Tag<Rows_<kRows>>, Index r) {
      score_rows<kRows, false>(h * rows_ + r, r, count);
    });
  }

  template <int kRows>
  struct Rows_ {};

  // All rows in blocks of kBlockRows, then the rest as one smaller block.
  template <class F>
  void for_blocks(F&& f) const {
    Index r = 0;
    for (; r + kBlockRows <= rows_; r += kBlockRows) f(Tag<Rows_<kBlockRows>>{}, r);
    for_rest<kBlockRows - 1>(r, f);
  }
  template <int kRows, class F>
  void for_rest(Index r, F&& f) const {
    if constexpr (kRows > 0) {
      if (rows_ - r == kRows) return f(Tag<Rows_<kRows>>{}, r);
      for_rest<kRows - 1>(r, f);
    }
  }

  // Of pairs, both products of each lane.
  template <bool kPairs>
  static Vec add_product(Vec acc, Vec q, Vec key) {
#if defined(__AVX512BF16__)
    if constexpr (kPairs) {
      return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(q), reinterpret_cast<__m512bh>(key));
    }
#endif
    return fma(q, key, acc);
  }

  // scores[row, position] = Σ_d q[row, d] · keys[d, position], in the order of d.
  template <int kRows, bool kPairs>
  void score_rows(Index q_row, Index r, Index count) {
    const float* const q = q_ + q_row * args_.head_dim;
    const Index cells = kPairs ? (args_.head_dim + 1) / 2 : args_.head_dim;
    for (Index p = 0; p < count; p += kBlockVectors * kLanes) {
      Vec acc[kRows][kBlockVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
        for (int j = 0; j < kBlockVectors; ++j) acc[i][j] = zero();
      }
      const Index to_fetch = r == 0 && p == 0 ? next_->count : 0;
      for (Index d = 0; d < cells; ++d) {
        fetch(next_->keys, to_fetch, args_.head_dim, d, cells);
        Vec key[kBlockVectors];
#pragma GCC unroll 8
        for (int j = 0; j < kBlockVectors; ++j) {
          key[j] = load(keys_ + d * kAttentionTile + p + j * kLanes);
        }
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
          const Vec x = splat(q[i * args_.head_dim + d]);
#pragma GCC unroll 8
          for (int j = 0; j < kBlockVectors; ++j)
            acc[i][j] = add_product<kPairs>(acc[i][j], x, key[j]);
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
        for (int j = 0; j < kBlockVectors; ++j) {
          store(scores_ + (r + i) * kAttentionTile + p + j * kLanes, acc[i][j]);
        }
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

  // values[row] ← values[row] · correction + Σ_p weight[row, p] · v[p], in the order of p.
  template <int kRows, class V>
  void add_values(Index r, Index count, V&& value_row) {
    Index d = 0;
    for (; d + kBlockVectors * kLanes <= args_.value_dim; d += kBlockVectors * kLanes) {
      add_columns<kRows, kBlockVectors>(r, d, kLanes, count, value_row);
    }
    for (; d < args_.value_dim; d += kLanes) {
      const auto lanes = static_cast<int>(min_of(kLanes, args_.value_dim - d));
      add_columns<kRows, 1>(r, d, lanes, count, value_row);
    }
  }

  // lanes: of the last vector; the others are whole.
  template <int kRows, int kVectors, class V>
  void add_columns(Index r, Index d, int lanes, Index count, V&& value_row) {
    Vec acc[kRows][kVectors];
    float* const to = state_ + r * row_floats_ + 2 + d;
    const float* const weights = scores_ + r * kAttentionTile;
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        acc[i][j] = load(to + i * row_floats_ + j * kLanes, lanes) * splat(correction_[r + i]);
      }
    }
    const Index to_fetch = r == 0 && d == 0 ? next_->count : 0;
    for (Index p = 0; p < count; ++p) {
      fetch(next_->values, to_fetch, args_.value_dim, p, count);
      const auto* const v = value_row(p) + d;
      Vec value[kVectors];
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) value[j] = load(v + j * kLanes, lanes);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const Vec weight = splat(weights[i * kAttentionTile + p]);
#pragma GCC unroll 8
        for (int j = 0; j < kVectors; ++j) acc[i][j] = fma(weight, value[j], acc[i][j]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        store(to + i * row_floats_ + j * kLanes, acc[i][j], lanes);
      }
    }
  }

  const PagedArgs& args_;
  const AttentionItem& item_;
  Index rows_;              // of each head
  bool has_pairs_;          // two bf16 a cell, in q_ and keys_
  float* q_;                // [heads, rows, head_dim]
  float* scores_;           // [rows, kAttentionTile], of one head
  float* keys_;             // [head_dim, kAttentionTile]
  float* values_;           // [kAttentionTile, value_dim]
  float* states_;           // two states of all heads' rows
  float* state_ = nullptr;  // of one head
  Index row_floats_ = 0;
  Index begin_[kAttentionRows], end_[kAttentionRows];  // positions that a row sees
  float correction_[kAttentionRows];
  CacheRows cache_rows_[2];
  CacheRows *now_ = cache_rows_, *next_ = cache_rows_ + 1;
};

}  // namespace quire::cpu::QUIRE_CPU_ISA
