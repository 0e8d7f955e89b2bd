// GPTQ, AWQ and compressed-tensors integers: what a configuration may say, and the numbers that a
// small matrix stands for. Whole checkpoints are in golden_test.

#include <catch2/catch.hpp>

#include <limits>
#include <map>

#include "base/json.h"
#include "model/packed_weights.h"
#include "tests/support/checkpoint_files.h"

namespace quire {
namespace {

using test::FileTensor;
using test::file_tensor;
using test::ModelFolder;
using Tensors = std::map<std::string, FileTensor>;

QuantConfig parse(const std::string& json) {
  const JsonDocument document(json, "config.json");
  return parse_quantization(document.object());
}

std::string packed_tensors(const std::string& weights, const std::string& more = "",
                           const std::string& format = "pack-quantized") {
  return R"({"quant_method":"compressed-tensors","format":")" + format +
         R"(","config_groups":{"group_0":{"targets":["Linear"],"weights":)" + weights + more + "}}}";
}

TEST_CASE("integers of 4 and 8 bits are read where groups fit", "[model][packed]") {
  const QuantConfig gptq = parse(R"({"quant_method":"gptq","bits":8,"group_size":-1,"sym":true})");
  REQUIRE(gptq.packed);
  CHECK(gptq.supported());
  CHECK(gptq.packed->bits == 8);
  CHECK(gptq.packed->group_size == 0);
  CHECK(gptq.packed->zeros_minus_one);
  const QuantConfig awq = parse(R"({"quant_method":"awq","bits":4,"group_size":128})");
  REQUIRE(awq.packed);
  CHECK_FALSE(awq.packed->symmetric);

  CHECK(parse(R"({"quant_method":"gptq","bits":4,"group_size":32,"dynamic":{"-:.*lm_head":{}}})")
            .supported());

  const auto refused = GENERATE(values<std::pair<std::string, std::string>>({
      {R"({"quant_method":"gptq","bits":3,"group_size":32})", "bits"},
      {R"({"quant_method":"gptq","bits":4,"group_size":24})", "group_size"},
      {R"({"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"})", "checkpoint_format"},
      {R"({"quant_method":"gptq","bits":4,"dynamic":{"+:x":{"bits":8}}})", "dynamic"},
      {R"({"quant_method":"awq","bits":4,"version":"gemv"})", "version"},
      {R"({"quant_method":"awq","bits":4,"zero_point":false})", "zero_point"},
      {packed_tensors(R"({"num_bits":2,"type":"int","strategy":"channel"})"), "weights.num_bits"},
      {packed_tensors(R"({"num_bits":4,"type":"float","strategy":"channel"})"), "weights.type"},
      {packed_tensors(R"({"num_bits":4,"type":"int","strategy":"tensor"})"), "weights.strategy"},
      {packed_tensors(R"({"num_bits":4,"type":"int","strategy":"channel"})",
                      R"(,"input_activations":{"num_bits":8})"),
       "input_activations"},
      {packed_tensors(R"({"num_bits":8,"type":"int","strategy":"channel","symmetric":false})", "",
                      "int-quantized"),
       "weights.symmetric"},
  }));
  INFO(refused.first);
  const QuantConfig quant = parse(refused.first);
  CHECK_FALSE(quant.supported());
  CHECK(quant.unsupported_field.ends_with(refused.second));
}

// GPTQ's form of 8 rows × 32 columns in two groups: code = (row + column) % 16, zero = row, scale =
// group + 1.
Tensors gptq_matrix(bool act_order = true) {
  std::vector<std::int32_t> codes(4 * 8), zeros(2), order(32);
  std::vector<float> scales(2 * 8);
  for (int k = 0; k < 32; ++k) {
    for (int r = 0; r < 8; ++r) {
      const auto code = static_cast<std::uint32_t>((r + k) % 16);
      auto& word = codes[static_cast<std::size_t>(k / 8 * 8 + r)];
      word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) | code << k % 8 * 4);
    }
    order[static_cast<std::size_t>(k)] = act_order ? k % 2 : k / 16;
  }
  for (int r = 0; r < 8; ++r) {
    for (int g = 0; g < 2; ++g) {
      scales[static_cast<std::size_t>(g * 8 + r)] = static_cast<float>(g + 1);
      auto& word = zeros[static_cast<std::size_t>(g)];
      const auto stored = static_cast<std::uint32_t>((r + 15) % 16);  // minus one, of 4 bits
      word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) | stored << r * 4);
    }
  }
  return {{"m.qweight", file_tensor("I32", {4, 8}, codes)},
          {"m.qzeros", file_tensor("I32", {2, 1}, zeros)},
          {"m.scales", file_tensor("F32", {2, 8}, scales)},
          {"m.g_idx", file_tensor("I32", {32}, order)}};
}

constexpr PackedConfig kGptq{
    .bits = 4, .group_size = 16, .symmetric = false, .zeros_minus_one = true};

TEST_CASE("a GPTQ matrix is its numbers, in any order of columns", "[model][packed]") {
  for (const bool act_order : {false, true}) {
    ModelFolder folder("packed_weights");
    folder.write_tensors(gptq_matrix(act_order));
    const Checkpoint checkpoint(folder.path());
    PackedConfig config = kGptq;
    config.act_order = act_order;
    const PackedWeights weights(&checkpoint, config);
    REQUIRE(weights.has("m.weight"));
    CHECK_FALSE(weights.has("other.weight"));
    const auto format = weights.group_format("m.weight");
    CHECK(format.has_value() == !act_order);
    if (format) CHECK(*format == GroupFormat{.bits = 4, .group = 16, .has_min = true});
    const std::vector<float> all = weights.open("m.weight", 8, 32)->all();
    for (int r = 0; r < 8; ++r) {
      for (int k = 0; k < 32; ++k) {
        const int group = act_order ? k % 2 : k / 16;
        CHECK(all[static_cast<std::size_t>(r * 32 + k)] ==
              static_cast<float>((group + 1) * ((r + k) % 16 - r)));
      }
    }
  }
}

TEST_CASE("parts of a packed matrix that lie are refused by name", "[model][packed]") {
  const auto complaint = [](const Tensors& tensors, PackedConfig config = kGptq) {
    ModelFolder folder("packed_refusal");
    folder.write_tensors(tensors);
    const Checkpoint checkpoint(folder.path());
    try {
      PackedWeights(&checkpoint, config).open("m.weight", 8, 32);
    } catch (const Failure& failure) {
      return std::string(failure.what());
    }
    return std::string();
  };
  CHECK(complaint(gptq_matrix(false)).empty());
  CHECK_THAT(complaint(gptq_matrix()), Catch::Contains("\"m.g_idx\" puts column 1 into group 1") &&
                                           Catch::Contains("desc_act"));
  for (const float bad : {0.f, -1.f, std::numeric_limits<float>::quiet_NaN()}) {
    Tensors tensors = gptq_matrix(false);
    tensors["m.scales"] = file_tensor("F32", {2, 8}, std::vector<float>(16, bad));
    CHECK_THAT(complaint(tensors),
               Catch::Contains("\"m.scales\"") && Catch::Contains("scales are positive numbers"));
  }
  Tensors tensors = gptq_matrix();
  tensors.erase("m.qzeros");
  CHECK_THAT(complaint(tensors), Catch::Contains("\"m.qzeros\" is missing, expected with shape"));
  tensors = gptq_matrix();
  tensors["m.qweight"] = file_tensor("I32", {2, 8}, std::vector<std::int32_t>(16));
  CHECK_THAT(complaint(tensors), Catch::Contains("has shape [2, 8], expected [4, 8]"));
  tensors = gptq_matrix();
  tensors["m.g_idx"] = file_tensor("I32", {32}, std::vector<std::int32_t>(32, 7));
  PackedConfig shuffled = kGptq;
  shuffled.act_order = true;
  CHECK_THAT(complaint(tensors, shuffled), Catch::Contains("holds 7 at 0 of 2 groups"));
  PackedConfig symmetric = kGptq;
  symmetric.symmetric = true;
  CHECK_THAT(complaint(gptq_matrix(), symmetric), Catch::Contains("a symmetric matrix has 8"));
  PackedConfig odd = kGptq;
  odd.group_size = 48;
  CHECK_THAT(complaint(gptq_matrix(), odd), Catch::Contains("not made of whole groups of 48"));
}

}  // namespace
}  // namespace quire
