// Launches of expert_mma.cuh for every format, with as much of a ring as this device has room for.

#include "cuda/kernels/expert_mma.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/capability.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

template <class Format>
int scale_columns(const ExpertProduct& product) {
  const TensorView& scales = product.weight.scales;
  if (scales.empty() || product.weight.format == WeightFormat::fp8_rows) return 1;
  return static_cast<int>(scales.extent(scales.rank() - 1));
}

template <class Format>
std::size_t ring_bytes(const ExpertProduct& product, int tokens, int stages) {
  const std::size_t weight = 2 * kRows * Format::kSliceBytes,
                    x = 2 * static_cast<std::size_t>(tokens) * kSlice *
                        sizeof(typename Format::Element);
  constexpr int kMultiple = Format::kFoldDepth != 0 ? 4 : 1;  // of scales of a row
  const int columns = (scale_columns<Format>(product) + kMultiple - 1) / kMultiple * kMultiple;
  const std::size_t scales =
      Format::kScaleDepth == 0 && Format::kFoldDepth == 0
          ? 0
          : static_cast<std::size_t>(columns) * kRows * sizeof(typename Format::Scale);
  return static_cast<std::size_t>(stages) * (weight + x) + scales;
}

// Of the ring for tiles of so many tokens, or 0 where a block has too little shared memory.
template <class Format>
int ring_stages(const ExpertProduct& product, int tokens) {
  constexpr std::size_t kStatic = 1024;  // a row's floats, up to where dynamic memory may begin
  static_assert(kRows * sizeof(float) <= kStatic);
  const auto fits = [&](int stages) {
    return ring_bytes<Format>(product, tokens, stages) + kStatic <= shared_memory_limit();
  };
  if (fits(kStages)) return kStages;
  return tokens == kManyTileTokens && kShortens<Format, kManyTileTokens> && fits(kFewestStages)
             ? kFewestStages
             : 0;
}

template <class Format>
void launch_product(const ExpertProduct& product, const ExpertPlan& plan, StreamRef stream) {
  const TensorView &data = product.weight.data, &scales = product.weight.scales;
  const int rank = data.rank();
  const int per_matrix =
      product.weight.format == WeightFormat::fp8_rows ? 1 : 2;  // dimensions of a matrix's scales
  const auto element = static_cast<std::int64_t>(size_of(data.dtype()));
  MmaProduct<Format> p{
      .block = ExpertBlock(product, plan),
      .output = ExpertOutput(product),
      .x = static_cast<const typename Format::Element*>(product.x.data()),
      .weight = static_cast<const unsigned char*>(data.data()),
      .scales = static_cast<const typename Format::Scale*>(scales.data()),
      .x_stride = product.x.stride(0),
      .row_bytes = data.stride(rank - 2) * element,
      .expert_bytes = rank == 3 ? data.stride(0) * element : 0,
      .scale_stride = scales.empty() ? 0 : scales.stride(scales.rank() - per_matrix),
      .expert_scales = scales.rank() > per_matrix ? scales.stride(0) : 0,
      .depth = static_cast<int>(product.x.extent(1)),
      .scale_rows = product.weight.format == WeightFormat::fp8_blocks ? kFp8Block : 1,
      .scale_columns = scale_columns<Format>(product),
      .stages = 0};  // by tile, below
  const std::int64_t columns = product.gated ? kHalf : kRows;
  const dim3 grid(static_cast<unsigned>((product.out.extent(1) + columns - 1) / columns),
                  static_cast<unsigned>(plan.max_tiles));
  const auto launch_tiles = [&]<int kTokens>(std::integral_constant<int, kTokens>) {
    p.stages = ring_stages<Format>(product, kTokens);
    CUDA_CHECK(launch(expert_mma_kernel<Format, kTokens>, grid, dim3(kThreads),
                      ring_bytes<Format>(product, kTokens, p.stages), native(stream), p));
  };
  if (plan.tile_tokens == kFewTileTokens)
    return launch_tiles(std::integral_constant<int, kFewTileTokens>());
  launch_tiles(std::integral_constant<int, kManyTileTokens>());
}

template <class Call>
auto dispatch_format(const ExpertProduct& product, Call&& call) {
  if (product.weight.format == WeightFormat::mxfp4) return call(Type<Mxfp4Format>());
  const bool bf16 = product.x.dtype() == DType::bf16;
  if (is_fp8(product.weight.format)) {
    if (bf16) return call(Type<Fp8Format<__nv_bfloat16>>());
    return call(Type<Fp8Format<__half>>());
  }
  if (bf16) return call(Type<PlainFormat<__nv_bfloat16>>());
  return call(Type<PlainFormat<__half>>());
}

}  // namespace

int expert_tile_tokens(const ExpertProduct& product) {
  return dispatch_format(product, [&]<class Format>(Type<Format>) {
    if (ring_stages<Format>(product, kManyTileTokens) != 0) return kManyTileTokens;
    return ring_stages<Format>(product, kFewTileTokens) != 0 ? kFewTileTokens : 0;
  });
}

bool expert_product_mma_supports(const ExpertProduct& product) {
  const TensorView &x = product.x, &data = product.weight.data;
  if (!is_aligned(x) || !is_aligned(data)) return false;
  if (product.weight.format == WeightFormat::mxfp4) {
    if (x.dtype() != DType::bf16 || x.extent(1) % kMxGroup != 0) return false;
  } else {
    if (x.dtype() != DType::bf16 && x.dtype() != DType::f16) return false;
    if (!is_fp8(product.weight.format) && (data.dtype() != x.dtype() || x.extent(1) % 8 != 0))
      return false;
  }
  return expert_tile_tokens(product) != 0;
}

void expert_product_mma(const ExpertProduct& product, const ExpertPlan& plan, StreamRef stream) {
  dispatch_format(
      product, [&]<class Format>(Type<Format>) { launch_product<Format>(product, plan, stream); });
}

}  // namespace quire::cuda
