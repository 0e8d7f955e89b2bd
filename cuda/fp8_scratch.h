#pragma once
// How a product in fp8 divides its workspace. No CUDA header in here: the plan asks for the size on
// machines without.

#include <algorithm>
#include <cstdint>

#include "backend/ops_moe.h"

namespace quire::cuda {

// N and K of an fp8 weight on tensor cores are multiples of this.
inline constexpr std::int64_t kFp8Alignment = 16;
// Block scales: T is a multiple of this, and a row of a weight's scales is as long as one.
inline constexpr std::int64_t kBlockScaleAlignment = 4;

// What a device with fp8 multiplies in it.
inline bool suits_fp8(const Weight& weight, DType x) {
  return is_fp8(weight.format) && x != DType::f32 && weight.data.rank() == 2 &&
         weight.data.extent(0) % kFp8Alignment == 0 && weight.data.extent(1) % kFp8Alignment == 0;
}

// Where the pieces begin; they grow with the tokens.
struct Fp8Scratch {
  std::int64_t codes, scales, tail_scales, tail, bytes;

  Fp8Scratch(std::int64_t tokens, const Weight& weight) {
    constexpr std::int64_t kPad = kBlockScaleAlignment;
    const std::int64_t n = weight.data.extent(0), k = weight.data.extent(1);
    const bool blocks = weight.format == WeightFormat::fp8_blocks;
    const std::int64_t groups = blocks ? (k + kFp8Block - 1) / kFp8Block : 1;
    const auto rounded_up = [](std::int64_t size) { return (size + 15) / 16 * 16; };
    codes = 0;
    scales = rounded_up(std::max(tokens, kPad) * k);
    tail_scales = scales + rounded_up(groups * tokens * 4);
    tail = tail_scales + (blocks ? groups * kPad * 4 : 0);
    bytes = tail + (blocks ? kPad * n * 4 : 0);
  }
};

}  // namespace quire::cuda
