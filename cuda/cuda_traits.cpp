#include "cuda/cuda_traits.h"

#include "cuda/cuda_backend.h"
#include "cuda/expert_scratch.h"

namespace quire {

std::size_t cuda::CudaTraits::moe_workspace_bytes(int num_tokens, const MoeShape& shape) const {
  return ExpertScratch(std::int64_t{num_tokens} * shape.top_k, shape).bytes;
}

const OpsTraits& cuda_traits() {
  static const cuda::CudaTraits traits;
  return traits;
}

}  // namespace quire
