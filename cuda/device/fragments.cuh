#pragma once
// Tiles of packed integers (backend/fragment_weights.h) as operands of tensor cores: a lane's codes
// become pairs of T, less their zero, which bf16 and f16 hold exactly; scales and minima are
// applied in float32 to the sums of a group.

#include "backend/fragment_weights.h"
#include "cuda/device/typed_mma.cuh"
#include "cuda/device/vec.cuh"

namespace quire::cuda {

constexpr int kSlicesOfTile = kFragmentColumns / kFragmentSlice;

template <int kBitsOf, int kGroupOf, bool kMinimum = false, bool kNumbers = false>
struct Fragments {
  static constexpr int kBits = kBitsOf, kGroup = kGroupOf;
  static constexpr bool kHasMin = kMinimum, kTable = kNumbers;
  static constexpr int kGroups = kFragmentColumns / kGroup;
  static constexpr int kKinds = kHasMin ? 2 : 1;        // scale, minimum
  static constexpr int kScaleWords = kGroups * kKinds;  // of a lane and tile: both halves in a word
  static constexpr int kChunks = kBits / 2;             // of 16 bytes of codes
  static constexpr GroupFormat kFormat{.bits = kBits,
                                       .group = kGroup,
                                       .zero = kBits == 8 ? 128 : 0,
                                       .has_min = kHasMin,
                                       .nonlinear = kTable};
  static constexpr int kScaleBytes = static_cast<int>(fragment_scale_bytes(kFormat));
  static constexpr int kTileBytes = static_cast<int>(fragment_tile_bytes(kFormat));
  static_assert(fits_fragments(kFormat) && kTileBytes == kScaleBytes + kChunks * 512);
};
// What a lane has of a tile.
template <class F>
struct LaneTile {
  std::uint32_t scale[F::kScaleWords], code[F::kChunks * 4];
};

template <int kWords>
__device__ __forceinline__ void load_words(std::uint32_t* to, const unsigned char* from) {
  if constexpr (kWords == 1) {
    *to = *reinterpret_cast<const std::uint32_t*>(from);
  } else if constexpr (kWords == 2) {
    const uint2 words = *reinterpret_cast<const uint2*>(from);
    to[0] = words.x;
    to[1] = words.y;
  } else {
#pragma unroll
    for (int i = 0; i < kWords; i += 4) {
      const uint4 words = *reinterpret_cast<const uint4*>(from + i * 4);
      to[i] = words.x;
      to[i + 1] = words.y;
      to[i + 2] = words.z;
      to[i + 3] = words.w;
    }
  }
}

template <class F>
__device__ __forceinline__ void load_tile(LaneTile<F>& to, const unsigned char* tile, int lane) {
  load_words<F::kScaleWords>(to.scale, tile + lane / 4 * F::kScaleWords * 4);
#pragma unroll
  for (int c = 0; c < F::kChunks; ++c)
    load_words<4>(to.code + c * 4, tile + F::kScaleBytes + c * 512 + lane * 16);
}

template <class T>
struct PairBits;  // of two equal numbers
template <>
struct PairBits<__nv_bfloat16> {
  static constexpr std::uint32_t kOnes = 0x3f803f80u, kBase = 0x43004300u;  // 128: a step is 1
};
template <>
struct PairBits<__half> {
  static constexpr std::uint32_t kOnes = 0x3c003c00u, kBase = 0x64006400u;  // 1024: a step is 1
};

// a − b of pairs, exact for the small integers here.
template <class T>
__device__ __forceinline__ std::uint32_t subtract_pairs(std::uint32_t a, std::uint32_t b) {
  using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  Pair x, y;
  memcpy(&x, &a, sizeof x);
  memcpy(&y, &b, sizeof y);
  return bits_of(__hsub2(x, y));
}

// (bits & kMask) ^ base, in one instruction.
template <std::uint32_t kMask>
__device__ __forceinline__ std::uint32_t masked_onto(std::uint32_t base, std::uint32_t bits) {
#ifdef __CUDACC__
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;\n" : "=r"(result) : "r"(bits), "n"(kMask), "r"(base));
  return result;
#else
  return (bits & kMask) ^ base;
#endif
}

// What is subtracted from codes in the base's bits: base + zero, a step being 1 in either type.
template <class T>
__host__ __device__ constexpr std::uint32_t base_and_zero(int zero) {
  return PairBits<T>::kBase + static_cast<std::uint32_t>(zero) * 0x00010001u;
}

// Bytes 0 and 2, less 128.
template <class T>
__device__ __forceinline__ std::uint32_t byte_pair(std::uint32_t bytes) {
  if constexpr (std::is_same_v<T, __half>) {
    return subtract_pairs<T>(masked_onto<0x00ff00ffu>(PairBits<T>::kBase, bytes),
                             base_and_zero<T>(128));
  } else {
    // Seven bits fit beside 128; the eighth decides between 128 and 256.
    return subtract_pairs<T>(masked_onto<0x007f007fu>(PairBits<T>::kBase, bytes),
                             masked_onto<0x00800080u>(0x43804380u, bytes));
  }
}

// Four codes in the low half of `nibbles` as the numbers plus 128 that they index.
__device__ __forceinline__ std::uint32_t indexed_bytes(std::uint32_t nibbles) {
  const auto word = [](int i) {
    return std::uint32_t{kNonlinearCodes[i]} | std::uint32_t{kNonlinearCodes[i + 1]} << 8 |
           std::uint32_t{kNonlinearCodes[i + 2]} << 16 |
           std::uint32_t{kNonlinearCodes[i + 3]} << 24;
  };
  const std::uint32_t places = nibbles & 0x7777u;
  const std::uint32_t lower = __byte_perm(word(0), word(4), places);
  const std::uint32_t upper = __byte_perm(word(8), word(12), places);
  return __byte_perm(lower, upper, 0x3210u | (nibbles >> 1 & 0x4444u));
}

// Whether codes stay in the base's bits, as beside minima they may: what that adds to a group's
// sum is taken off with the minimum. bf16's base is small enough for it.
template <class T, class F>
constexpr bool kKeepsBase =
    F::kHasMin&& F::kBits != 8 && !F::kTable && std::is_same_v<T, __nv_bfloat16>;

// Elements 2 p and 2 p + 1, p < 4, of a lane's part of a slice. base: base_and_zero(); plus the
// base, with kKeep.
template <class T, class F, bool kKeep = false>
__device__ __forceinline__ void weight_pairs(std::uint32_t (&pair)[4], const std::uint32_t* code,
                                             int slice, int half, std::uint32_t base) {
  if constexpr (F::kBits == 8 || F::kTable) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t bytes = F::kTable ? indexed_bytes(code[slice * 2 + half] >> 16 * i)
                                            : code[slice * 4 + half * 2 + i];
      pair[2 * i] = byte_pair<T>(bytes);
      pair[2 * i + 1] = byte_pair<T>(bytes >> 8);
    }
  } else {
    const std::uint32_t low = code[slice * 2 + half];
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      std::uint32_t bits = masked_onto<0x000f000fu>(PairBits<T>::kBase, low >> 4 * p);
      if constexpr (F::kBits == 6) {
        const int up = 4 - (slice % 2 * 8 + 2 * p);
        const std::uint32_t high = code[8 + slice / 2 * 2 + half];
        bits |= (up >= 0 ? high << (up & 31) : high >> (-up & 31)) & 0x00300030u;
      }
      pair[p] = kKeep ? bits : subtract_pairs<T>(bits, base);
    }
  }
}

// The columns of x beside them: words of a slice at `slice`, for column quarter lane % 4.
template <class F, class T>
__device__ __forceinline__ void input_words(std::uint32_t (&word)[4], const T* slice, int quarter) {
  if constexpr (F::kGroup == 16) {
    load_words<2>(word, reinterpret_cast<const unsigned char*>(slice + quarter * 4));
    load_words<2>(word + 2, reinterpret_cast<const unsigned char*>(slice + 16 + quarter * 4));
  } else {
    load_words<4>(word, reinterpret_cast<const unsigned char*>(slice + quarter * 8));
  }
}

// Scales or minima of a group: rows of the lower half, of the upper one.
template <class F>
__device__ __forceinline__ float2 scales_of(const std::uint32_t* scale, int group, bool minimum) {
  const std::uint32_t word = scale[group * F::kKinds + (minimum ? 1 : 0)];
  __half2 pair;
  memcpy(&pair, &word, sizeof pair);
  return __half22float2(pair);
}

__device__ __forceinline__ void add_scaled(FragmentC& sum, const FragmentC& part, float2 scale) {
#pragma unroll
  for (int i = 0; i < 4; ++i) sum.r[i] = fmaf(part.r[i], i < 2 ? scale.x : scale.y, sum.r[i]);
}

// sums[n] += a slice of sixteen rows · x[n] of eight tokens each. lane: what load_tile() filled.
template <class T, class F, int kTiles>
__device__ __forceinline__ void multiply_slice(FragmentC* sums, const std::uint32_t* scale,
                                               const std::uint32_t* code, int slice,
                                               const std::uint32_t (&x)[kTiles][4],
                                               std::uint32_t base) {
  constexpr std::uint32_t kOnes = PairBits<T>::kOnes;
  std::uint32_t low[4], high[4];
  constexpr bool kKeep = kKeepsBase<T, F>;
  weight_pairs<T, F, kKeep>(low, code, slice, 0, base);
  weight_pairs<T, F, kKeep>(high, code, slice, 1, base);
  constexpr int kSteps = F::kGroup == 16 ? 2 : 1;  // groups of the slice
#pragma unroll
  for (int g = 0; g < kSteps; ++g) {
    const int group = slice * kFragmentSlice / F::kGroup + g;
    const float2 factor = scales_of<F>(scale, group, false);
    float2 less{};
    if constexpr (F::kHasMin) {
      const float2 minimum = scales_of<F>(scale, group, true);
      // Of a pair of bf16 the upper one, as float32: base + zero.
      const float more = kKeep ? __uint_as_float(base & 0xffff0000u) : 0.f;
      less = {fmaf(-more, factor.x, -minimum.x), fmaf(-more, factor.y, -minimum.y)};
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      FragmentC part{}, total{};
      const FragmentA ones{{kOnes, kOnes, kOnes, kOnes}};
#pragma unroll
      for (int i = 2 * g; i < (kSteps == 2 ? 2 * g + 2 : 4); i += 2) {
        const FragmentB columns{{x[n][i], x[n][i + 1]}};
        const FragmentA codes{{low[i], high[i], low[i + 1], high[i + 1]}};
        mma<T>(part, codes, columns);
        if constexpr (F::kHasMin) mma<T>(total, ones, columns);
      }
      add_scaled(sums[n], part, factor);
      if constexpr (F::kHasMin) add_scaled(sums[n], total, less);
    }
  }
}

// f(Fragments<…>{}) of a format that fits_fragments().
template <class Call>
void dispatch_fragments(const GroupFormat& format, Call&& f) {
  const bool min = format.has_min;
  if (format.nonlinear) return f(Fragments<4, 32, false, true>{});
  if (format.bits == 8) {
    if (format.group == 32) return f(Fragments<8, 32>{});
    return f(Fragments<8, 128>{});
  }
  if (format.bits == 6) {
    if (format.group == 16) return f(Fragments<6, 16>{});
    if (min) return f(Fragments<6, 32, true>{});
    return f(Fragments<6, 32>{});
  }
  if (format.group == 16) {
    if (min) return f(Fragments<4, 16, true>{});
    return f(Fragments<4, 16>{});
  }
  if (format.group == 32) {
    if (min) return f(Fragments<4, 32, true>{});
    return f(Fragments<4, 32>{});
  }
  if (min) return f(Fragments<4, 128, true>{});
  f(Fragments<4, 128>{});
}

}  // namespace quire::cuda
