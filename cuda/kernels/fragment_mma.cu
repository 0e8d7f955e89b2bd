// Launches of fragment_mma.cuh for every format.

#include "cuda/kernels/fragment_mma.cuh"
#include "cuda/kernels/fragment_product.h"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/capability.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

// Of a ring beside a block's other shared memory, or 0 where not even the fewest stages fit.
int ring_stages(std::size_t stage_bytes, int tokens) {
  const std::size_t room =
      shared_memory_limit() - static_cast<std::size_t>(tokens) * sizeof(std::int32_t);
  for (int stages = kStages; stages >= kFewestStages; --stages) {
    if (static_cast<std::size_t>(stages) * stage_bytes <= room) return stages;
  }
  return 0;
}

template <class T, class F>
void launch_product(const ExpertProduct& product, const ExpertPlan& plan, StreamRef stream) {
  const TensorView& data = product.weight.data;
  const int rank = data.rank();
  FragmentProduct<T> p{.block = ExpertBlock(product, plan),
                       .output = ExpertOutput(product),
                       .x = static_cast<const T*>(product.x.data()),
                       .weight = static_cast<const unsigned char*>(data.data()),
                       .x_stride = product.x.stride(0),
                       .expert_bytes = rank == 3 ? data.stride(0) : 0,
                       .depth = static_cast<int>(product.x.extent(1)),
                       .tiles = static_cast<int>(fragment_tiles(product.x.extent(1))),
                       .row_tiles = static_cast<int>(data.extent(rank - 2) / kFragmentRows),
                       .stages = 0,  // by tile, below
                       .base = base_and_zero<T>(product.weight.group.zero)};
  const std::int64_t columns = product.gated ? kHalf : kRows;
  const dim3 grid(static_cast<unsigned>((product.out.extent(1) + columns - 1) / columns),
                  static_cast<unsigned>(plan.max_tiles));
  const auto launch_tiles = [&]<int kTokens>(std::integral_constant<int, kTokens>) {
    using Stage = FragmentStage<T, F, kTokens>;
    p.stages = ring_stages(sizeof(Stage), kTokens);
    CUDA_CHECK(launch(fragment_mma_kernel<T, F, kTokens>, grid, dim3(kMmaThreads),
                      static_cast<std::size_t>(p.stages) * sizeof(Stage), native(stream), p));
  };
  if (plan.tile_tokens <= kFewTileTokens)
    return launch_tiles(std::integral_constant<int, kFewTileTokens>());
  if constexpr (F::kBits == 8) {
    if (plan.tile_tokens <= kSomeTileTokens)
      return launch_tiles(std::integral_constant<int, kSomeTileTokens>());
  }
  launch_tiles(std::integral_constant<int, kManyTileTokens>());
}

}  // namespace

bool fragment_product_supports(const ExpertProduct& product) {
  const DType x = product.x.dtype();
  return product.weight.format == WeightFormat::fragments && is_aligned(product.x) &&
         (x == DType::bf16 || x == DType::f16);
}

int fragment_tile_tokens(const GroupFormat& format) {
  const auto fits = [&](int tokens) {
    const std::int64_t weight = kRows / kFragmentRows * fragment_tile_bytes(format);
    const std::int64_t x = std::int64_t{tokens} * kFragmentColumns * 2;
    return ring_stages(static_cast<std::size_t>(weight + x), tokens) != 0;
  };
  return fits(kManyTileTokens) ? kManyTileTokens : kSomeTileTokens;
}

void fragment_mma(const ExpertProduct& product, const ExpertPlan& plan, StreamRef stream) {
  dispatch_fragments(product.weight.group, [&]<class F>(F) {
    if (product.x.dtype() == DType::bf16)
      return launch_product<__nv_bfloat16, F>(product, plan, stream);
    launch_product<__half, F>(product, plan, stream);
  });
}

}  // namespace quire::cuda
