#include <catch2/catch.hpp>

#include "tests/model/llama_json.h"

namespace quire::test {
namespace {

TEST_CASE("a scheme of the KV cache is read, and refused where nothing here stores so",
          "[model][config]") {
  const auto scheme = [](const std::string& fields) {
    return parse(llama(R"("quantization_config":{"quant_method":"compressed-tensors",)"
                       R"("config_groups":{},"kv_cache_scheme":)" +
                       fields + "}"))
        .quant;
  };
  const QuantConfig plain = scheme("null");
  CHECK(plain.method.empty());  // no weights are packed
  CHECK_FALSE(plain.kv_cache_dtype);
  CHECK(scheme(R"({"type":"float","num_bits":8})").kv_cache_dtype == DType::fp8_e4m3);
  for (const std::string fields :
       {R"({"type":"int","num_bits":8})", R"({"type":"float","num_bits":4})",
        R"({"type":"float","num_bits":8,"strategy":"attn_head"})",
        R"({"type":"float","num_bits":8,"strategy":"tensor","dynamic":true})",
        R"({"type":"float","num_bits":8,"symmetric":false})"}) {
    INFO(fields);
    CHECK_THROWS_WITH(scheme(fields), Catch::Contains("quantization_config.kv_cache_scheme"));
  }
}

TEST_CASE("AutoFP8's word for a scheme of the KV cache is not a scheme", "[model][config]") {
  const QuantConfig quant =
      parse(llama(R"("quantization_config":{"quant_method":"fp8","activation_scheme":"static",)"
                  R"("kv_cache_scheme":"static"})"))
          .quant;
  CHECK(quant.fp8.has_value());
  CHECK_FALSE(quant.kv_cache_dtype);
}

TEST_CASE("AWQ's older names of its numbers are read", "[model][config]") {
  const QuantConfig quant =
      parse(llama(R"("quantization_config":{"quant_method":"awq","w_bit":4,"q_group_size":64,)"
                  R"("version":"GEMM"})"))
          .quant;
  CHECK(quant.packed.value().group_size == 64);
  CHECK(quant.unsupported_reason.empty());
}

TEST_CASE("what a quantization names and nothing reads is told once", "[model][config]") {
  const auto quant = [](const std::string& more) {
    return parse(llama(R"("quantization_config":{"quant_method":"compressed-tensors",)"
                       R"("config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":8,)"
                       R"("type":"float"},"input_activations":{"num_bits":8,"type":"float",)"
                       R"("dynamic":true}}},)" +
                       more + "}"))
        .quant;
  };
  CHECK(quant(R"("format":"float-quantized","ignore":["re:["])").unsupported_field ==
        "quantization_config.ignore");
  CHECK_THAT(quant(R"("format":"marlin-24")").unsupported_reason,
             Catch::Contains("float-quantized") && Catch::Contains("pack-quantized"));
}

}  // namespace
}  // namespace quire::test
