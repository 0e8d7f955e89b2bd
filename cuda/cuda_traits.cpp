#include "cuda/cuda_traits.h"

#include "cuda/cuda_backend.h"
#include "cuda/expert_scratch.h"
#include "cuda/fp8_scratch.h"
#include "cuda/latent_scratch.h"
#include "cuda/widened_scratch.h"

namespace quire {

std::size_t cuda::CudaTraits::moe_workspace_bytes(int num_tokens, const MoeShape& shape) const {
  return ExpertScratch(std::int64_t{num_tokens} * shape.top_k, shape).bytes;
}

std::size_t cuda::CudaTraits::linear_workspace_bytes(std::int64_t num_tokens, const Weight& weight,
                                                     DType x) const {
  if (!suits_fp8(weight, x)) return 0;
  return static_cast<std::size_t>(Fp8Scratch(num_tokens, weight).bytes);
}

std::size_t cuda::CudaTraits::latent_prompt_bytes(int num_tokens, const LatentShape& shape) const {
  return suits_expansion(shape) ? LatentScratch(num_tokens, shape).bytes : 0;
}

std::size_t cuda::CudaTraits::attention_workspace_bytes(const AttentionShape& shape) const {
  return static_cast<std::size_t>(widened_bytes(shape));
}

const OpsTraits& cuda_traits() {
  static const cuda::CudaTraits traits;
  return traits;
}

}  // namespace quire
