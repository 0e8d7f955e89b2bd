// Operators over rows of one width, one row at a time.

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>

#include "backend/no_token.h"
#include "base/error.h"
#include "cpu/operators.h"

namespace quire::cpu {
namespace {

constexpr float kSwigluLimit = 7.f, kSwigluAlpha = 1.702f;
constexpr std::int64_t kExpWork = 8;  // an exp costs as much as this many other element operations

std::int64_t row_count(TensorView v) { return v.numel() / v.extent(v.rank() - 1); }

void norm(Context& on, const NormArgs& args, std::int64_t rows) {
  on.for_rows(rows, 2 * args.width,
              [&](std::int64_t begin, std::int64_t end) { on.kernels.norm(args, begin, end); });
}

}  // namespace

Act act_of(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return Act::silu;
    case Activation::gelu_tanh:
      return Act::gelu_tanh;
    case Activation::relu2:
      return Act::relu2;
    case Activation::clamped_swiglu:
      return Act::clamped_swiglu;
  }
  return Act::silu;
}

Float float_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return Float::f32;
    case DType::bf16:
      return Float::bf16;
    case DType::f16:
      return Float::f16;
    default:
      throw Failure(ErrorCode::internal,
                    "no floating-point kernel for dtype " + std::string(name_of(dtype)));
  }
}

Rows rows_of(TensorView view) {
  assert(view.rank() == 2 || view.rank() == 3);
  assert(view.stride(view.rank() - 1) == 1 || view.extent(view.rank() - 1) == 1);
  const Float type = float_of(view.dtype());
  if (view.rank() == 2) return {view.data(), type, view.stride(0), 1, 0};
  return {view.data(), type, view.stride(0), view.extent(1), view.stride(1)};
}

void embedding(Context& on, TensorView out, TensorView table, TensorView ids) {
  const auto id = ids.as<std::int32_t, 1>();
  const std::int64_t width = out.extent(1);
  assert(table.extent(1) == width && ids.extent(0) == out.extent(0));
  on.for_rows(out.extent(0), width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int32_t row = std::max(id(i), 0);  // kNoToken
      assert(kNoToken <= id(i) && row < table.extent(0));
      on.kernels.copy_rows(rows_of(out.rows(i, i + 1)), rows_of(table.rows(row, row + 1)), width, 0,
                           1);
    }
  });
}

void embedding_share(Context& on, TensorView out, TensorView table, std::int64_t first,
                     TensorView ids) {
  const auto id = ids.as<std::int32_t, 1>();
  const std::int64_t width = out.extent(1);
  assert(table.extent(1) == width && ids.extent(0) == out.extent(0) && out.stride(1) == 1);
  on.for_rows(out.extent(0), width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = std::max(id(i), 0) - first;
      const TensorView to = out.rows(i, i + 1);
      if (row < 0 || row >= table.extent(0)) {
        std::memset(to.data(), 0, to.bytes());
        continue;
      }
      on.kernels.copy_rows(rows_of(to), rows_of(table.rows(row, row + 1)), width, 0, 1);
    }
  });
}

void gather_rows(Context& on, TensorView out, TensorView x, TensorView rows) {
  const auto row = rows.as<std::int32_t, 1>();
  assert(out.dtype() == x.dtype() && out.extent(1) == x.extent(1));
  assert(out.stride(1) == 1 && x.stride(1) == 1);
  const std::size_t bytes = static_cast<std::size_t>(out.extent(1)) * size_of(out.dtype());
  on.for_rows(out.extent(0), out.extent(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int32_t from = std::max(row(i), 0);  // kNoToken
      assert(kNoToken <= row(i) && from < x.extent(0));
      std::memcpy(out.rows(i, i + 1).data(), x.rows(from, from + 1).data(), bytes);
    }
  });
}

void copy(Context& on, TensorView out, TensorView x) {
  assert(out.numel() == x.numel() && out.rank() == x.rank());
  const std::int64_t width = x.extent(x.rank() - 1);
  const Rows to = rows_of(out), from = rows_of(x);
  on.for_rows(row_count(x), width, [&](std::int64_t begin, std::int64_t end) {
    on.kernels.copy_rows(to, from, width, begin, end);
  });
}

NormArgs norm_args(TensorView out, TensorView x, TensorView weight, float eps,
                   float weight_offset) {
  assert(x.dtype() == out.dtype() || x.dtype() == DType::f32);
  assert(out.numel() == x.numel());
  const std::int64_t width = x.extent(x.rank() - 1);
  assert(weight.numel() == width);
  return {.out = rows_of(out),
          .x = rows_of(x),
          .residual = {},
          .gate = {},
          .weight = weight.data(),
          .weight_type = float_of(weight.dtype()),
          .weight_rows = 1,
          .width = width,
          .eps = eps,
          .weight_offset = weight_offset,
          .norm_first = false};
}

void rms_norm(Context& on, TensorView out, TensorView x, TensorView weight, float eps,
              float weight_offset) {
  norm(on, norm_args(out, x, weight, eps, weight_offset), row_count(x));
}

void add_rms_norm(Context& on, TensorView out, TensorView residual, TensorView x, TensorView weight,
                  float eps, float weight_offset) {
  assert(x.dtype() == out.dtype() || x.dtype() == DType::f32);
  assert(residual.dtype() == out.dtype() || residual.dtype() == DType::f32);
  assert(weight.numel() == x.extent(1));
  norm(on,
       {.out = rows_of(out),
        .x = rows_of(x),
        .residual = rows_of(residual),
        .gate = {},
        .weight = weight.data(),
        .weight_type = float_of(weight.dtype()),
        .weight_rows = 1,
        .width = x.extent(1),
        .eps = eps,
        .weight_offset = weight_offset,
        .norm_first = false},
       row_count(x));
}

void gated_rms_norm(Context& on, TensorView out, TensorView x, TensorView gate, TensorView weight,
                    float eps, bool norm_first) {
  assert(x.rank() == 3 && gate.dtype() == out.dtype());
  assert(x.dtype() == out.dtype() || x.dtype() == DType::f32);
  const std::int64_t width = x.extent(2);
  assert(weight.numel() == width || weight.numel() == width * x.extent(1));
  norm(on,
       {.out = rows_of(out),
        .x = rows_of(x),
        .residual = {},
        .gate = rows_of(gate),
        .weight = weight.data(),
        .weight_type = float_of(weight.dtype()),
        .weight_rows = weight.numel() / width,
        .width = width,
        .eps = eps,
        .weight_offset = 0.f,
        .norm_first = norm_first},
       row_count(x));
}

void add(Context& on, TensorView out, TensorView a, TensorView b) {
  assert(out.dtype() == a.dtype() && a.numel() == b.numel());
  const std::int64_t width = a.extent(a.rank() - 1);
  const BinaryArgs args{rows_of(out), rows_of(a), rows_of(b), width, width, 0.f};
  on.for_rows(row_count(a), width,
              [&](std::int64_t begin, std::int64_t end) { on.kernels.add(args, begin, end); });
}

void scale(Context& on, TensorView x, float factor) {
  const std::int64_t width = x.extent(x.rank() - 1);
  const BinaryArgs args{rows_of(x), rows_of(x), {}, width, width, factor};
  on.for_rows(row_count(x), width,
              [&](std::int64_t begin, std::int64_t end) { on.kernels.scale(args, begin, end); });
}

void sigmoid_gate(Context& on, TensorView x, TensorView gate) {
  const std::int64_t width = x.extent(1);
  assert(gate.extent(0) == x.extent(0) && (gate.extent(1) == width || gate.extent(1) == 1));
  const BinaryArgs args{rows_of(x), rows_of(x), rows_of(gate), width, gate.extent(1), 0.f};
  on.for_rows(x.extent(0), width * kExpWork, [&](std::int64_t begin, std::int64_t end) {
    on.kernels.sigmoid_gate(args, begin, end);
  });
}

RopeArgs rope_args(TensorView x, TensorView positions, TensorView cos_sin, RopeStyle style) {
  assert(x.rank() == 3 && cos_sin.dtype() == DType::f32 && cos_sin.contiguous());
  assert(cos_sin.extent(1) <= x.extent(2));
  return {rows_of(x),
          positions.as<std::int32_t, 1>().data,
          static_cast<const float*>(cos_sin.data()),
          cos_sin.extent(1),
          x.extent(1),
          style == RopeStyle::interleaved};
}

void rope(Context& on, TensorView x, TensorView positions, TensorView cos_sin, RopeStyle style) {
  const RopeArgs args = rope_args(x, positions, cos_sin, style);
  on.for_rows(x.extent(0) * x.extent(1), args.rotary,
              [&](std::int64_t begin, std::int64_t end) { on.kernels.rope(args, begin, end); });
}

void activate(Context& on, const ActArgs& args, std::int64_t rows) {
  on.for_rows(rows, args.width * kExpWork, [&](std::int64_t begin, std::int64_t end) {
    on.kernels.activation(args, begin, end);
  });
}

void gated_activation(Context& on, TensorView out, TensorView gate_up, Activation activation) {
  const std::int64_t width = out.extent(1);
  assert(gate_up.extent(1) == 2 * width && out.dtype() == gate_up.dtype());
  const ActArgs args{rows_of(out),
                     rows_of(gate_up.narrow(1, 0, width)),
                     rows_of(gate_up.narrow(1, width, 2 * width)),
                     width,
                     act_of(activation),
                     kSwigluLimit,
                     kSwigluAlpha};
  activate(on, args, out.extent(0));
}

void activation(Context& on, TensorView out, TensorView x, Activation activation) {
  assert(activation != Activation::clamped_swiglu && out.dtype() == x.dtype());
  const std::int64_t width = x.extent(x.rank() - 1);
  const ActArgs args{rows_of(out), rows_of(x), {}, width, act_of(activation), 0.f, 0.f};
  activate(on, args, row_count(x));
}

void soft_cap(Context& on, TensorView x, float cap) {
  const std::int64_t width = x.extent(x.rank() - 1);
  const ActArgs args{rows_of(x), rows_of(x), {}, width, Act::tanh_cap, cap, 0.f};
  activate(on, args, row_count(x));
}

}  // namespace quire::cpu
