#include "cuda/gemm_problem.h"

#include <algorithm>
#include <bit>

namespace quire::cuda {
namespace {

std::uint32_t alignment_of(const TensorView& tensor) {
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data());
  return std::uint32_t{1} << std::countr_zero(address | std::uintptr_t{kGemmAlignment});
}

GemmPlace place(const TensorView& tensor, std::int64_t leading, std::int64_t step) {
  return {leading, step, alignment_of(tensor)};
}

std::string text(const GemmPlace& at) {
  return std::to_string(at.leading) + "+" + std::to_string(at.batch_stride) + "@" +
         std::to_string(at.alignment);
}

}  // namespace

GemmProblem GemmProblem::of(const GemmOperands& o, WeightFormat format) {
  const bool has_bias = !o.bias.empty();
  return {.n = o.out.extent(1),
          .k = o.x.extent(1),
          .batch = 1,
          .out = o.out.dtype(),
          .x = o.x.dtype(),
          .weight = o.weight.dtype(),
          .format = format,
          .bias = has_bias ? std::optional(o.bias.dtype()) : std::nullopt,
          .bias_alignment = has_bias ? alignment_of(o.bias) : 0,
          .out_at = place(o.out, o.out.stride(0), 0),
          .x_at = place(o.x, o.x.stride(0), 0),
          .weight_at = place(o.weight, o.weight.stride(0), 0)};
}

GemmProblem GemmProblem::of_heads(const GemmOperands& o) {
  return {.n = o.out.extent(2),
          .k = o.x.extent(2),
          .batch = static_cast<std::int32_t>(o.weight.extent(0)),
          .out = o.out.dtype(),
          .x = o.x.dtype(),
          .weight = o.weight.dtype(),
          .format = WeightFormat::plain,
          .bias = std::nullopt,
          .bias_alignment = 0,
          .out_at = place(o.out, o.out.stride(0), o.out.stride(1)),
          .x_at = place(o.x, o.x.stride(0), o.x.stride(1)),
          .weight_at = place(o.weight, o.weight.stride(1), o.weight.stride(0))};
}

std::string GemmProblem::shape() const {
  std::string text = "[T, " + std::to_string(k) + "] " + std::string(name_of(x)) + " x [" +
                     std::to_string(n) + ", " + std::to_string(k) + "] " +
                     std::string(name_of(weight)) + " to " + std::string(name_of(out));
  if (batch > 1) text += ", a batch of " + std::to_string(batch);
  if (bias) text += ", with a bias in " + std::string(name_of(*bias));
  return text;
}

std::string GemmProblem::key() const {
  return std::to_string(n) + "x" + std::to_string(k) + "x" + std::to_string(batch) + " " +
         std::string(name_of(out)) + " " + std::string(name_of(x)) + " " +
         std::string(name_of(weight)) + " " + std::to_string(static_cast<int>(format)) + " " +
         (bias ? std::string(name_of(*bias)) : "-") + "@" + std::to_string(bias_alignment) + " " +
         text(out_at) + " " + text(x_at) + " " + text(weight_at);
}

std::int64_t gemm_bucket(std::int64_t tokens) {
  if (tokens <= 1) return 1;
  const auto below = std::bit_floor(static_cast<std::uint64_t>(tokens - 1));
  const auto step = std::max<std::int64_t>(8, static_cast<std::int64_t>(below) / 4);
  return (tokens + step - 1) / step * step;
}

}  // namespace quire::cuda
