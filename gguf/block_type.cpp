#include "gguf/block_type.h"

#include <string>

namespace quire::gguf {

namespace {

constexpr BlockTypeInfo known(BlockType type, std::string_view name, std::int64_t elements,
                              std::int64_t bytes) {
  return {type, name, elements, bytes, true};
}

// Named in complaints, and passed over where nobody asks for the tensor.
constexpr BlockTypeInfo other(std::uint32_t type, std::string_view name, std::int64_t elements,
                              std::int64_t bytes) {
  return {static_cast<BlockType>(type), name, elements, bytes, false};
}

constexpr BlockTypeInfo kTypes[] = {
    known(BlockType::f32, "F32", 1, 4),
    known(BlockType::f16, "F16", 1, 2),
    known(BlockType::bf16, "BF16", 1, 2),
    known(BlockType::q4_0, "Q4_0", 32, 18),
    known(BlockType::q4_1, "Q4_1", 32, 20),
    known(BlockType::q5_0, "Q5_0", 32, 22),
    known(BlockType::q5_1, "Q5_1", 32, 24),
    known(BlockType::q8_0, "Q8_0", 32, 34),
    known(BlockType::q2_k, "Q2_K", 256, 84),
    known(BlockType::q3_k, "Q3_K", 256, 110),
    known(BlockType::q4_k, "Q4_K", 256, 144),
    known(BlockType::q5_k, "Q5_K", 256, 176),
    known(BlockType::q6_k, "Q6_K", 256, 210),
    known(BlockType::iq4_nl, "IQ4_NL", 32, 18),
    known(BlockType::iq4_xs, "IQ4_XS", 256, 136),
    known(BlockType::mxfp4, "MXFP4", 32, 17),
    other(9, "Q8_1", 32, 40),
    other(15, "Q8_K", 256, 292),
    other(16, "IQ2_XXS", 256, 66),
    other(17, "IQ2_XS", 256, 74),
    other(18, "IQ3_XXS", 256, 98),
    other(19, "IQ1_S", 256, 50),
    other(21, "IQ3_S", 256, 110),
    other(22, "IQ2_S", 256, 82),
    other(24, "I8", 1, 1),
    other(25, "I16", 1, 2),
    other(26, "I32", 1, 4),
    other(27, "I64", 1, 8),
    other(28, "F64", 1, 8),
    other(29, "IQ1_M", 256, 56),
    other(34, "TQ1_0", 256, 54),
    other(35, "TQ2_0", 256, 66),
    other(40, "NVFP4", 64, 36),
};

}  // namespace

const BlockTypeInfo* find_block_type(std::uint32_t type) {
  for (const BlockTypeInfo& info : kTypes) {
    if (static_cast<std::uint32_t>(info.type) == type) return &info;
  }
  return nullptr;
}

std::string_view readable_block_types() {
  static const std::string names = [] {
    std::string text;
    for (const BlockTypeInfo& info : kTypes) {
      if (info.readable) text += (text.empty() ? "" : ", ") + std::string(info.name);
    }
    return text;
  }();
  return names;
}

}  // namespace quire::gguf
