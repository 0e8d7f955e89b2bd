// Products with weights in groups (backend/group_weights.h): the input in 8 bits, and the cut into
// tasks of whole tiles.

#include <algorithm>
#include <cassert>
#include <vector>

#include "backend/dispatch.h"
#include "backend/group_pack.h"
#include "cpu/operators.h"
#include "cpu/product.h"

namespace quire::cpu {
namespace {

constexpr std::int64_t kMacsWorthSharing = 1 << 16;

}  // namespace

void quantize_input(Context& on, TensorView x, const GroupFormat& format) {
  const std::int64_t rows = x.extent(0), k = x.extent(1);
  GroupInput& to = on.group_input;
  const std::int64_t padded = (rows + kGroupInputRows - 1) / kGroupInputRows * kGroupInputRows;
  const auto elements = static_cast<std::size_t>(padded * k);
  if (to.codes.size() < elements) {
    to.codes.resize(elements);
    to.scales.resize(elements / 32);
    to.starts.resize(elements / 16);
    to.mins.resize(elements / 16);
  }
  const Rows from = rows_of(x);
  on.for_rows(rows, k, [&](std::int64_t begin, std::int64_t end) {
    on.kernels.quantize_groups(from, k, format.zero, format.group, to.rows(), begin, end);
  });
}

GroupGemmArgs group_args(Context& on, const Weight& weight, std::int64_t expert,
                         TensorView out, TensorView bias, std::int64_t k) {
  const GroupFormat& format = weight.group;
  const TensorView matrix =
      weight.data.rank() > 2 ? weight.data.rows(expert, expert + 1) : weight.data;
  const std::int64_t row_bytes = weight.data.extent(weight.data.rank() - 1);
  assert(row_bytes == group_row_bytes(format, k));
  return {.w = static_cast<const std::uint8_t*>(matrix.data()),
          .w_stride = row_bytes * kGroupTileRows,
          .tile_bytes = static_cast<std::int64_t>(group_tile_bytes(format)),
          .bits = format.bits,
          .group = format.group,
          .has_min = format.has_min,
          .table = format.nonlinear ? kNonlinearCodes : nullptr,
          .x = on.group_input.rows(),
          .out = out.data(),
          .out_type = float_of(out.dtype()),
          .out_stride = out.stride(0),
          .bias = bias.data(),
          .bias_type = bias.empty() ? Float::f32 : float_of(bias.dtype()),
          .n = out.extent(1),
          .k = k};
}

void grouped_linear(Context& on, TensorView out, TensorView x, const Weight& weight,
                    TensorView bias) {
  const std::int64_t m = x.extent(0), n = out.extent(1), k = x.extent(1);
  assert(out.extent(0) == m && weight.data.extent(0) >= n && k % kGroupTileColumns == 0);
  if (m == 0) return;
  quantize_input(on, x, weight.group);
  const GroupGemmArgs args = group_args(on, weight, 0, out, bias, k);
  const std::int64_t tiles = (n + kGroupTileRows - 1) / kGroupTileRows;
  on.pool.parallel_for(tiles, kMacsWorthSharing / (m * kGroupTileRows * k) + 1,
                       [&](std::int64_t begin, std::int64_t end) {
                         on.kernels.gemm_groups(args, 0, m, begin * kGroupTileRows,
                                                std::min(n, end * kGroupTileRows));
                       });
}

void quantized_embedding(Context& on, TensorView out, const Weight& weight, std::int64_t first,
                         TensorView ids) {
  const auto id = ids.as<std::int32_t, 1>();
  const std::int64_t width = out.extent(1);
  assert(weight.data.extent(1) == group_row_bytes(weight.group, width));
  assert(ids.extent(0) == out.extent(0));
  const auto* const tiles = static_cast<const std::byte*>(weight.data.data());
  dispatch_float(out.dtype(), [&]<class T>(Type<T>) {
    on.for_rows(out.extent(0), width, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> row(static_cast<std::size_t>(width));
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int64_t at = id(t) - first;
        if (at < 0 || at >= weight.data.extent(0)) {
          std::ranges::fill(row, 0.f);
        } else {
          unpack_row(weight.group, tiles, at, row);
        }
        T* const to = static_cast<T*>(out.data()) + t * out.stride(0);
        std::ranges::transform(row, to, [](float value) { return static_cast<T>(value); });
      }
    });
  });
}

}  // namespace quire::cpu
