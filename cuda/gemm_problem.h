#pragma once
// A product as cuBLASLt sees it, but for the number of tokens, and the ranges of tokens for which
// an algorithm is chosen. No header of CUDA in here.

#include <cstdint>
#include <optional>
#include <string>

#include "backend/ops_moe.h"
#include "backend/tensor.h"

namespace quire::cuda {

// Where a matrix lies, or a batch of them; strides in elements.
struct GemmPlace {
  std::int64_t leading, batch_stride;
  std::uint32_t alignment;  // of the first byte, kGemmAlignment at most
  auto operator<=>(const GemmPlace&) const = default;
};
// More than its kernels ask of a pointer would only make more problems of one.
constexpr std::uint32_t kGemmAlignment = 16;

// What a product reads and writes: [T, N] = [T, K] · [N, K]ᵀ, or a batch of these.
struct GemmOperands {
  TensorView out, x, weight, bias;
  TensorView x_scales = {}, weight_scales = {};  // beside fp8
};

struct GemmProblem {
  std::int64_t n, k;
  std::int32_t batch;
  DType out, x, weight;
  WeightFormat format;
  std::optional<DType> bias;
  std::uint32_t bias_alignment;
  GemmPlace out_at, x_at, weight_at;
  auto operator<=>(const GemmProblem&) const = default;

  static GemmProblem of(const GemmOperands& operands, WeightFormat format);
  // out [T, H, N] = x [T, H, K] · weight [H, N, K]ᵀ.
  static GemmProblem of_heads(const GemmOperands& operands);
  // "[T, 4096] bf16 x [512, 4096] bf16 to f32", for messages.
  std::string shape() const;
  // All of it, for a file.
  std::string key() const;
};

// The last of the tokens that share an algorithm with these: 1, then multiples of 8 up to 64, and
// beyond four to each doubling (80, 96, 112, 128, 160, …).
std::int64_t gemm_bucket(std::int64_t tokens);
inline std::int64_t next_gemm_bucket(std::int64_t bucket) { return gemm_bucket(bucket + 1); }

}  // namespace quire::cuda
