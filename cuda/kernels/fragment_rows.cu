// Rows of packed integers as numbers: an embedding that is the head's table too.

#include "cuda/device/any_view.cuh"
#include "cuda/device/fragments.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 128;

struct RowArgs {
  AnyView out;  // [1, T, K]
  const std::int32_t* ids;
  const unsigned char* tiles;
  std::int64_t first, rows;
  int columns;
  std::uint32_t base;
};

// A block has a row, a thread a quarter of one of its tiles, as a lane has it.
template <class F>
__global__ void __launch_bounds__(kThreads)
    fragment_rows_kernel(const __grid_constant__ RowArgs a) {
  release_next_kernel();
  await_previous_kernel();
  using Number = __nv_bfloat16;
  const std::int64_t row = a.ids[blockIdx.x] - a.first;
  const bool is_here = 0 <= row && row < a.rows;
  const int across = (a.columns - 1) / kFragmentColumns + 1;
  const auto within = static_cast<int>(is_here ? row % kFragmentRows : 0);
  const std::int64_t row_tile = is_here ? row / kFragmentRows : 0;
  for (int i = threadIdx.x; i < across * 4; i += kThreads) {
    const int quarter = i % 4, lane = within % 8 * 4 + quarter;
    LaneTile<F> tile;
    load_tile<F>(tile, a.tiles + (row_tile * across + i / 4) * F::kTileBytes, lane);
#pragma unroll
    for (int slice = 0; slice < kSlicesOfTile; ++slice) {
      std::uint32_t low[4], high[4];
      weight_pairs<Number, F>(low, tile.code, slice, 0, a.base);
      weight_pairs<Number, F>(high, tile.code, slice, 1, a.base);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int part = F::kGroup == 16 ? e / 4 * 16 + quarter * 4 + e % 4 : quarter * 8 + e;
        const int column = i / 4 * kFragmentColumns + slice * kFragmentSlice + part;
        if (column >= a.columns) continue;
        const int group = (slice * kFragmentSlice + (F::kGroup == 16 ? e / 4 * 16 : 0)) / F::kGroup;
        const std::uint32_t pair = within < 8 ? low[e / 2] : high[e / 2];
        const float code = __uint_as_float(e % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
        const float2 scale = scales_of<F>(tile.scale, group, false);
        float value = code * (within < 8 ? scale.x : scale.y);
        if constexpr (F::kHasMin) {
          const float2 minimum = scales_of<F>(tile.scale, group, true);
          value -= within < 8 ? minimum.x : minimum.y;
        }
        a.out.store(0, blockIdx.x, column, is_here ? value : 0.f);
      }
    }
  }
}

}  // namespace

void quantized_embedding(TensorView out, const Weight& weight, std::int64_t first, TensorView ids,
                         StreamRef stream) {
  if (out.numel() == 0) return;
  const RowArgs a{.out = AnyView(out),
                  .ids = static_cast<const std::int32_t*>(ids.data()),
                  .tiles = static_cast<const unsigned char*>(weight.data.data()),
                  .first = first,
                  .rows = weight.data.extent(0),
                  .columns = static_cast<int>(out.extent(1)),
                  .base = base_and_zero<__nv_bfloat16>(weight.group.zero)};
  dispatch_fragments(weight.group, [&]<class F>(F) {
    CUDA_CHECK(launch(fragment_rows_kernel<F>, dim3(static_cast<unsigned>(out.extent(0))),
                      dim3(kThreads), 0, native(stream), a));
  });
}

}  // namespace quire::cuda
