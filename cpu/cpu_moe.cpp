// Mixture of experts: routing, and experts computed over the tokens that were sent to them.

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "cpu/cpu_ops.h"

namespace quire {
namespace {

constexpr std::int64_t kMacsWorthSharing = 1 << 18;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

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

// One token's experts, best first. scores: of the token; order: scratch for all experts.
class Router {
 public:
  explicit Router(const MoeRouteArgs& args)
      : args_(args),
        experts_(args.logits.extent(1)),
        k_(args.ids.extent(1)),
        scores_(static_cast<std::size_t>(experts_)),
        rating_(scores_.size()),
        order_(scores_.size()) {}

  void route(std::int64_t token, const float* logits) {
    score(logits);
    for (std::size_t e = 0; e < rating_.size(); ++e) {
      rating_[e] = scores_[e] + (args_.bias.empty() ? 0.f : args_.bias.as<float, 1>()(e));
    }
    if (args_.top_groups < args_.groups) leave_out_groups();
    choose(token);
  }

 private:
  void score(const float* logits) {
    if (args_.score == RouteScore::sigmoid) {
      for (std::size_t e = 0; e < scores_.size(); ++e) {
        scores_[e] = 1.f / (1.f + std::exp(-logits[e]));
      }
      return;
    }
    const float top = *std::max_element(logits, logits + experts_);
    float total = 0.f;
    for (std::size_t e = 0; e < scores_.size(); ++e) {
      total += scores_[e] = std::exp(logits[e] - top);
    }
    for (float& s : scores_) s /= total;
  }

  float group_rating(std::int64_t group, std::int64_t size) const {
    float best = -INFINITY, second = -INFINITY;
    for (std::int64_t e = group * size; e < (group + 1) * size; ++e) {
      const float r = rating_[static_cast<std::size_t>(e)];
      second = std::max(second, std::min(best, r));
      best = std::max(best, r);
    }
    return args_.group_score == GroupScore::best || size == 1 ? best : best + second;
  }

  void leave_out_groups() {
    const std::int64_t size = experts_ / args_.groups;
    groups_.resize(static_cast<std::size_t>(args_.groups));
    for (std::int64_t g = 0; g < args_.groups; ++g) {
      groups_[static_cast<std::size_t>(g)] = {-group_rating(g, size), g};
    }
    std::sort(groups_.begin(), groups_.end());
    for (std::size_t i = static_cast<std::size_t>(args_.top_groups); i < groups_.size(); ++i) {
      const auto begin = rating_.begin() + groups_[i].second * size;
      std::fill(begin, begin + size, -INFINITY);
    }
  }

  void choose(std::int64_t token) {
    std::iota(order_.begin(), order_.end(), 0);
    const auto better = [this](std::int32_t a, std::int32_t b) {
      const float x = rating_[static_cast<std::size_t>(a)],
                  y = rating_[static_cast<std::size_t>(b)];
      return x != y ? x > y : a < b;
    };
    std::partial_sort(order_.begin(), order_.begin() + k_, order_.end(), better);
    const auto ids = args_.ids.as<std::int32_t, 2>();
    const auto weights = args_.weights.as<float, 2>();
    float total = 0.f;
    for (std::int64_t j = 0; j < k_; ++j) {
      ids(token, j) = order_[static_cast<std::size_t>(j)];
      total += scores_[static_cast<std::size_t>(ids(token, j))];
    }
    const float factor = args_.renormalize ? args_.scale / (total + 1e-20f) : args_.scale;
    for (std::int64_t j = 0; j < k_; ++j) {
      weights(token, j) = scores_[static_cast<std::size_t>(ids(token, j))] * factor;
    }
  }

  const MoeRouteArgs& args_;
  std::int64_t experts_, k_;
  std::vector<float> scores_, rating_;
  std::vector<std::int32_t> order_;
  std::vector<std::pair<float, std::int64_t>> groups_;
};

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

// Pairs (token, j) sorted by expert: those of expert e are pairs[start[e] … start[e + 1]).
struct Plan {
  std::int32_t* start;
  std::int32_t* pairs;     // token · k + j
  std::int32_t* position;  // of each pair in pairs
  std::int32_t* active;    // experts with pairs
  std::int64_t num_active = 0;
};

Plan plan_experts(TensorView ids, std::int64_t experts, Arena& arena) {
  const std::int64_t count = ids.numel();
  Plan plan{arena.take<std::int32_t>(experts + 1), arena.take<std::int32_t>(count),
            arena.take<std::int32_t>(count), arena.take<std::int32_t>(experts)};
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

}  // namespace

void CpuOps::moe_route(const MoeRouteArgs& args, StreamRef) {
  const std::int64_t experts = args.logits.extent(1);
  assert(args.ids.extent(1) <= experts && experts % args.groups == 0);
  const cpu::Rows logits = rows_of(args.logits);
  for_rows(args.logits.extent(0), experts * 16, [&](std::int64_t begin, std::int64_t end) {
    Router router(args);
    std::vector<float> row(static_cast<std::size_t>(experts));
    const cpu::Rows to{row.data(), cpu::Float::f32, 0, 1, 0};
    for (std::int64_t t = begin; t < end; ++t) {
      const TensorView one = args.logits.rows(t, t + 1);
      kernels_.copy_rows(to, rows_of(one), experts, 0, 1);
      router.route(t, row.data());
    }
  });
  static_cast<void>(logits);
}

std::size_t CpuOps::moe_workspace_bytes(int num_tokens, const MoeShape& shape) const {
  const auto tokens = static_cast<std::size_t>(num_tokens);
  const auto pairs = tokens * static_cast<std::size_t>(shape.top_k);
  const auto hidden = static_cast<std::size_t>(shape.hidden);
  const auto inner = static_cast<std::size_t>(shape.intermediate);
  const auto experts = static_cast<std::size_t>(shape.experts);
  return 4 * (2 * experts + 1 + 2 * pairs) + 4 * pairs * (2 * hidden + 3 * inner) + 8 * 64;
}

void CpuOps::moe_experts(const MoeExpertsArgs& args, StreamRef) {
  const std::int64_t tokens = args.x.extent(0), hidden = args.x.extent(1), k = args.ids.extent(1);
  const std::int64_t experts = args.gate_up.data.extent(0), inner_out = args.gate_up.data.extent(1);
  const std::int64_t inner = args.gated ? inner_out / 2 : inner_out;
  const std::int64_t pairs = tokens * k;
  if (tokens == 0) return;
  Arena arena(args.workspace);
  const Plan plan = plan_experts(args.ids, experts, arena);
  const cpu::Float type = product_type(args.x.dtype(), matrix_of(args.gate_up, 0));
  const DType dtype = type == cpu::Float::f32 ? DType::f32 : DType::bf16;
  const TensorView x(arena.take<float>(pairs * hidden), dtype, {pairs, hidden});
  const TensorView h(arena.take<float>(pairs * inner_out), dtype, {pairs, inner_out});
  const TensorView a(arena.take<float>(pairs * inner), dtype, {pairs, inner});
  const TensorView y(arena.take<float>(pairs * hidden), DType::f32, {pairs, hidden});

  for_rows(pairs, hidden, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const std::int64_t token = plan.pairs[p] / k;
      kernels_.copy_rows(rows_of(x.rows(p, p + 1)), rows_of(args.x.rows(token, token + 1)), hidden,
                         0, 1);
    }
  });
  const auto expert_rows = [&](std::int64_t i) {
    return std::pair<std::int64_t, std::int64_t>(plan.start[plan.active[i]],
                                                 plan.start[plan.active[i] + 1]);
  };
  const auto each_expert = [&](TensorView out, TensorView in, const Weight& weight, TensorView bias,
                               std::int64_t n) {
    const std::int64_t width = task_columns(type, pairs / plan.num_active);
    const std::int64_t parts = ceil_div(n, width);
    const std::int64_t macs = ceil_div(pairs, plan.num_active) * width * in.extent(1);
    pool_.parallel_for(
        plan.num_active * parts, kMacsWorthSharing / (macs + 1) + 1,
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t t = begin; t < end; ++t) {
            const std::int64_t expert = plan.active[t / parts], n_begin = t % parts * width;
            const auto [first, last] = expert_rows(t / parts);
            const Matrix matrix = matrix_of(weight, expert);
            const TensorView own_bias =
                bias.empty() ? bias : bias.rows(expert, expert + 1).reshape({n});
            const cpu::GemmArgs gemm{
                .w = matrix.data,
                .w_type = matrix.type,
                .w_stride = matrix.stride,
                .x = in.data(),
                .x_stride = in.stride(0),
                .out = out.data(),
                .out_type = float_of(out.dtype()),
                .out_stride = out.stride(0),
                .bias = own_bias.data(),
                .bias_type = bias.empty() ? cpu::Float::f32 : float_of(bias.dtype()),
                .k = in.extent(1)};
            product(gemm, matrix, type, first, last, n_begin, std::min(n, n_begin + width));
          }
        });
  };
  each_expert(h, x, args.gate_up, args.gate_up_bias, inner_out);
  const cpu::ActArgs act{rows_of(a),
                         rows_of(h.narrow(1, 0, inner)),
                         args.gated ? rows_of(h.narrow(1, inner, 2 * inner)) : cpu::Rows{},
                         inner,
                         act_of(args.activation),
                         args.swiglu_limit,
                         args.swiglu_alpha};
  for_rows(pairs, inner * 8,
           [&](std::int64_t begin, std::int64_t end) { kernels_.activation(act, begin, end); });
  each_expert(y, a, args.down, args.down_bias, hidden);
  for_rows(tokens, hidden * k, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      kernels_.combine(rows_of(args.out.rows(t, t + 1)), static_cast<const float*>(y.data()),
                       hidden, plan.position + t * k, args.weights.as<float, 2>().data + t * k, k);
    }
  });
}

}  // namespace quire
