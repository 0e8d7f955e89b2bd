// The blocks that hybrid models get (an attention page holds a recurrent state) are large and odd;
// kernels may read them in smaller ones. Neither may show in the logits.

#include <catch2/catch.hpp>

#include "cpu/cpu_backend.h"
#include "tests/support/direct_runner.h"

namespace quire {
namespace {

constexpr const char* kModel = "models/quire-tiny-hybrid";

struct Sizes {
  int block, kernel;
};

// Two requests, one of them longer than a block, in chunks and then token by token.
std::vector<float> logits(Sizes sizes) {
  const ModelConfig config = read_model_config(kModel);
  const auto device = make_cpu_device();
  const auto ops = make_cpu_ops({.threads = 1});
  const auto model = load_model(config, kModel, *device, ops->traits(), {.dtype = DType::f32});
  const DirectOptions options{
      .block_size = sizes.block,
      .kernel_block_size = sizes.kernel,
      .num_blocks = 2400 / sizes.block + 8,
      .page_padding = static_cast<std::size_t>(64 * sizes.block / sizes.kernel),
      .move_state = true,
      .max_step_tokens = 1200};
  DirectRunner runner(*model, *device, *ops, options);
  const auto tokens = [](int count, int salt) {
    std::vector<TokenId> ids(count);
    for (int i = 0; i < count; ++i) ids[i] = (i * 37 + salt) % 1500;
    return ids;
  };
  const int a = runner.add_request(1100);
  const int b = runner.add_request(40);
  runner.step({{a, tokens(700, 1)}, {b, tokens(40, 2)}});
  runner.step({{b, {5}}, {a, tokens(400, 3)}});
  return runner.step({{a, {8}}, {b, {9}}});
}

TEST_CASE("hybrid block sizes and kernel blocks leave the logits alone", "[model]") {
  const std::vector<float> expected = logits({16, 16});
  for (const Sizes sizes :
       {Sizes{528, 528}, {528, 16}, {544, 32}, {640, 64}, {784, 16}, {1056, 32}}) {
    CAPTURE(sizes.block, sizes.kernel);
    const std::vector<float> actual = logits(sizes);
    REQUIRE(actual.size() == expected.size());
    float worst = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      worst = std::max(worst, std::abs(actual[i] - expected[i]));
      REQUIRE(std::isfinite(actual[i]));
    }
    CHECK(worst < 1e-3f);
  }
}

}  // namespace
}  // namespace quire
