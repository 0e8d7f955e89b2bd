#pragma once
// How the numbers of a GGUF tensor are packed: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

#include <cstdint>
#include <string_view>

namespace quire::gguf {

// The file's own numbers.
enum class BlockType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq4_nl = 20,
  iq4_xs = 23,
  bf16 = 30,
  mxfp4 = 39,
};

struct BlockTypeInfo {
  BlockType type;
  std::string_view name;  // "Q4_K"
  std::int64_t elements;  // of a row in one block
  std::int64_t bytes;     // of one block
  bool readable;          // dequantize() knows it
};

// Null: no such type.
const BlockTypeInfo* find_block_type(std::uint32_t type);
inline const BlockTypeInfo& info_of(BlockType type) {
  return *find_block_type(static_cast<std::uint32_t>(type));
}
// "F32, F16, Q4_0, …": those that dequantize() knows.
std::string_view readable_block_types();

}  // namespace quire::gguf
