#pragma once
// x · Wᵀ on bf16 tiles. The product is made transposed: W's rows are a tile as they lie in the
// checkpoint, x is packed (pairs of K by rows of x) because it is small. An output is the sum over
// all of K in order in one tile cell, whatever rows share the tile: a row's bits do not depend on
// its company.
//
// Tiles is the instruction set: configure(columns of the first and second x tile), release(),
// zero<t>(), load<t>(data, stride in bytes), store<t>(data, stride), dot<c, a, b>(). Tests run this
// file on tiles in plain C++.

#include "cpu/kernels/isa.h"
#include "cpu/kernels/transpose.h"

namespace quire::cpu::QUIRE_CPU_ISA {

inline constexpr int kTileSide = 16;                  // rows of W, rows of x, pairs of K
inline constexpr int kTileDepth = 2 * kTileSide;      // elements of K
inline constexpr int kStrip = 2 * kTileSide;          // rows of x that share a pass over W
inline constexpr Index kFetchAhead = 8 * kTileDepth;  // elements of a row of W

template <class Tiles>
class AmxGemm {
 public:
  AmxGemm(const GemmArgs& args, std::uint32_t* packed)
      : args_(args), packed_(packed), depth_((args.k + kTileDepth - 1) / kTileDepth) {}

  void run(Index m_begin, Index m_end, Index n_begin, Index n_end) {
    for (Index m = m_begin; m < m_end; m += kStrip) {
      const auto rows = static_cast<int>(min_of(kStrip, m_end - m));
      const int first = rows < kTileSide ? rows : kTileSide, second = rows - first;
      pack(m, first, 0);
      if (second > 0) pack(m + kTileSide, second, 1);
      Tiles::configure(first, second > 0 ? second : 1);
      for (Index n = n_begin; n < n_end; n += 2 * kTileSide) {
        const auto columns = static_cast<int>(min_of(2 * kTileSide, n_end - n));
        multiply(n, columns, second > 0, m == m_begin);
        write(m, first, n, columns, 0);
        if (second > 0) write(m + kTileSide, second, n, columns, 1);
      }
    }
    Tiles::release();
  }

 private:
  // x tile `half`: for each pair of K the rows' pairs side by side, kTileSide cells apart.
  std::uint32_t* packed_tile(int half, Index step) const {
    return packed_ + (half * depth_ + step) * kTileSide * kTileSide;
  }

  void pack(Index m, int rows, int half) {
    const Bf16* const x = static_cast<const Bf16*>(args_.x) + m * args_.x_stride;
    for (Index step = 0; step < depth_; ++step) {
      const auto n = static_cast<int>(min_of(kTileDepth, args_.k - step * kTileDepth));
      std::uint32_t* const to = packed_tile(half, step);
      for (int r = 0; r < rows; ++r) {
        std::uint32_t pairs[kTileSide] = {};
        __builtin_memcpy(pairs, x + r * args_.x_stride + step * kTileDepth,
                         static_cast<unsigned>(n) * sizeof(Bf16));
        for (int i = 0; i < kTileSide; ++i) to[i * kTileSide + r] = pairs[i];
      }
    }
  }

  // C tiles 0 … 3: [W half][x half]; W tiles 4, 5; x tiles 6, 7.
  void multiply(Index n, int columns, bool two_strips, bool fetch) {
    Tiles::template zero<0>();
    Tiles::template zero<1>();
    Tiles::template zero<2>();
    Tiles::template zero<3>();
    const bool two_columns = columns > kTileSide;
    for (Index step = 0; step < depth_; ++step) {
      load_weights<4>(n, columns < kTileSide ? columns : kTileSide, step, fetch);
      if (two_columns) load_weights<5>(n + kTileSide, columns - kTileSide, step, fetch);
      Tiles::template load<6>(packed_tile(0, step), kTileSide * 4);
      Tiles::template dot<0, 4, 6>();
      if (two_columns) Tiles::template dot<2, 5, 6>();
      if (!two_strips) continue;
      Tiles::template load<7>(packed_tile(1, step), kTileSide * 4);
      Tiles::template dot<1, 4, 7>();
      if (two_columns) Tiles::template dot<3, 5, 7>();
    }
  }

  // Rows [n, n + rows) of W, K from step on; a tile that reaches over W's edge is a padded copy.
  template <int kTile>
  void load_weights(Index n, int rows, Index step, bool fetch) {
    const Bf16* const w =
        static_cast<const Bf16*>(args_.w) + n * args_.w_stride + step * kTileDepth;
    const auto depth = static_cast<int>(min_of(kTileDepth, args_.k - step * kTileDepth));
    if (rows == kTileSide && depth == kTileDepth) {
      Tiles::template load<kTile>(w, args_.w_stride * static_cast<Index>(sizeof(Bf16)));
      if (!fetch) return;
      for (int r = 0; r < kTileSide; ++r) {
        __builtin_prefetch(w + r * args_.w_stride + kFetchAhead, 0, 2);
      }
      return;
    }
    Bf16 edge[kTileSide][kTileDepth] = {};
    for (int r = 0; r < rows; ++r) {
      __builtin_memcpy(edge[r], w + r * args_.w_stride,
                       static_cast<unsigned>(depth) * sizeof(Bf16));
    }
    Tiles::template load<kTile>(edge, sizeof(edge[0]));
  }

  // Outputs of x tile `half`, both W halves.
  void write(Index m, int rows, Index n, int columns, int half) const {
    float cells[kTileSide][kTileSide] = {}, turned[kTileSide * kTileSide];
    const float* lines[kTileSide];
    for (int i = 0; i < kTileSide; ++i) lines[i] = cells[i];
    for (int part = 0; part * kTileSide < columns; ++part) {
      store_tile(2 * part + half, cells);
      transpose_rows<kTileSide>(lines, kTileSide, rows, turned);
      const int count = columns - part * kTileSide;
      write_rows(m, rows, n + part * kTileSide, count < kTileSide ? count : kTileSide, turned);
    }
  }

  static void store_tile(int tile, float (&cells)[kTileSide][kTileSide]) {
    switch (tile) {
      case 0:
        return Tiles::template store<0>(cells, sizeof(cells[0]));
      case 1:
        return Tiles::template store<1>(cells, sizeof(cells[0]));
      case 2:
        return Tiles::template store<2>(cells, sizeof(cells[0]));
      default:
        return Tiles::template store<3>(cells, sizeof(cells[0]));
    }
  }

  void write_rows(Index m, int rows, Index n, int columns, const float* turned) const {
    float bias[kTileSide] = {}, scale[kTileSide];
    for (int i = 0; i < columns; ++i) scale[i] = args_.scale == nullptr ? 1.f : args_.scale[n + i];
    if (args_.bias != nullptr) {
      with_float(args_.bias_type, [&]<class B>(Tag<B>) {
        for_lanes(columns, [&](Index i, int lanes) {
          store(bias + i, load(static_cast<const B*>(args_.bias) + n + i, lanes), lanes);
        });
      });
    }
    with_float(args_.out_type, [&]<class O>(Tag<O>) {
      for (int r = 0; r < rows; ++r) {
        O* const out = static_cast<O*>(args_.out) + (m + r) * args_.out_stride + n;
        for_lanes(columns, [&](Index i, int lanes) {
          store(out + i,
                load(turned + r * kTileSide + i, lanes) * load(scale + i, lanes) +
                    load(bias + i, lanes),
                lanes);
        });
      }
    });
  }

  const GemmArgs& args_;
  std::uint32_t* packed_;  // [2, depth, kTileSide pairs of K, kTileSide rows of x]
  Index depth_;
};

}  // namespace quire::cpu::QUIRE_CPU_ISA
