// Experts computed over the tokens that were sent to them: pairs (token, choice) are sorted by
// expert, so an expert's weights are read once and an expert without tokens costs nothing.

#include <algorithm>
#include <cassert>

#include "base/error.h"
#include "cpu/operators.h"
#include "cpu/product.h"

namespace quire::cpu {
namespace {

// Pairs (token, choice) sorted by expert: those of expert e are pairs[start[e] … start[e + 1]).
struct ExpertPlan {
  std::int32_t* start;
  std::int32_t* pairs;     // token · choices + choice
  std::int32_t* position;  // of each pair in pairs
  std::int32_t* active;    // experts with pairs
  std::int64_t num_active = 0;
};

constexpr std::int64_t kMacsWorthSharing = 1 << 16;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Bump allocation in the caller's workspace.
class Arena {
 public:
  explicit Arena(TensorView memory)
      : at_(static_cast<std::byte*>(memory.data())), end_(at_ + memory.bytes()) {}
  template <class T>
  T* take(std::int64_t count) {
    auto* const p = reinterpret_cast<T*>(at_);
    at_ += (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
    if (at_ > end_) throw Failure(ErrorCode::internal, "the workspace of moe_experts is too small");
    return p;
  }

 private:
  std::byte* at_;
  std::byte* end_;
};

// memory: 2 · experts + 1 + 2 · pairs numbers.
ExpertPlan plan_experts(TensorView ids, std::int64_t experts, std::int32_t* memory) {
  const std::int64_t count = ids.numel();
  ExpertPlan plan{memory, memory + experts + 1, memory + experts + 1 + count,
                  memory + experts + 1 + 2 * count};
  const auto id = ids.reshape({count}).as<std::int32_t, 1>();
  std::fill(plan.start, plan.start + experts + 1, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    assert(0 <= id(i) && id(i) < experts);
    ++plan.start[id(i) + 1];
  }
  for (std::int64_t e = 0; e < experts; ++e) {
    if (plan.start[e + 1] > 0) plan.active[plan.num_active++] = static_cast<std::int32_t>(e);
    plan.start[e + 1] += plan.start[e];
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t at = plan.start[id(i)]++;
    plan.pairs[at] = static_cast<std::int32_t>(i);
    plan.position[i] = at;
  }
  std::copy_backward(plan.start, plan.start + experts, plan.start + experts + 1);
  plan.start[0] = 0;
  return plan;
}

void grouped_expert_product(Context& on, const ExpertPlan& plan, TensorView out, TensorView in,
                            const Weight& weight, TensorView bias) {
  constexpr std::int64_t kTaskTiles = 4;
  const std::int64_t n = out.extent(1), k = in.extent(1), width = kTaskTiles * kGroupTileRows;
  const std::int64_t parts = ceil_div(n, width), rows = ceil_div(in.extent(0), plan.num_active);
  quantize_input(on, in, weight.group);
  on.pool.parallel_for(
      plan.num_active * parts, kMacsWorthSharing / (rows * width * k + 1) + 1,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
          const std::int64_t expert = plan.active[t / parts], n_begin = t % parts * width;
          const TensorView own_bias = bias.empty() ? bias : bias.rows(expert, expert + 1);
          on.kernels.gemm_groups(group_args(on, weight, expert, out, own_bias, k),
                                 plan.start[expert], plan.start[expert + 1], n_begin,
                                 std::min(n, n_begin + width));
        }
      });
}

// out[p] = in[p] · weightᵀ + bias of the pair's expert, for all pairs.
void expert_product(Context& on, const ExpertPlan& plan, TensorView out, TensorView in,
                    const Weight& weight, TensorView bias) {
  const std::int64_t n = out.extent(1), k = in.extent(1);
  if (weight.format == WeightFormat::groups) {
    return grouped_expert_product(on, plan, out, in, weight, bias);
  }
  const Float type = float_of(in.dtype());
  const std::int64_t rows = ceil_div(in.extent(0), plan.num_active);
  const std::int64_t width = task_columns(on, type, rows), parts = ceil_div(n, width);
  on.pool.parallel_for(
      plan.num_active * parts, kMacsWorthSharing / (rows * width * k + 1) + 1,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
          const std::int64_t expert = plan.active[t / parts], n_begin = t % parts * width;
          const Matrix matrix = matrix_of(weight, expert);
          const TensorView own_bias = bias.empty() ? bias : bias.rows(expert, expert + 1);
          const GemmArgs gemm{.w = matrix.data,
                              .w_type = matrix.type,
                              .w_stride = matrix.stride,
                              .x = in.data(),
                              .x_stride = in.stride(0),
                              .out = out.data(),
                              .out_type = float_of(out.dtype()),
                              .out_stride = out.stride(0),
                              .bias = own_bias.data(),
                              .bias_type = bias.empty() ? Float::f32 : float_of(bias.dtype()),
                              .k = k};
          product(on, gemm, matrix, type, plan.start[expert], plan.start[expert + 1], n_begin,
                  std::min(n, n_begin + width));
        }
      });
}

}  // namespace

void moe_experts(Context& on, const MoeExpertsArgs& args) {
  const std::int64_t tokens = args.x.extent(0), hidden = args.x.extent(1), k = args.ids.extent(1);
  const std::int64_t experts = args.gate_up.data.extent(0), rows = args.gate_up.data.extent(1);
  const std::int64_t inner = args.gated ? rows / 2 : rows, pairs = tokens * k;
  if (tokens == 0) return;
  Arena arena(args.workspace);
  const ExpertPlan plan =
      plan_experts(args.ids, experts, arena.take<std::int32_t>(2 * experts + 1 + 2 * pairs));
  const auto takes_bf16 = [&](const Weight& weight) {
    if (weight.format == WeightFormat::groups) return false;
    return product_type(on, args.x.dtype(), matrix_of(weight, 0)) == Float::bf16;
  };
  const Float type = takes_bf16(args.gate_up) && takes_bf16(args.down) ? Float::bf16 : Float::f32;
  const DType dtype = type == Float::f32 ? DType::f32 : DType::bf16;
  const TensorView x(arena.take<float>(pairs * hidden), dtype, {pairs, hidden});
  const TensorView h(arena.take<float>(pairs * rows), dtype, {pairs, rows});
  const TensorView a(arena.take<float>(pairs * inner), dtype, {pairs, inner});
  const TensorView y(arena.take<float>(pairs * hidden), DType::f32, {pairs, hidden});

  on.for_rows(pairs, hidden, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t token = plan.pairs[p] / k;
      on.kernels.copy_rows(rows_of(x.rows(p, p + 1)), rows_of(args.x.rows(token, token + 1)),
                           hidden, 0, 1);
    }
  });
  expert_product(on, plan, h, x, args.gate_up, args.gate_up_bias);
  activate(on,
           {rows_of(a), rows_of(h.narrow(1, 0, inner)),
            args.gated ? rows_of(h.narrow(1, inner, rows)) : Rows{}, inner, act_of(args.activation),
            args.swiglu_limit, args.swiglu_alpha},
           pairs);
  expert_product(on, plan, y, a, args.down, args.down_bias);
  const auto weights = args.weights.as<float, 2>();
  on.for_rows(tokens, hidden * k, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      on.kernels.combine(rows_of(args.out.rows(t, t + 1)), static_cast<const float*>(y.data()),
                         hidden, plan.position + t * k, &weights(t, 0), k);
    }
  });
}

}  // namespace quire::cpu
