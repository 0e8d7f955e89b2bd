#include "gguf/codes.h"

#include <bit>
#include <cstring>

#include "base/half.h"

namespace quire::gguf {

namespace {

constexpr std::int8_t kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
// e2m1 times two; the scale is halved.
constexpr std::int8_t kE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

constexpr CodeFormat kQ4_0{.bits = 4, .zero = 8};
constexpr CodeFormat kQ4_1{.bits = 4, .has_min = true};
constexpr CodeFormat kQ5_0{.bits = 5, .zero = 16};
constexpr CodeFormat kQ5_1{.bits = 5, .has_min = true};
constexpr CodeFormat kQ8_0{.bits = 8, .zero = 128};
constexpr CodeFormat kQ2K{.bits = 4, .group = 16, .has_min = true};
constexpr CodeFormat kQ3K{.bits = 4, .group = 16, .zero = 4};
constexpr CodeFormat kQ6K{.bits = 6, .group = 16, .zero = 32};
constexpr CodeFormat kIq4Nl{.bits = 4, .table = kIq4};
constexpr CodeFormat kMxfp4{.bits = 4, .table = kE2m1};

std::uint8_t byte_at(const std::byte* p, int i) { return static_cast<std::uint8_t>(p[i]); }

float half_at(const std::byte* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return half_to_float(bits);
}

// Bytes of a block where the compiler sees that nothing else writes them.
template <int kBytes>
struct Bytes {
  explicit Bytes(const std::byte* p) { std::memcpy(at, p, kBytes); }
  std::uint8_t at[kBytes];
};

// 2^(e − 128), subnormal at the low end.
float e8m0_half(std::uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<std::uint32_t>(e - 1) << 23);
}

// 32 elements: the low nibbles are the first half.
void nibbles(const std::byte* q, std::uint8_t* codes) {
  const Bytes<16> in(q);
  std::uint8_t out[32];
  for (int i = 0; i < 16; ++i) out[i] = in.at[i] & 15;
  for (int i = 0; i < 16; ++i) out[16 + i] = in.at[i] >> 4;
  std::memcpy(codes, out, sizeof out);
}

void fifth_bits(const std::byte* p, std::uint8_t* codes) {
  std::uint32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  for (int i = 0; i < 32; ++i) codes[i] |= static_cast<std::uint8_t>((bits >> i & 1u) << 4);
}

// 32 codes: `kBits` bits of each byte of low from bit `low_shift` on, and the bits `mask` of high
// from `high_shift` on above them.
template <int kBits>
void join(const std::byte* low, int low_shift, const std::byte* high, int high_shift, int mask,
          std::uint8_t* codes) {
  const Bytes<32> a(low), b(high);
  std::uint8_t out[32];
  for (int i = 0; i < 32; ++i) {
    out[i] = static_cast<std::uint8_t>((a.at[i] >> low_shift & ((1 << kBits) - 1)) |
                                       (b.at[i] >> high_shift & mask) << kBits);
  }
  std::memcpy(codes, out, sizeof out);
}

// Six bits each of eight scales and eight minima in twelve bytes.
void scales_and_mins(const std::byte* p, int i, int& scale, int& min) {
  if (i < 4) {
    scale = byte_at(p, i) & 63;
    min = byte_at(p, 4 + i) & 63;
    return;
  }
  scale = (byte_at(p, 4 + i) & 15) | (byte_at(p, i - 4) >> 6) << 4;
  min = (byte_at(p, 4 + i) >> 4) | (byte_at(p, i) >> 6) << 4;
}

void unpack_q2_k(const std::byte* b, BlockCodes& out) {
  const std::byte *scales = b, *q = b + 16;
  const float d = half_at(b + 80), dmin = half_at(b + 82);
  for (int g = 0; g < 16; ++g) {
    out.scales[g] = d * static_cast<float>(byte_at(scales, g) & 15);
    out.mins[g] = dmin * static_cast<float>(byte_at(scales, g) >> 4);
  }
  for (int p = 0; p < 8; ++p) {
    const std::byte* const at = q + p / 4 * 32;
    join<2>(at, p % 4 * 2, at, 0, 0, out.codes.data() + 32 * p);
  }
}

void unpack_q3_k(const std::byte* b, BlockCodes& out) {
  const std::byte *high = b, *q = b + 32, *scales = b + 96;
  const float d = half_at(b + 108);
  for (int g = 0; g < 16; ++g) {
    const int low = byte_at(scales, g % 8) >> g / 8 * 4 & 15;
    const int top = byte_at(scales, 8 + g % 4) >> g / 4 * 2 & 3;
    out.scales[g] = d * static_cast<float>((low | top << 4) - 32);
  }
  for (int p = 0; p < 8; ++p) {
    join<2>(q + p / 4 * 32, p % 4 * 2, high, p, 1, out.codes.data() + 32 * p);
  }
}

void unpack_q4_k(const std::byte* b, bool fifth, BlockCodes& out) {
  const float d = half_at(b), dmin = half_at(b + 2);
  const std::byte *high = b + 16, *q = b + (fifth ? 48 : 16);
  for (int g = 0; g < 8; ++g) {
    int scale, min;
    scales_and_mins(b + 4, g, scale, min);
    out.scales[g] = d * static_cast<float>(scale);
    out.mins[g] = dmin * static_cast<float>(min);
    join<4>(q + g / 2 * 32, g % 2 * 4, high, g, fifth ? 1 : 0, out.codes.data() + 32 * g);
  }
}

void unpack_q6_k(const std::byte* b, BlockCodes& out) {
  const std::byte *low = b, *high = b + 128, *scales = b + 192;
  const float d = half_at(b + 208);
  for (int g = 0; g < 16; ++g) {
    out.scales[g] = d * static_cast<float>(static_cast<std::int8_t>(byte_at(scales, g)));
  }
  for (int p = 0; p < 8; ++p) {
    const int half = p / 4, quarter = p % 4;
    join<4>(low + half * 64 + quarter % 2 * 32, quarter / 2 * 4, high + half * 32, quarter * 2, 3,
            out.codes.data() + 32 * p);
  }
}

void unpack_iq4_xs(const std::byte* b, BlockCodes& out) {
  const float d = half_at(b);
  std::uint16_t top;
  std::memcpy(&top, b + 2, sizeof top);
  for (int g = 0; g < 8; ++g) {
    const int low = byte_at(b + 4, g / 2) >> g % 2 * 4 & 15;
    out.scales[g] = d * static_cast<float>((low | (top >> 2 * g & 3) << 4) - 32);
    nibbles(b + 8 + g * 16, out.codes.data() + g * 32);
  }
}

enum class Half : std::uint16_t {};

template <class T>
void widen(const std::byte* in, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, in + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    if constexpr (std::is_same_v<T, std::uint16_t>) {  // bf16
      out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
    } else if constexpr (std::is_same_v<T, Half>) {
      out[i] = half_to_float(static_cast<std::uint16_t>(value));
    } else {
      out[i] = value;
    }
  }
}

}  // namespace

const CodeFormat* code_format(BlockType type) {
  switch (type) {
    case BlockType::f32:
    case BlockType::f16:
    case BlockType::bf16:
      return nullptr;
    case BlockType::q4_0:
      return &kQ4_0;
    case BlockType::q4_1:
    case BlockType::q4_k:
      return &kQ4_1;
    case BlockType::q5_0:
      return &kQ5_0;
    case BlockType::q5_1:
    case BlockType::q5_k:
      return &kQ5_1;
    case BlockType::q8_0:
      return &kQ8_0;
    case BlockType::q2_k:
      return &kQ2K;
    case BlockType::q3_k:
      return &kQ3K;
    case BlockType::q6_k:
      return &kQ6K;
    case BlockType::iq4_nl:
    case BlockType::iq4_xs:
      return &kIq4Nl;
    case BlockType::mxfp4:
      return &kMxfp4;
  }
  return nullptr;
}

void unpack_block(BlockType type, const std::byte* b, BlockCodes& out) {
  if (!code_format(type)->has_min) out.mins.fill(0.f);
  switch (type) {
    case BlockType::q4_0:
    case BlockType::iq4_nl:
      out.scales[0] = half_at(b);
      return nibbles(b + 2, out.codes.data());
    case BlockType::q4_1:
      out.scales[0] = half_at(b);
      out.mins[0] = -half_at(b + 2);
      return nibbles(b + 4, out.codes.data());
    case BlockType::q5_0:
      out.scales[0] = half_at(b);
      nibbles(b + 6, out.codes.data());
      return fifth_bits(b + 2, out.codes.data());
    case BlockType::q5_1:
      out.scales[0] = half_at(b);
      out.mins[0] = -half_at(b + 2);
      nibbles(b + 8, out.codes.data());
      return fifth_bits(b + 4, out.codes.data());
    case BlockType::q8_0:
      out.scales[0] = half_at(b);
      std::memcpy(out.codes.data(), b + 2, 32);
      for (int i = 0; i < 32; ++i) out.codes[i] ^= 0x80;
      return;
    case BlockType::q2_k:
      return unpack_q2_k(b, out);
    case BlockType::q3_k:
      return unpack_q3_k(b, out);
    case BlockType::q4_k:
      return unpack_q4_k(b, false, out);
    case BlockType::q5_k:
      return unpack_q4_k(b, true, out);
    case BlockType::q6_k:
      return unpack_q6_k(b, out);
    case BlockType::iq4_xs:
      return unpack_iq4_xs(b, out);
    case BlockType::mxfp4:
      out.scales[0] = e8m0_half(byte_at(b, 0));
      return nibbles(b + 1, out.codes.data());
    case BlockType::f32:
    case BlockType::f16:
    case BlockType::bf16:
      return;  // no codes
  }
}

void dequantize(BlockType type, const std::byte* blocks, std::int64_t count, float* out) {
  if (type == BlockType::f32) return widen<float>(blocks, count, out);
  if (type == BlockType::f16) return widen<Half>(blocks, count, out);
  if (type == BlockType::bf16) return widen<std::uint16_t>(blocks, count, out);
  const BlockTypeInfo& info = info_of(type);
  const CodeFormat& format = *code_format(type);
  BlockCodes block;
  for (std::int64_t at = 0; at < count; at += info.elements, blocks += info.bytes) {
    unpack_block(type, blocks, block);
    for (std::int64_t i = 0; i < info.elements; i += format.group) {
      const auto g = static_cast<std::size_t>(i / format.group);
      const float scale = block.scales[g], min = block.mins[g];
      const std::uint8_t* const codes = block.codes.data() + i;
      float* const to = out + at + i;
      if (format.table != nullptr) {
        for (int j = 0; j < format.group; ++j) {
          to[j] = scale * static_cast<float>(format.table[codes[j]]) - min;
        }
        continue;
      }
      for (int j = 0; j < format.group; ++j) {
        to[j] = scale * static_cast<float>(codes[j] - format.zero) - min;
      }
    }
  }
}

}  // namespace quire::gguf
