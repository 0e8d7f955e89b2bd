// x · Wᵀ of weights in groups (backend/group_weights.h) with inputs of 8 bits: integer sums of 32
// products, each times its scales in float32. A row's sum is made in one order whatever its company.

#include "cpu/kernels/isa.h"

namespace quire::cpu::QUIRE_CPU_ISA {
namespace {

constexpr int kTileRows = 16, kGroup = 32;

#if defined(__AVX512F__)
using Ints = __m512i;  // bytes or sums, four bytes a lane
inline Ints load_bytes(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
inline Ints splat_bytes(const std::int8_t* four) {
  std::int32_t value;
  __builtin_memcpy(&value, four, sizeof value);
  return _mm512_set1_epi32(value);
}
inline Ints splat_int(std::int32_t value) { return _mm512_set1_epi32(value); }
inline Ints low_bits(Ints v, int shift, char mask) {
  return _mm512_and_si512(_mm512_srli_epi16(v, static_cast<unsigned>(shift)), _mm512_set1_epi8(mask));
}
inline Ints high_bits(Ints low, Ints v, int shift) {  // two bits above four
  const Ints at = shift < 4 ? _mm512_slli_epi16(v, static_cast<unsigned>(4 - shift))
                            : _mm512_srli_epi16(v, static_cast<unsigned>(shift - 4));
  return _mm512_or_si512(low, _mm512_and_si512(at, _mm512_set1_epi8(0x30)));
}
inline Ints look_up(Ints codes, const std::uint8_t* table) {
  const __m128i sixteen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(sixteen), codes);
}
inline Vec to_floats(Ints v) { return _mm512_cvtepi32_ps(v); }
inline Ints add_ints(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
#if defined(__AVX512VNNI__)
template <bool kWide>
inline Ints dot(Ints sums, Ints codes, Ints x) {
  return _mm512_dpbusd_epi32(sums, codes, x);
}
#else
inline Ints pairs(Ints codes, Ints x) {
  return _mm512_madd_epi16(_mm512_maddubs_epi16(codes, x), _mm512_set1_epi16(1));
}
// Pairs of products of 8-bit codes would not fit 16 bits: by their halves.
template <bool kWide>
inline Ints dot(Ints sums, Ints codes, Ints x) {
  if constexpr (!kWide) return add_ints(sums, pairs(codes, x));
  const Ints high = _mm512_slli_epi32(pairs(low_bits(codes, 4, 15), x), 4);
  return add_ints(sums, add_ints(pairs(low_bits(codes, 0, 15), x), high));
}
#endif
#elif defined(__AVX2__)
using Ints = __m256i;
inline Ints load_bytes(const std::uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline Ints splat_bytes(const std::int8_t* four) {
  std::int32_t value;
  __builtin_memcpy(&value, four, sizeof value);
  return _mm256_set1_epi32(value);
}
inline Ints splat_int(std::int32_t value) { return _mm256_set1_epi32(value); }
inline Ints low_bits(Ints v, int shift, char mask) {
  return _mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8(mask));
}
inline Ints high_bits(Ints low, Ints v, int shift) {
  const Ints at = shift < 4 ? _mm256_slli_epi16(v, 4 - shift) : _mm256_srli_epi16(v, shift - 4);
  return _mm256_or_si256(low, _mm256_and_si256(at, _mm256_set1_epi8(0x30)));
}
inline Ints look_up(Ints codes, const std::uint8_t* table) {
  const __m128i sixteen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(sixteen), codes);
}
inline Vec to_floats(Ints v) { return _mm256_cvtepi32_ps(v); }
inline Ints add_ints(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Ints pairs(Ints codes, Ints x) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1));
}
template <bool kWide>
inline Ints dot(Ints sums, Ints codes, Ints x) {
  if constexpr (!kWide) return add_ints(sums, pairs(codes, x));
  const Ints high = _mm256_slli_epi32(pairs(low_bits(codes, 4, 15), x), 4);
  return add_ints(sums, add_ints(pairs(low_bits(codes, 0, 15), x), high));
}
#else
using Ints = VecInt;
// Codes and inputs as they are, four bytes a lane.
inline Ints load_bytes(const std::uint8_t* p) {
  Ints v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
inline Ints splat_int(std::int32_t value) { return Ints{value, value, value, value}; }
inline Ints splat_bytes(const std::int8_t* four) {
  std::int32_t value;
  __builtin_memcpy(&value, four, sizeof value);
  return splat_int(value);
}
template <class F>
inline Ints each_byte(Ints v, F&& f) {
  std::uint8_t bytes[sizeof(Ints)];
  __builtin_memcpy(bytes, &v, sizeof v);
  for (unsigned i = 0; i < sizeof(Ints); ++i) bytes[i] = static_cast<std::uint8_t>(f(bytes[i], i));
  __builtin_memcpy(&v, bytes, sizeof v);
  return v;
}
inline Ints low_bits(Ints v, int shift, char mask) {
  return each_byte(v, [&](int byte, unsigned) { return byte >> shift & mask; });
}
inline Ints high_bits(Ints low, Ints v, int shift) {
  std::uint8_t bytes[sizeof(Ints)];
  __builtin_memcpy(bytes, &v, sizeof v);
  return each_byte(low, [&](int byte, unsigned i) { return byte | (bytes[i] >> shift & 3) << 4; });
}
inline Ints look_up(Ints codes, const std::uint8_t* table) {
  return each_byte(codes, [&](int byte, unsigned) { return table[byte]; });
}
inline Vec to_floats(Ints v) { return __builtin_convertvector(v, Vec); }
inline Ints add_ints(Ints a, Ints b) { return a + b; }
template <bool kWide>
inline Ints dot(Ints sums, Ints codes, Ints x) {
  std::uint8_t c[sizeof(Ints)];
  std::int8_t s[sizeof(Ints)];
  __builtin_memcpy(c, &codes, sizeof codes);
  __builtin_memcpy(s, &x, sizeof x);
  for (unsigned i = 0; i < sizeof(Ints); ++i) sums[i / 4] += c[i] * s[i];
  return sums;
}
#endif

enum class Codes { four, nonlinear, six, eight };

// Eight registers: columns 4 i … 4 i + 3 of kLanes rows from `lane` on.
template <Codes kCodes>
inline __attribute__((always_inline)) void load_codes(const std::uint8_t* planes, int lane,
                                                      const std::uint8_t* table, Ints (&w)[8]) {
  const std::uint8_t* const p = planes + 4 * lane;
  if constexpr (kCodes == Codes::eight) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) w[i] = load_bytes(p + 64 * i);
    return;
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Ints both = load_bytes(p + 64 * i);
    w[i] = low_bits(both, 0, 15);
    w[4 + i] = low_bits(both, 4, 15);
  }
  if constexpr (kCodes == Codes::nonlinear) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) w[i] = look_up(w[i], table);
  }
  if constexpr (kCodes == Codes::six) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const Ints high = load_bytes(p + 256 + 64 * i);
      w[i] = high_bits(w[i], high, 0);
      w[2 + i] = high_bits(w[2 + i], high, 2);
      w[4 + i] = high_bits(w[4 + i], high, 4);
      w[6 + i] = high_bits(w[6 + i], high, 6);
    }
  }
}

// Sums of the products of registers with kRows rows of x, from starts on: of one group, or of its
// halves. The rows take turns, so that a sum need not wait for its last product.
template <bool kWide, int kGroups, int kRows>
inline __attribute__((always_inline)) void dot_rows(const Ints (&w)[8], const std::int8_t* x,
                                                    const std::int32_t* start,
                                                    Ints (&out)[kGroups][kRows]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    out[0][r] = splat_int(start[r]);
    if constexpr (kGroups == 2) out[1][r] = splat_int(start[kGroupInputRows + r]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      Ints& sum = out[i * kGroups / 8][r];
      sum = dot<kWide>(sum, w[i], splat_bytes(x + r * kGroup + 4 * i));
    }
  }
}

struct Place {
  Index m, n;   // of the first output; its rows are of one block of x
  int lane;     // of the tile
  Index ahead;  // bytes from a tile to what is fetched meanwhile; 0: nothing
};

template <int kRows>
void store_tile(const GroupGemmArgs& args, const Place& at, const Vec (&sums)[kRows]) {
  const Index n = at.n + at.lane;
  const auto columns = static_cast<int>(min_of(kLanes, args.n - n));
  if (columns <= 0) return;
  Vec bias = QUIRE_CPU_ISA::zero();
  if (args.bias != nullptr) {
    with_float(args.bias_type, [&]<class B>(Tag<B>) {
      bias = load_some(static_cast<const B*>(args.bias) + n, columns);
    });
  }
  with_float(args.out_type, [&]<class O>(Tag<O>) {
    for (int r = 0; r < kRows; ++r) {
      store_some(static_cast<O*>(args.out) + (at.m + r) * args.out_stride + n, sums[r] + bias,
                 columns);
    }
  });
}

// Far ahead into the L2 cache; where memory is what takes the time, near tiles into L1 too.
template <bool kNear>
inline __attribute__((always_inline)) void fetch(const std::uint8_t* tile, Index ahead,
                                                 Index bytes) {
  constexpr Index kNearBytes = 2048;
  if (ahead == 0) return;
  for (Index line = 0; line < bytes; line += 64) {
    __builtin_prefetch(tile + ahead + line, 0, 2);
    if constexpr (kNear) __builtin_prefetch(tile + kNearBytes + line, 0, 3);
  }
}

template <Codes kCodes, int kScaleGroup, bool kMin, int kRows>
void group_tile(const GroupGemmArgs& args, const Place& at) {
  constexpr bool kWide = kCodes == Codes::eight || kCodes == Codes::nonlinear;
  constexpr int kTogether = kRows < 4 ? kRows : 4;
  // Tiles of 8-bit codes that nothing holds up are what the machine fetches best by itself.
  constexpr bool kFetches = kCodes != Codes::eight || kRows > 2;
  constexpr int kGroups = kGroup / kScaleGroup;
  constexpr Index kScaleBytes = kTileRows * 2 * kGroups;
  constexpr Index kBlock = kGroupInputRows;
  const std::uint8_t* tile = args.w + (at.n / kTileRows) * args.w_stride;
  const Index groups = args.k / kGroup, first = at.m / kBlock * groups * kBlock + at.m % kBlock;
  const std::int8_t* x = args.x.codes + first * kGroup;  // places of a row are kBlock apart
  const float* x_scale = args.x.scales + first;
  const std::int32_t* start = args.x.starts + 2 * first - at.m % kBlock;
  const float* x_min = args.x.mins + 2 * first - at.m % kBlock;
  Vec sums[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) sums[r] = QUIRE_CPU_ISA::zero();
  for (Index g = 0; g < groups; ++g) {
    if constexpr (kFetches) fetch<(kRows <= 2)>(tile, at.ahead, args.tile_bytes);
    const auto* const scales = reinterpret_cast<const F16*>(tile) + at.lane;
    Ints w[8];
    load_codes<kCodes>(tile + kScaleBytes * (kMin ? 2 : 1), at.lane, args.table, w);
    Vec scale[kGroups], low[kGroups];
#pragma GCC unroll 2
    for (int s = 0; s < kGroups; ++s) {
      scale[s] = load(scales + s * kTileRows);
      if constexpr (kMin) low[s] = load(scales + (kGroups + s) * kTileRows);
    }
#pragma GCC unroll 4
    for (int from = 0; from < kRows; from += kTogether) {
      Ints dots[kGroups][kTogether];
      dot_rows<kWide>(w, x + from * kGroup, start + from, dots);
#pragma GCC unroll 4
      for (int i = 0; i < kTogether; ++i) {
        const int r = from + i;
        const Vec own = splat(x_scale[r]);
#pragma GCC unroll 2
        for (int s = 0; s < kGroups; ++s) {
          sums[r] = fma(to_floats(dots[s][i]), scale[s] * own, sums[r]);
        }
        if constexpr (!kMin) continue;
#pragma GCC unroll 2
        for (int s = 0; s < kGroups; ++s) {
          sums[r] = fma(low[s], splat(x_min[s * kBlock + r]), sums[r]);
        }
      }
    }
    tile += args.tile_bytes;
    x += kBlock * kGroup;
    x_scale += kBlock;
    start += 2 * kBlock;
    x_min += 2 * kBlock;
  }
  store_tile(args, at, sums);
}

#if defined(__AVX512F__)
constexpr int kMostRows = 16;
#else
constexpr int kMostRows = 2;
#endif

// Rows done of this many.
template <Codes kCodes, int kScaleGroup, bool kMin>
Index group_rows(Index rows, const GroupGemmArgs& args, const Place& at) {
  if constexpr (kMostRows == 16) {
    if (rows >= 16) return group_tile<kCodes, kScaleGroup, kMin, 16>(args, at), 16;
    if (rows >= 8) return group_tile<kCodes, kScaleGroup, kMin, 8>(args, at), 8;
    if (rows >= 4) return group_tile<kCodes, kScaleGroup, kMin, 4>(args, at), 4;
  }
  if (rows >= 2) return group_tile<kCodes, kScaleGroup, kMin, 2>(args, at), 2;
  return group_tile<kCodes, kScaleGroup, kMin, 1>(args, at), 1;
}

constexpr Index kWeightBytes = 192 << 10;  // that stay in the cache while all rows of x pass
constexpr Index kAhead = 16384;            // bytes

// A block of x passes over some rows of tiles, then the next block.
template <Codes kCodes, int kScaleGroup = 32, bool kMin = false>
void group_block(const GroupGemmArgs& args, Index m_begin, Index m_end, Index n_begin,
                 Index n_end) {
  const Index tiles = kWeightBytes / args.w_stride, step = (tiles < 1 ? 1 : tiles) * kTileRows;
  for (Index from = n_begin; from < n_end; from += step) {
    const Index to = min_of(n_end, from + step);
    for (Index block = m_begin; block < m_end;) {
      const Index stop = min_of(m_end, (block / kGroupInputRows + 1) * kGroupInputRows);
      const Index ahead = block == m_begin ? kAhead : 0;
      for (Index n = from; n < to; n += kTileRows) {
        for (int lane = 0; lane < kTileRows; lane += kLanes) {
          for (Index m = block; m < stop;) {
            m += group_rows<kCodes, kScaleGroup, kMin>(stop - m, args, {m, n, lane, ahead});
          }
        }
      }
      block = stop;
    }
  }
}

}  // namespace

void gemm_groups(const GroupGemmArgs& args, Index m_begin, Index m_end, Index n_begin,
                 Index n_end) {
  const auto run = [&](auto block) { block(args, m_begin, m_end, n_begin, n_end); };
  if (args.bits == 8) return run(group_block<Codes::eight>);
  if (args.table != nullptr) return run(group_block<Codes::nonlinear>);
  if (args.bits == 6) {
    if (args.group == 16) return run(group_block<Codes::six, 16>);
    return args.has_min ? run(group_block<Codes::six, 32, true>) : run(group_block<Codes::six>);
  }
  if (args.group == 16) {
    return args.has_min ? run(group_block<Codes::four, 16, true>)
                        : run(group_block<Codes::four, 16>);
  }
  args.has_min ? run(group_block<Codes::four, 32, true>) : run(group_block<Codes::four>);
}

}  // namespace quire::cpu::QUIRE_CPU_ISA
