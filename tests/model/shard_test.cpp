// What a rank has of a model: equal shares, whole units, copies; and which sizes a refusal names.

#include "model/shard.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "backend/measuring_device.h"
#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "model/registry.h"

namespace quire {
namespace {

std::vector<std::int64_t> unit_shares(std::int64_t n, std::int64_t unit, int size) {
  std::vector<std::int64_t> sizes;
  std::int64_t at = 0;
  for (int rank = 0; rank < size; ++rank) {
    const Range range = share_of_units({.rank = rank, .size = size}, "it", n, unit);
    CHECK(range.begin == at);
    at = range.end;
    sizes.push_back(range.size() / unit);
  }
  CHECK(at == n);
  return sizes;
}

TEST_CASE("whole units are shared as evenly as they go, the first rank's is a widest",
          "[model][shard]") {
  CHECK(unit_shares(2048, 128, 8) == std::vector<std::int64_t>(8, 2));
  CHECK(unit_shares(1536, 128, 8) == std::vector<std::int64_t>{2, 1, 2, 1, 2, 1, 2, 1});
  CHECK(unit_shares(2880, 32, 4) == std::vector<std::int64_t>{23, 22, 23, 22});
  CHECK(unit_shares(30, 1, 1) == std::vector<std::int64_t>{30});
  CHECK_THROWS_WITH(share_of_units({.rank = 0, .size = 4}, "the inner size", 64, 32),
                    Catch::Contains("the inner size is 64, in whole units of 32"));
  CHECK_THROWS_WITH(share_of_units({.rank = 0, .size = 2}, "the inner size", 48, 32),
                    Catch::Contains("the inner size is 48"));
}

TEST_CASE("fewer key heads than ranks are copied", "[model][shard]") {
  const auto share = [](int rank, int copies) {
    const Range range = share_of({.rank = rank, .size = 4}, 8, copies);
    return std::pair(range.begin, range.end);
  };
  CHECK(share(1, 1) == std::pair<std::int64_t, std::int64_t>(2, 4));
  CHECK(share(0, 2) == share(1, 2));
  CHECK(share(2, 2) == std::pair<std::int64_t, std::int64_t>(4, 8));
}

TEST_CASE("what does not divide is refused by its name", "[model][shard]") {
  const Shard three{.rank = 0, .size = 3};
  CHECK_NOTHROW(check_divides(three, "n", 9));
  CHECK_THROWS_WITH(check_divides(three, "n", 8), Catch::Contains("n is 8, which so many ranks"));
  CHECK_THROWS_WITH(check_heads(three, "layer", 8, 2, {.many = "value heads"}),
                    Catch::Contains("8 value heads and 2 key heads"));
  try {
    check_divides(three, "n", 8);
  } catch (const Failure& failure) {
    CHECK(failure.error().field == kTensorParallelSize);
  }
}

// Heads alone would let 8 share, inner columns 3.
TEST_CASE("the sizes that are advised divide the whole model", "[model][shard]") {
  const ModelConfig config = parse_model_config(
      R"({"architectures":["LlamaForCausalLM"],"vocab_size":36,"hidden_size":64,"head_dim":8,)"
      R"("num_attention_heads":8,"num_key_value_heads":2,"num_hidden_layers":1,)"
      R"("intermediate_size":36,"max_position_embeddings":64,"rms_norm_eps":1e-5})",
      "config.json");
  const auto load = [&](int size) {
    MeasuringDevice device(true);
    load_model(config, "nowhere", device, cpu_traits(),
               {.dtype = DType::f32,
                .load_format = LoadFormat::dummy,
                .shard = {.rank = 0, .size = size},
                .measure = true});
  };
  CHECK_THROWS_WITH(load(3), Catch::Contains("; 1, 2 and 4 work"));
  CHECK_THROWS_WITH(load(8), Catch::Contains("; 1, 2 and 4 work"));
  CHECK_NOTHROW(load(4));
}

TEST_CASE("a whole model's tensors are picked by nobody", "[model][shard]") {
  CHECK(own_of({}, 8).empty());
  CHECK(own_of({.rank = 1, .size = 2}, 4) == std::vector<std::int64_t>{2, 3});
}

}  // namespace
}  // namespace quire
