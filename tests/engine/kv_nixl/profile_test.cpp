// What vLLM servers compare before anything else.

#include "engine/kv_nixl/profile.h"

#include <catch2/catch.hpp>

#include "tests/support/conformance.h"

namespace quire::test {
namespace {

std::string text(simdjson::dom::element factors, const char* name) {
  return std::string(std::string_view(factors[name]));
}
int number(simdjson::dom::element factors, const char* name) {
  return static_cast<int>(std::int64_t(factors[name]));
}

}  // namespace

TEST_CASE("the hash is vLLM's, of each vector", "[nixl][conformance]") {
  const auto profile = find_nixl_profile("vllm-0.25.1");
  REQUIRE(profile.has_value());
  require_conformance("nixl_compat_hash/1", 12, [&](simdjson::dom::element one) {
    const simdjson::dom::element f = one["factors"];
    CompatibilityFactors factors;
    factors.vllm_version = text(f, "vllm_version");
    factors.connector_version = number(f, "nixl_connector_version");
    factors.model = text(f, "model");
    factors.dtype = text(f, "dtype");
    factors.num_kv_heads = number(f, "num_kv_heads");
    factors.head_size = number(f, "head_size");
    factors.num_hidden_layers = number(f, "num_hidden_layers");
    factors.attention_backend = text(f, "attn_backend_name");
    factors.cache_dtype = text(f, "cache_dtype");
    factors.cross_layers_blocks = bool(f["cross_layers_blocks"]);
    factors.hybrid_manager = bool(f["is_hma_enabled"]);
    expect_equal("json", text(one["expected"], "json"), compatibility_json(factors, *profile));
    expect_equal("hash", text(one["expected"], "hash"), compatibility_hash(factors, *profile));
  });
}

// Said by the connectors of those releases themselves.
TEST_CASE("the hash of each release is its own", "[nixl]") {
  CHECK(find_nixl_profile("")->name == "vllm-0.33.0");
  for (const auto& [name, hash] :
       {std::pair("vllm-0.33.0",
                  "910bbe770a91d016d3654f97d5089ea595b40e7a97e6af5325fc01c157024265"),
        std::pair("vllm-0.31.0",
                  "cb7359a3e51d20fba82e3516aac15482c22cc6183a7192ab789b0f60c0da5490"),
        std::pair("vllm-0.28.0",
                  "0b0595b3bba2ea0661159d0472c5ce392ec19e3d53f912aad91dba383ad04ad1"),
        std::pair("vllm-0.25.1",
                  "d359b4e3c7ca9d0f3320b6eaadafb5f3d058bdffc30d410fa6283ba64528b7bb")}) {
    const auto profile = find_nixl_profile(name);
    REQUIRE(profile.has_value());
    CompatibilityFactors factors;
    factors.vllm_version = profile->vllm_version;
    factors.connector_version = profile->connector_version;
    factors.model = "quire/test";
    factors.dtype = "torch.bfloat16";
    factors.num_kv_heads = 2;
    factors.head_size = 64;
    factors.num_hidden_layers = 4;
    factors.attention_backend = "FLASH_ATTN";
    INFO(compatibility_json(factors, *profile));
    CHECK(compatibility_hash(factors, *profile) == hash);
  }
}

TEST_CASE("a profile that is not known is refused with those that are", "[nixl]") {
  const auto profile = find_nixl_profile("vllm-9.9");
  REQUIRE(profile.has_error());
  CHECK_THAT(profile.error().detail, Catch::Contains("vllm-0.33.0, vllm-0.31.0, vllm-0.28.0"));
}

}  // namespace quire::test
