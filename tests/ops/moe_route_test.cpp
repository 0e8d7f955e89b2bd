#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "tests/support/op_test.h"

namespace quire::test {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct RouteCase {
  const char* name;
  RouteScore score;
  GroupScore group_score;
  int experts, k, groups, top_groups;
  bool bias, renormalize;
  float scale;
};

struct Routed {
  std::vector<std::int32_t> ids;
  std::vector<double> weights;
};

Routed route(const RouteCase& c, const HostTensor& logits, const HostTensor& bias) {
  Routed out;
  for (std::int64_t t = 0; t < logits.extents[0]; ++t) {
    std::vector<double> score, rating;
    double total = 0;
    for (int e = 0; e < c.experts; ++e) {
      const double x = logits.at(t * c.experts + e);
      score.push_back(c.score == RouteScore::sigmoid ? sigmoid(x) : std::exp(x));
      total += score.back();
    }
    for (int e = 0; e < c.experts; ++e) {
      auto& s = score[static_cast<std::size_t>(e)];
      if (c.score == RouteScore::softmax) s /= total;
      rating.push_back(s + (c.bias ? bias.at(e) : 0.));
    }
    const int size = c.experts / c.groups;
    std::vector<std::pair<double, int>> groups;
    for (int g = 0; g < c.groups; ++g) {
      std::vector<double> own(rating.begin() + g * size, rating.begin() + (g + 1) * size);
      std::sort(own.rbegin(), own.rend());
      const bool two = c.group_score == GroupScore::sum_of_best_two && size > 1;
      groups.emplace_back(-(two ? own[0] + own[1] : own[0]), g);
    }
    std::sort(groups.begin(), groups.end());
    for (int g = c.top_groups; g < c.groups; ++g) {
      for (int e = 0; e < size; ++e) {
        rating[static_cast<std::size_t>(groups[static_cast<std::size_t>(g)].second * size + e)] =
            -1e9;
      }
    }
    std::vector<std::int32_t> order(static_cast<std::size_t>(c.experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
      return rating[static_cast<std::size_t>(a)] > rating[static_cast<std::size_t>(b)];
    });
    double chosen = 0;
    for (int j = 0; j < c.k; ++j)
      chosen += score[static_cast<std::size_t>(order[static_cast<std::size_t>(j)])];
    for (int j = 0; j < c.k; ++j) {
      const auto e = order[static_cast<std::size_t>(j)];
      out.ids.push_back(e);
      out.weights.push_back(score[static_cast<std::size_t>(e)] * c.scale /
                            (c.renormalize ? chosen : 1.));
    }
  }
  return out;
}

}  // namespace

TEST_CASE("moe_route chooses and weighs experts", "[ops][moe]") {
  const auto c = GENERATE(values<RouteCase>({
      {"softmax", RouteScore::softmax, GroupScore::best, 8, 2, 1, 1, false, false, 1.f},
      {"renormalized", RouteScore::softmax, GroupScore::best, 60, 4, 1, 1, false, true, 1.f},
      {"best groups", RouteScore::softmax, GroupScore::best, 16, 3, 4, 2, false, false, 16.f},
      {"sigmoid and bias", RouteScore::sigmoid, GroupScore::best, 8, 2, 1, 1, true, true, 2.5f},
      {"sigmoid, bias, groups by two", RouteScore::sigmoid, GroupScore::sum_of_best_two, 32, 4, 8,
       3, true, true, 2.5f},
      {"all experts", RouteScore::softmax, GroupScore::best, 4, 4, 1, 1, false, true, 1.f},
  }));
  INFO(c.name);
  std::mt19937 rng(1);
  const std::int64_t tokens = 23;
  const HostTensor logits = random_tensor(rng, DType::f32, {tokens, c.experts}, 1.5f);
  const HostTensor bias = random_tensor(rng, DType::f32, {c.experts}, 0.3f, -0.5f);
  const Routed want = route(c, logits, bias);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    MoeRouteArgs args;
    args.ids = run.output(DType::i32, {tokens, c.k});
    args.weights = run.output(DType::f32, {tokens, c.k});
    args.logits = run.upload(logits);
    if (c.bias) args.bias = run.upload(bias);
    args.score = c.score;
    args.group_score = c.group_score;
    args.groups = c.groups;
    args.top_groups = c.top_groups;
    args.renormalize = c.renormalize;
    args.scale = c.scale;
    run.ops().moe_route(args, run.stream());
    const HostTensor ids = run.download(args.ids);
    CHECK(std::vector<std::int32_t>(ids.as<std::int32_t>(), ids.as<std::int32_t>() + ids.numel()) ==
          want.ids);
    check_close(run.download(args.weights), want.weights);
  }
}

TEST_CASE("equal ratings go to the lower experts", "[ops][moe]") {
  for (OpBackend& backend : op_backends()) {
    OpRun run(backend);
    MoeRouteArgs args;
    args.ids = run.output(DType::i32, {1, 3});
    args.weights = run.output(DType::f32, {1, 3});
    args.logits = run.upload(tensor_of<float>({0.f, 1.f, 0.f, 1.f, 1.f, 1.f}, {1, 6}));
    run.ops().moe_route(args, run.stream());
    const HostTensor ids = run.download(args.ids);
    CHECK(std::vector<std::int32_t>(ids.as<std::int32_t>(), ids.as<std::int32_t>() + 3) ==
          std::vector<std::int32_t>{1, 3, 4});
  }
}

}  // namespace quire::test
