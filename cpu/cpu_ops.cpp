#include "cpu/cpu_ops.h"

#include <cassert>
#include <cstring>
#include <string>

#include "base/error.h"
#include "cpu/kernel_choice.h"

namespace quire {
namespace {

constexpr float kSwigluLimit = 7.f, kSwigluAlpha = 1.702f;
constexpr std::int64_t kExpWork = 8;  // an exp costs as much as this many other element operations

std::int64_t row_count(TensorView v) { return v.numel() / v.extent(v.rank() - 1); }

}  // namespace

cpu::Act act_of(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return cpu::Act::silu;
    case Activation::gelu_tanh:
      return cpu::Act::gelu_tanh;
    case Activation::relu2:
      return cpu::Act::relu2;
    case Activation::clamped_swiglu:
      return cpu::Act::clamped_swiglu;
  }
  return cpu::Act::silu;
}

cpu::Float float_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return cpu::Float::f32;
    case DType::bf16:
      return cpu::Float::bf16;
    case DType::f16:
      return cpu::Float::f16;
    default:
      throw Failure(ErrorCode::internal,
                    "no floating-point kernel for dtype " + std::string(name_of(dtype)));
  }
}

cpu::Rows rows_of(TensorView view) {
  assert(view.rank() == 2 || view.rank() == 3);
  assert(view.stride(view.rank() - 1) == 1 || view.extent(view.rank() - 1) == 1);
  const cpu::Float type = float_of(view.dtype());
  if (view.rank() == 2) return {view.data(), type, view.stride(0), 1, 0};
  return {view.data(), type, view.stride(0), view.extent(1), view.stride(1)};
}

CpuOps::CpuOps(const CpuOptions& options)
    : pool_(options.threads > 0 ? options.threads : available_cores()),
      kernels_(choose_kernels(options.best_isa)) {}

std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options) {
  return std::make_unique<CpuOps>(options);
}

void CpuOps::embedding(TensorView out, TensorView table, TensorView ids, StreamRef) {
  const auto id = ids.as<std::int32_t, 1>();
  const std::int64_t width = out.extent(1);
  assert(table.extent(1) == width && ids.extent(0) == out.extent(0));
  for_rows(out.extent(0), width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      assert(0 <= id(i) && id(i) < table.extent(0));
      kernels_.copy_rows(rows_of(out.rows(i, i + 1)), rows_of(table.rows(id(i), id(i) + 1)), width,
                         0, 1);
    }
  });
}

void CpuOps::gather_rows(TensorView out, TensorView x, TensorView rows, StreamRef) {
  const auto row = rows.as<std::int32_t, 1>();
  assert(out.dtype() == x.dtype() && out.extent(1) == x.extent(1));
  assert(out.stride(1) == 1 && x.stride(1) == 1);
  const std::size_t bytes = static_cast<std::size_t>(out.extent(1)) * size_of(out.dtype());
  for_rows(out.extent(0), out.extent(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      assert(0 <= row(i) && row(i) < x.extent(0));
      std::memcpy(out.rows(i, i + 1).data(), x.rows(row(i), row(i) + 1).data(), bytes);
    }
  });
}

void CpuOps::copy(TensorView out, TensorView x, StreamRef) {
  assert(out.numel() == x.numel() && out.rank() == x.rank());
  const std::int64_t width = x.extent(x.rank() - 1);
  const cpu::Rows to = rows_of(out), from = rows_of(x);
  for_rows(row_count(x), width, [&](std::int64_t begin, std::int64_t end) {
    kernels_.copy_rows(to, from, width, begin, end);
  });
}

void CpuOps::norm(const cpu::NormArgs& args, std::int64_t rows) {
  for_rows(rows, 2 * args.width,
           [&](std::int64_t begin, std::int64_t end) { kernels_.norm(args, begin, end); });
}

void CpuOps::rms_norm(TensorView out, TensorView x, TensorView weight, float eps,
                      float weight_offset, StreamRef) {
  assert(x.dtype() == out.dtype() || x.dtype() == DType::f32);
  assert(out.numel() == x.numel());
  const std::int64_t width = x.extent(x.rank() - 1);
  assert(weight.numel() == width);
  norm({.out = rows_of(out),
        .x = rows_of(x),
        .residual = {},
        .gate = {},
        .weight = weight.data(),
        .weight_type = float_of(weight.dtype()),
        .weight_rows = 1,
        .width = width,
        .eps = eps,
        .weight_offset = weight_offset,
        .norm_first = false},
       row_count(x));
}

void CpuOps::add_rms_norm(TensorView out, TensorView residual, TensorView x, TensorView weight,
                          float eps, float weight_offset, StreamRef) {
  assert(x.dtype() == out.dtype() || x.dtype() == DType::f32);
  assert(residual.dtype() == out.dtype() || residual.dtype() == DType::f32);
  assert(weight.numel() == x.extent(1));
  norm({.out = rows_of(out),
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

void CpuOps::gated_rms_norm(TensorView out, TensorView x, TensorView gate, TensorView weight,
                            float eps, bool norm_first, StreamRef) {
  assert(x.rank() == 3 && gate.dtype() == out.dtype());
  assert(x.dtype() == out.dtype() || x.dtype() == DType::f32);
  const std::int64_t width = x.extent(2);
  assert(weight.numel() == width || weight.numel() == width * x.extent(1));
  norm({.out = rows_of(out),
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

void CpuOps::add(TensorView out, TensorView a, TensorView b, StreamRef) {
  assert(out.dtype() == a.dtype() && a.numel() == b.numel());
  const std::int64_t width = a.extent(a.rank() - 1);
  const cpu::BinaryArgs args{rows_of(out), rows_of(a), rows_of(b), width, width, 0.f};
  for_rows(row_count(a), width,
           [&](std::int64_t begin, std::int64_t end) { kernels_.add(args, begin, end); });
}

void CpuOps::scale(TensorView x, float factor, StreamRef) {
  const std::int64_t width = x.extent(x.rank() - 1);
  const cpu::BinaryArgs args{rows_of(x), rows_of(x), {}, width, width, factor};
  for_rows(row_count(x), width,
           [&](std::int64_t begin, std::int64_t end) { kernels_.scale(args, begin, end); });
}

void CpuOps::sigmoid_gate(TensorView x, TensorView gate, StreamRef) {
  const std::int64_t width = x.extent(1);
  assert(gate.extent(0) == x.extent(0) && (gate.extent(1) == width || gate.extent(1) == 1));
  const cpu::BinaryArgs args{rows_of(x), rows_of(x), rows_of(gate), width, gate.extent(1), 0.f};
  for_rows(x.extent(0), width * kExpWork,
           [&](std::int64_t begin, std::int64_t end) { kernels_.sigmoid_gate(args, begin, end); });
}

void CpuOps::rope(TensorView x, TensorView positions, TensorView cos_sin, RopeStyle style,
                  StreamRef) {
  assert(x.rank() == 3 && cos_sin.dtype() == DType::f32 && cos_sin.contiguous());
  const cpu::RopeArgs args{rows_of(x),
                           positions.as<std::int32_t, 1>().data,
                           static_cast<const float*>(cos_sin.data()),
                           cos_sin.extent(1),
                           x.extent(1),
                           style == RopeStyle::interleaved};
  assert(args.rotary <= x.extent(2));
  for_rows(x.extent(0) * x.extent(1), args.rotary,
           [&](std::int64_t begin, std::int64_t end) { kernels_.rope(args, begin, end); });
}

void CpuOps::activate(const cpu::ActArgs& args, std::int64_t rows) {
  for_rows(rows, args.width * kExpWork,
           [&](std::int64_t begin, std::int64_t end) { kernels_.activation(args, begin, end); });
}

void CpuOps::gated_activation(TensorView out, TensorView gate_up, Activation activation,
                              StreamRef) {
  const std::int64_t width = out.extent(1);
  assert(gate_up.extent(1) == 2 * width && out.dtype() == gate_up.dtype());
  const cpu::ActArgs args{rows_of(out),
                          rows_of(gate_up.narrow(1, 0, width)),
                          rows_of(gate_up.narrow(1, width, 2 * width)),
                          width,
                          act_of(activation),
                          kSwigluLimit,
                          kSwigluAlpha};
  activate(args, out.extent(0));
}

void CpuOps::activation(TensorView out, TensorView x, Activation activation, StreamRef) {
  assert(activation != Activation::clamped_swiglu && out.dtype() == x.dtype());
  const std::int64_t width = x.extent(x.rank() - 1);
  const cpu::ActArgs args{rows_of(out), rows_of(x), {}, width, act_of(activation), 0.f, 0.f};
  activate(args, row_count(x));
}

void CpuOps::soft_cap(TensorView x, float cap, StreamRef) {
  const std::int64_t width = x.extent(x.rank() - 1);
  const cpu::ActArgs args{rows_of(x), rows_of(x), {}, width, cpu::Act::tanh_cap, cap, 0.f};
  activate(args, row_count(x));
}

}  // namespace quire
