// Routing of tokens to experts.

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

#include "cpu/operators.h"

namespace quire::cpu {
namespace {

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

}  // namespace

void moe_route(Context& on, const MoeRouteArgs& args) {
  const std::int64_t experts = args.logits.extent(1);
  assert(args.ids.extent(1) <= experts && experts % args.groups == 0);
  on.for_rows(args.logits.extent(0), experts * 16, [&](std::int64_t begin, std::int64_t end) {
    Router router(args);
    std::vector<float> row(static_cast<std::size_t>(experts));
    const Rows to{row.data(), Float::f32, 0, 1, 0};
    for (std::int64_t t = begin; t < end; ++t) {
      on.kernels.copy_rows(to, rows_of(args.logits.rows(t, t + 1)), experts, 0, 1);
      router.route(t, row.data());
    }
  });
}

}  // namespace quire::cpu
