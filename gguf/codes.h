#pragma once
// Blocks of a GGUF tensor as what they all are: small integers in groups of a row that share a
// scale. Element = scale · value(code) − min, each product and sum rounded to float32 once, as the
// reference does.

#include <array>
#include <cstddef>
#include <cstdint>

#include "gguf/block_type.h"

namespace quire::gguf {

struct CodeFormat {
  int bits = 8;               // 4, 5, 6 or 8: codes are below 2^bits
  int group = 32;             // elements that share a scale, and a minimum
  bool has_min = false;       // else minima are 0
  int zero = 0;               // value = code − zero,
  const std::int8_t* table = nullptr;  // or table[code]
};

// Null for the plain types f32, f16 and bf16.
const CodeFormat* code_format(BlockType type);

inline constexpr int kMaxBlock = 256;  // elements

struct BlockCodes {
  std::array<std::uint8_t, kMaxBlock> codes;
  std::array<float, kMaxBlock / 16> scales, mins;  // by group
};

// One block of a type that has codes.
void unpack_block(BlockType type, const std::byte* block, BlockCodes& out);

// `count` elements, whole blocks, of any readable type.
void dequantize(BlockType type, const std::byte* blocks, std::int64_t count, float* out);

}  // namespace quire::gguf
