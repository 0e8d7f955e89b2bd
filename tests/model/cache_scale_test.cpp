#include "model/layers/cache_scale.h"

#include <catch2/catch.hpp>
#include <limits>

#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "tests/support/number_file.h"
#include "tests/support/temp_path.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

const std::string kLayer = "model.layers.0.self_attn";

std::optional<CacheScale> scale_among(const std::map<std::string, float>& numbers) {
  const fs::path folder = temp_path("quire_cache_scale_test");
  fs::create_directories(folder);
  test::write_numbers(folder / "model.safetensors", numbers);
  const auto device = make_cpu_device();
  const Weights weights(folder, LoadFormat::safetensors, 0, DType::bf16, *device);
  return load_cache_scale(weights, kLayer);
}

TEST_CASE("the scales of a cache are found under every name they are published by",
          "[model][cache_scale]") {
  for (const std::string infix : {".?_scale", ".attn.?_scale", ".?_proj.?_scale",
                                  ".?_proj.output_scale", ".qkv_proj.?_scale"}) {
    const auto name = [&](char which) {
      std::string text = kLayer + infix;
      std::replace(text.begin(), text.end(), '?', which);
      return text;
    };
    INFO(infix);
    const auto both = scale_among({{name('k'), 0.25f}, {name('v'), 3.f}});
    REQUIRE(both);
    CHECK(both->k == 0.25f);
    CHECK(both->v == 3.f);
  }
  const auto old = scale_among({{kLayer + ".kv_scale", 0.5f}});
  REQUIRE(old);
  CHECK(old->k == 0.5f);
  CHECK(old->v == 0.5f);
  const auto one = scale_among({{kLayer + ".v_scale", 0.75f}});
  REQUIRE(one);
  CHECK(one->k == 0.75f);
  CHECK(one->v == 0.75f);
  CHECK_FALSE(scale_among({{"model.layers.1.self_attn.k_scale", 0.5f}}));
}

TEST_CASE("a scale that nothing can be divided by is refused by name", "[model][cache_scale]") {
  for (const float bad : {0.f, -1.f, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    INFO(bad);
    CHECK_THROWS_WITH(scale_among({{kLayer + ".k_scale", 1.f}, {kLayer + ".v_scale", bad}}),
                      Catch::Contains("\"" + kLayer + ".v_scale\""));
  }
}

}  // namespace
}  // namespace quire
