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

// Which of a tile's rows of W, distance rows further on, are fetched into the L2 cache meanwhile.
struct Ahead {
  std::int64_t distance = 0;
  int begin = 0, end = 0;
};

template <class Policy, int kRows, int kColumns>
inline __attribute__((always_inline)) void dot_tile(const typename Policy::X* x,
                                                    std::int64_t x_stride,
                                                    const typename Policy::W* w,
                                                    std::int64_t w_stride, std::int64_t k,
                                                    Ahead ahead, float (&out)[kRows][kColumns]) {
  Vec acc[kRows][kColumns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) acc[r][c] = zero();
  }
  const auto turn = [&](std::int64_t i, auto... n) __attribute__((always_inline)) {
    typename Policy::Operand ws[kColumns];
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) ws[c] = Policy::load(w + c * w_stride + i, n...);
    for (int c = ahead.begin; c < ahead.end; ++c) {
      __builtin_prefetch(w + (c + ahead.distance) * w_stride + i, 0, 2);
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
  sums<kRows * kColumns>(&acc[0][0], &out[0][0]);
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

template <class Policy, int kRows, int kColumns>
void gemm_tile(const GemmArgs& args, std::int64_t m, std::int64_t n, Ahead ahead) {
  static_assert(kColumns <= kLanes);
  using X = typename Policy::X;
  using W = typename Policy::W;
  float out[kRows][kColumns];
  dot_tile<Policy, kRows, kColumns>(
      static_cast<const X*>(args.x) + m * args.x_stride, args.x_stride,
      static_cast<const W*>(args.w) + n * args.w_stride, args.w_stride, args.k, ahead, out);
  Vec bias = zero();
  if (args.bias != nullptr) {
    with_float(args.bias_type, [&]<class B>(Tag<B>) {
      bias = load_some(static_cast<const B*>(args.bias) + n, kColumns);
    });
  }
  with_float(args.out_type, [&]<class O>(Tag<O>) {
    for (int r = 0; r < kRows; ++r) {
      O* const to = static_cast<O*>(args.out) + (m + r) * args.out_stride + n;
      store_some(to, load_some(out[r], kColumns) + bias, kColumns);
    }
  });
}

template <class Policy, int kRows>
void gemm_strip(const GemmArgs& args, std::int64_t m, std::int64_t n_begin, std::int64_t n_end,
                Ahead ahead) {
  constexpr int kColumns = kRows == 1 ? kVectorColumns : kTileColumns;
  std::int64_t n = n_begin;
  for (; n + kColumns <= n_end; n += kColumns) {
    gemm_tile<Policy, kRows, kColumns>(args, m, n, ahead);
  }
  for (; n < n_end; ++n) gemm_tile<Policy, kRows, 1>(args, m, n, ahead);
}

template <class Policy, int kRows = kTileRows>
void gemm_strip_of(std::int64_t rows, const GemmArgs& args, std::int64_t m, std::int64_t n_begin,
                   std::int64_t n_end, Ahead ahead) {
  if (rows == kRows) return gemm_strip<Policy, kRows>(args, m, n_begin, n_end, ahead);
  if constexpr (kRows > 1) {
    gemm_strip_of<Policy, kRows - 1>(rows, args, m, n_begin, n_end, ahead);
  }
}

// Weights go by in blocks that stay in the L2 cache while all rows of x pass them. Each strip of
// rows fetches its share of the next block, so that few rows wait for memory and multiply at once.
template <class Policy>
void gemm_blocks(const GemmArgs& args, std::int64_t m_begin, std::int64_t m_end,
                 std::int64_t n_begin, std::int64_t n_end) {
  constexpr std::int64_t kBlockBytes = 256 << 10;
  const auto row_bytes = args.k * static_cast<std::int64_t>(sizeof(typename Policy::W));
  const std::int64_t rows = m_end - m_begin;
  const std::int64_t width = rows == 1 ? kVectorColumns : kTileColumns;
  const std::int64_t columns = max_of(1, kBlockBytes / max_of(row_bytes * width, 1)) * width;
  const std::int64_t strips = (rows + kTileRows - 1) / kTileRows;
  for (std::int64_t n = n_begin; n < n_end; n += columns) {
    for (std::int64_t s = 0; s < strips; ++s) {
      const std::int64_t begin = m_begin + rows * s / strips;
      const std::int64_t end = m_begin + rows * (s + 1) / strips;
      const auto share = [&](std::int64_t part) {
        return static_cast<int>(min_of(width, part * max_of(1, width / strips)));
      };
      const Ahead ahead{columns, share(s),
                        s + 1 == strips ? static_cast<int>(width) : share(s + 1)};
      gemm_strip_of<Policy>(end - begin, args, begin, n, min_of(n + columns, n_end), ahead);
    }
  }
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
