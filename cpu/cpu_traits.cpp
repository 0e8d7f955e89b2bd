// What the plan asks of the CPU's operators.

#include "cpu/cpu_backend.h"
#include "cpu/latent_workspace.h"
#include "cpu/shared_collectives.h"

namespace quire {
namespace {

class CpuTraits final : public OpsTraits {
 public:
  GraphSupport graph_support(const CacheForm&) const override { return GraphSupport::never; }

  // Bookkeeping of pairs by expert, and four arrays of f32 rows: input, gate and up, activation,
  // output; each piece starts at a multiple of 64 bytes.
  std::size_t moe_workspace_bytes(int num_tokens, const MoeShape& shape) const override {
    const auto tokens = static_cast<std::size_t>(num_tokens);
    const auto pairs = tokens * static_cast<std::size_t>(shape.top_k);
    const auto hidden = static_cast<std::size_t>(shape.hidden);
    const auto inner = static_cast<std::size_t>(shape.intermediate);
    const auto experts = static_cast<std::size_t>(shape.experts);
    return 4 * (2 * experts + 1 + 2 * pairs) + 4 * pairs * (2 * hidden + 3 * inner) + 8 * 64;
  }

  // Packed weights are unpacked tile by tile in a thread's own scratch.
  std::size_t linear_workspace_bytes(std::int64_t, const Weight&, DType) const override {
    return 0;
  }
  std::size_t latent_prompt_bytes(int num_tokens, const LatentShape& shape) const override {
    return cpu::LatentWorkspace(num_tokens, shape).bytes;
  }
  std::size_t scratch_bytes() const override { return 0; }
  // Of the memory that ranks share.
  std::size_t collectives_bytes() const override { return kSharedCollectivesBytes; }
};

}  // namespace

const OpsTraits& cpu_traits() {
  static const CpuTraits traits;
  return traits;
}

}  // namespace quire
