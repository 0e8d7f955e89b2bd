#pragma once
// The dot-product tile that every matrix product here is made of: kRows × kColumns outputs, lanes
// along K, one register per output, all of K in order. So the sum behind an output is added up in
// one order whatever the tile's shape and the batch: a row's result does not depend on its company,
// and weights stay row-major as the checkpoint has them.
//
// Policy: X, W (element types), kStep (elements of K per turn), Acc,
//   static Operand<W or X> load_w(p), load_w(p, n), load_x(…); static Acc mul_add(Acc, w, x).

#include "cpu/kernels/vec.h"

namespace quire::cpu::QUIRE_CPU_ISA {

// Which of a tile's rows of W are fetched into the L2 cache meanwhile, some elements further on.
struct Ahead {
  std::int64_t elements = 0;
  int begin = 0, end = 0;
};

// How a call's K is a piece of the whole one, and where a tile's registers wait between the pieces.
struct Piece {
  float* carry = nullptr;
  bool first = true, last = true;
};

// Sums go to out after the last piece of K, else wait in the carry.
template <class Policy, int kRows, int kColumns>
inline __attribute__((always_inline)) void dot_tile(const typename Policy::X* x,
                                                    std::int64_t x_stride,
                                                    const typename Policy::W* w,
                                                    std::int64_t w_stride, std::int64_t k,
                                                    const Piece& piece, Ahead ahead, float* out,
                                                    std::int64_t out_stride) {
  Vec acc[kRows][kColumns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      acc[r][c] = piece.first ? zero() : load(piece.carry + (r * kColumns + c) * kLanes);
    }
  }
  const auto turn = [&](std::int64_t i, auto... n) __attribute__((always_inline)) {
    typename Policy::Operand ws[kColumns];
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) ws[c] = Policy::load(w + c * w_stride + i, n...);
    for (int c = ahead.begin; c < ahead.end; ++c) {
      __builtin_prefetch(w + c * w_stride + i + ahead.elements, 0, 2);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto xs = Policy::load(x + r * x_stride + i, n...);
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) acc[r][c] = Policy::mul_add(acc[r][c], ws[c], xs);
    }
  };
  std::int64_t i = 0;
  for (; i + Policy::kStep <= k; i += Policy::kStep) turn(i);
  if (i < k) turn(i, static_cast<int>(k - i));
  if (piece.last) return store_sums<kRows, kColumns>(&acc[0][0], out, out_stride);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) store(piece.carry + (r * kColumns + c) * kLanes, acc[r][c]);
  }
}

template <class T>
struct F32Dot {
  using X = float;
  using W = T;
  using Operand = Vec;
  static constexpr int kStep = kLanes;
  template <class P>
  static Vec load(const P* p) {
    return QUIRE_CPU_ISA::load(p);
  }
  template <class P>
  static Vec load(const P* p, int n) {
    return load_some(p, n);
  }
  static Vec mul_add(Vec acc, Vec w, Vec x) { return fma(w, x, acc); }
};

// The largest tile that the registers hold, and the columns of one row alone (enough loads in
// flight).
#if defined(__AVX512F__)
inline constexpr int kTileRows = 5, kTileColumns = 5, kVectorColumns = 8;
#else
inline constexpr int kTileRows = 3, kTileColumns = 3, kVectorColumns = 4;
#endif

inline constexpr std::int64_t kBlockBytes = 256 << 10;  // of W in the L2 cache

inline constexpr std::int64_t kStripColumns = 120;  // whose sums are written together

struct StripSums {
  static constexpr std::int64_t kStride = kStripColumns + 8;
  alignas(64) float at[kTileRows][kStride];
};

template <class Policy, int kRows, int kColumns>
void gemm_tile(const GemmArgs& args, std::int64_t m, std::int64_t n, const Piece& piece,
               Ahead ahead, float* out) {
  using X = typename Policy::X;
  using W = typename Policy::W;
  dot_tile<Policy, kRows, kColumns>(static_cast<const X*>(args.x) + m * args.x_stride,
                                    args.x_stride,
                                    static_cast<const W*>(args.w) + n * args.w_stride,
                                    args.w_stride, args.k, piece, ahead, out, StripSums::kStride);
}

// out = sums · scale + bias, of rows from m and columns [n, n + columns) on.
template <class O>
void write_sums(const GemmArgs& args, const StripSums& sums, std::int64_t m, std::int64_t rows,
                std::int64_t n, std::int64_t columns) {
  for_lanes(columns, [&](std::int64_t i, int lanes) {
    const Vec scale = args.scale == nullptr ? splat(1.f) : load(args.scale + n + i, lanes);
    Vec bias = zero();
    if (args.bias != nullptr) {
      with_float(args.bias_type, [&]<class B>(Tag<B>) {
        bias = load(static_cast<const B*>(args.bias) + n + i, lanes);
      });
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      O* const to = static_cast<O*>(args.out) + (m + r) * args.out_stride + n + i;
      store(to, load(sums.at[r] + i, lanes) * scale + bias, lanes);
    }
  });
}

template <class Policy, int kRows>
void gemm_strip(const GemmArgs& args, std::int64_t m, std::int64_t n_begin, std::int64_t n_end,
                Piece piece, Ahead ahead) {
  constexpr int kColumns = kRows == 1 ? kVectorColumns : kTileColumns;
  static_assert(kStripColumns % kColumns == 0);
  float* const carry = piece.carry;
  const auto carry_of = [&](std::int64_t n) {
    return carry == nullptr ? nullptr : carry + (n - n_begin) * kRows * kLanes;
  };
  StripSums sums;
  for (std::int64_t from = n_begin; from < n_end; from += kStripColumns) {
    const std::int64_t to = min_of(n_end, from + kStripColumns);
    std::int64_t n = from;
    for (; n + kColumns <= to; n += kColumns) {
      piece.carry = carry_of(n);
      gemm_tile<Policy, kRows, kColumns>(args, m, n, piece, ahead, sums.at[0] + (n - from));
    }
    for (; n < to; ++n) {
      piece.carry = carry_of(n);
      gemm_tile<Policy, kRows, 1>(args, m, n, piece, ahead, sums.at[0] + (n - from));
    }
    if (!piece.last) continue;
    with_float(args.out_type,
               [&]<class O>(Tag<O>) { write_sums<O>(args, sums, m, kRows, from, to - from); });
  }
}

template <class Policy, int kRows = kTileRows>
void gemm_strip_of(std::int64_t rows, const GemmArgs& args, std::int64_t m, std::int64_t n_begin,
                   std::int64_t n_end, const Piece& piece, Ahead ahead) {
  if (rows == kRows) {
    return gemm_strip<Policy, kRows>(args, m, n_begin, n_end, piece, ahead);
  }
  if constexpr (kRows > 1) {
    gemm_strip_of<Policy, kRows - 1>(rows, args, m, n_begin, n_end, piece, ahead);
  }
}

// Strip s of strips fetches its share of the columns of a tile.
inline Ahead share_of(std::int64_t s, std::int64_t strips, std::int64_t columns,
                      std::int64_t elements) {
  const std::int64_t share = max_of(1, columns / strips);
  const std::int64_t end = s + 1 == strips ? columns : min_of(columns, (s + 1) * share);
  return {elements, static_cast<int>(min_of(columns, s * share)), static_cast<int>(end)};
}

// Weights go by in blocks that stay in the L2 cache while all rows of x pass them. Each strip of
// rows fetches its share of the next block, so that few rows wait for memory and multiply at once.
template <class Policy>
void gemm_whole_depth(const GemmArgs& args, std::int64_t m_begin, std::int64_t m_end,
                      std::int64_t n_begin, std::int64_t n_end) {
  const auto row_bytes = args.k * static_cast<std::int64_t>(sizeof(typename Policy::W));
  const std::int64_t rows = m_end - m_begin;
  const std::int64_t width = rows == 1 ? kVectorColumns : kTileColumns;
  const std::int64_t columns = max_of(1, kBlockBytes / max_of(row_bytes * width, 1)) * width;
  const std::int64_t strips = (rows + kTileRows - 1) / kTileRows;
  for (std::int64_t n = n_begin; n < n_end; n += columns) {
    for (std::int64_t s = 0; s < strips; ++s) {
      const std::int64_t begin = m_begin + rows * s / strips;
      const std::int64_t end = m_begin + rows * (s + 1) / strips;
      const Ahead ahead = share_of(s, strips, width, columns * args.w_stride);
      gemm_strip_of<Policy>(end - begin, args, begin, n, min_of(n + columns, n_end), {}, ahead);
    }
  }
}

// Long K by pieces, so that a strip of x stays in the L1 cache; registers wait in scratch
// meanwhile. x is copied there too: rows whose distance is a power of two would share few sets of a
// cache.
template <class Policy>
class DeepGemm {
 public:
  using X = typename Policy::X;
  using W = typename Policy::W;
  static constexpr std::int64_t kPiece = kDeepBytes / static_cast<std::int64_t>(sizeof(X));
  static constexpr std::int64_t kStride = kPiece + 64 / static_cast<std::int64_t>(sizeof(X));

  static bool pays(std::int64_t rows, std::int64_t k) { return rows > kTileRows && k > kPiece; }

  DeepGemm(const GemmArgs& args, void* scratch)
      : args_(args),
        sums_(static_cast<float*>(scratch)),
        x_(reinterpret_cast<X*>(sums_ + kDeepRows * kDeepColumns * 16)) {}

  void run(std::int64_t m_begin, std::int64_t m_end, std::int64_t n_begin, std::int64_t n_end) {
    for (std::int64_t m = m_begin; m < m_end; m += kDeepRows) {
      const std::int64_t rows = min_of(kDeepRows, m_end - m);
      for (std::int64_t k = 0; k < args_.k; k += kPiece) copy_piece(m, rows, k);
      for (std::int64_t n = n_begin; n < n_end; n += kDeepColumns) {
        run_block(m, rows, n, min_of(kDeepColumns, n_end - n));
      }
    }
  }

 private:
  X* piece_of_x(std::int64_t k) const { return x_ + k / kPiece * kDeepRows * kStride; }

  void copy_piece(std::int64_t m, std::int64_t rows, std::int64_t k) {
    const std::int64_t count = min_of(kPiece, args_.k - k);
    for (std::int64_t r = 0; r < rows; ++r) {
      __builtin_memcpy(piece_of_x(k) + r * kStride,
                       static_cast<const X*>(args_.x) + (m + r) * args_.x_stride + k,
                       static_cast<unsigned long>(count) * sizeof(X));
    }
  }

  void run_block(std::int64_t m, std::int64_t rows, std::int64_t n, std::int64_t columns) {
    GemmArgs part = args_;
    part.x_stride = kStride;
    place_output(part, m, n);
    const std::int64_t strips = (rows + kTileRows - 1) / kTileRows;
    for (std::int64_t k = 0; k < args_.k; k += kPiece) {
      part.k = min_of(kPiece, args_.k - k);
      part.x = piece_of_x(k);
      part.w = static_cast<const W*>(args_.w) + n * args_.w_stride + k;
      for (std::int64_t s = 0; s < strips; ++s) {
        const std::int64_t begin = rows * s / strips, end = rows * (s + 1) / strips;
        const Piece piece{sums_ + begin * kDeepColumns * kLanes, k == 0, k + kPiece >= args_.k};
        const Ahead ahead = share_of(s, strips, kTileColumns,
                                     piece.last ? kDeepColumns * args_.w_stride - k : kPiece);
        gemm_strip_of<Policy>(end - begin, part, begin, 0, columns, piece, ahead);
      }
    }
  }

  // The block's first output, scale and bias.
  void place_output(GemmArgs& part, std::int64_t m, std::int64_t n) const {
    if (args_.scale != nullptr) part.scale = args_.scale + n;
    with_float(args_.out_type, [&]<class O>(Tag<O>) {
      part.out = static_cast<O*>(args_.out) + m * args_.out_stride + n;
    });
    if (args_.bias == nullptr) return;
    with_float(args_.bias_type,
               [&]<class B>(Tag<B>) { part.bias = static_cast<const B*>(args_.bias) + n; });
  }

  const GemmArgs& args_;
  float* sums_;  // [rows, columns] registers
  X* x_;         // [pieces of K, rows, kStride]
};

template <class Policy>
void gemm_blocks(const GemmArgs& args, std::int64_t m_begin, std::int64_t m_end,
                 std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  if (DeepGemm<Policy>::pays(m_end - m_begin, args.k)) {
    DeepGemm<Policy>(args, scratch).run(m_begin, m_end, n_begin, n_end);
  } else {
    gemm_whole_depth<Policy>(args, m_begin, m_end, n_begin, n_end);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
