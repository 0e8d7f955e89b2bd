#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/support/op_test.h"

namespace quire::test {
namespace {

// As check_close, where −inf is close to itself.
void check_finite_close(HostTensor got, std::vector<double> want) {
  for (std::int64_t i = 0; i < got.numel(); ++i) {
    double& expected = want[static_cast<std::size_t>(i)];
    if (expected != -INFINITY) continue;
    CHECK(got.at(i) == -INFINITY);
    got.set(i, 0.f);
    expected = 0.;
  }
  check_close(got, want);
}

}  // namespace

// Few of several segments; more than there are groups of tokens; nearly all forbidden, or equal.
TEST_CASE("log_probs gives the best, the drawn one and its rank", "[ops][sampling]") {
  const auto [vocab, k, shape] = GENERATE(table<std::int64_t, std::int64_t, int>(
      {{777, 20, 0}, {777, 40, 0}, {5003, 20, 0}, {5003, 20, 1}, {5003, 3, 2}}));
  const std::int64_t rows = 3;
  std::mt19937 rng(4);
  HostTensor logits = random_tensor(rng, DType::f32, {rows, vocab}, 2.f);
  for (std::int64_t i = 0; i < logits.numel(); ++i) {
    if (shape == 1 && i % 701 != 5) logits.set(i, -INFINITY);
    if (shape == 2) logits.set(i, 1.f);
  }
  logits.set(5, shape == 0 ? logits.at(6) : 2.f);  // a tie
  logits.set(vocab + 3, -INFINITY);
  const std::vector<std::int32_t> tokens = {5, 700, 0};
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView ids = run.output(DType::i32, {rows, k}),
                     values = run.output(DType::f32, {rows, k});
    const TensorView own = run.output(DType::f32, {rows}), rank = run.output(DType::i32, {rows});
    run.ops().log_probs(ids, values, own, rank, run.upload(logits), run.upload(tensor_of(tokens)),
                        run.stream());
    const HostTensor got_ids = run.download(ids), got_ranks = run.download(rank);
    std::vector<double> want_values, want_own;
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* const row = logits.as<float>() + r * vocab;
      double total = 0;
      for (std::int64_t i = 0; i < vocab; ++i) total += std::exp(row[i]);
      std::vector<std::int32_t> order(vocab);
      for (std::int32_t i = 0; i < vocab; ++i) order[static_cast<std::size_t>(i)] = i;
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return row[a] > row[b]; });
      const float mine = row[tokens[static_cast<std::size_t>(r)]];
      for (std::int64_t i = 0; i < k; ++i) {
        CHECK(got_ids.as<std::int32_t>()[r * k + i] == order[static_cast<std::size_t>(i)]);
        want_values.push_back(row[order[static_cast<std::size_t>(i)]] - std::log(total));
      }
      CHECK(got_ranks.as<std::int32_t>()[r] ==
            1 + std::count_if(row, row + vocab, [&](float v) { return v > mine; }));
      want_own.push_back(mine - std::log(total));
    }
    check_finite_close(run.download(values), want_values);
    check_finite_close(run.download(own), want_own);
  }
}

}  // namespace quire::test
