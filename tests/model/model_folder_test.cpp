// What stands in a model's folder, or in its place, as published long ago or put there by mistake.

#include "model/model_folder.h"

#include <catch2/catch.hpp>

#include <fstream>

#include "backend/measuring_device.h"
#include "base/json.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/weights.h"
#include "tests/support/checkpoint_files.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using test::ModelFolder;

std::string llama(const std::string& more = "") {
  return R"({"architectures":["LlamaForCausalLM"],"vocab_size":100,"hidden_size":64,)"
         R"("num_attention_heads":4,"num_hidden_layers":2,"intermediate_size":128)" +
         more + "}";
}

TEST_CASE("numbers of a quantization are read where older tools wrote them", "[model][folder]") {
  const ModelFolder folder("older_quantization");
  const auto write = [&](const char* file, const std::string& text) {
    std::ofstream(folder.path() / file) << text;
  };
  write("config.json", llama());
  CHECK(read_model_config(folder.path()).quant.method.empty());
  write("quant_config.json", R"({"zero_point":true,"q_group_size":64,"w_bit":4,"version":"GEMM"})");
  const QuantConfig awq = read_model_config(folder.path()).quant;
  CHECK(awq.method == "awq");
  CHECK(awq.packed.value().group_size == 64);
  write("quantize_config.json", R"({"bits":4,"group_size":128,"desc_act":false,"sym":true})");
  const QuantConfig gptq = read_model_config(folder.path()).quant;
  CHECK(gptq.method == "gptq");
  CHECK(gptq.packed.value().group_size == 128);
  write("quantize_config.json", R"({"bits":3,"group_size":128})");
  CHECK(read_model_config(folder.path()).quant.unsupported_field ==
        "quantize_config.json beside it: bits");
  // What config.json says counts.
  write("config.json", llama(R"(,"quantization_config":{"quant_method":"awq","bits":4})"));
  CHECK(read_model_config(folder.path()).quant.method == "awq");
  const std::string group = R"("config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":4,)"
                            R"("type":"int","strategy":"channel"}}})";
  write("config.json", llama(R"(,"compression_config":{"quant_method":"compressed-tensors",)"
                             R"("format":"pack-quantized",)" +
                             group + "}"));
  CHECK(read_model_config(folder.path()).quant.packed.value().layout == PackedLayout::compressed);
  write("config.json", llama(R"(,"compression_config":{"quant_method":"compressed-tensors",)"
                             R"("format":"pack-quantized",)" +
                             group + R"(,"sparsity_config":{"format":"sparse-24-bitmask"}})"));
  const QuantConfig sparse = read_model_config(folder.path()).quant;
  CHECK(sparse.unsupported_field == "compression_config.sparsity_config.format");
  CHECK(sparse.unsupported_reason == R"("sparse-24-bitmask" is not supported ("dense"))");
}

TEST_CASE("a cache's folder, and links to nothing, are refused in words", "[model][folder]") {
  const ModelFolder cache("models--org--name");
  const fs::path snapshot = cache.path() / "snapshots" / "abc";
  fs::create_directories(snapshot);
  CHECK_THROWS_WITH(check_model_folder(cache.path()),
                    Catch::Contains("name one of its snapshots: " + snapshot.string()));
  std::ofstream(snapshot / "config.json") << llama();
  CHECK_NOTHROW(check_model_folder(snapshot));
  fs::create_symlink("../../blobs/1", snapshot / "README.md");
  CHECK_NOTHROW(check_model_folder(snapshot));
  for (const char* file : {"tokenizer.json", "model-00001-of-00002.safetensors", "config.json"}) {
    INFO(file);
    fs::remove(snapshot / file);
    fs::create_symlink("../../blobs/2", snapshot / file);
    CHECK_THROWS_WITH(read_model_config(snapshot),
                      Catch::Contains(std::string(file) + " is a link to ../../blobs/2, where"));
    fs::remove(snapshot / file);
    std::ofstream(snapshot / "config.json") << llama();
  }
}

TEST_CASE("a type of numbers that nothing computes with is named", "[model][folder]") {
  ModelFolder folder("float64");
  folder.write_tensors({{"a", test::file_tensor<double>("F64", {2}, {1, 2})}});
  MeasuringDevice device(true);
  Weights weights(folder.path(), LoadFormat::safetensors, 0, DType::f32, device);
  CHECK_THROWS_WITH(weights.load("a", {2}), Catch::Contains("is stored as F64, which is not"));
}

TEST_CASE("an index that names nothing is refused by name", "[model][folder]") {
  const ModelFolder folder("empty_index");
  std::ofstream(folder.path() / "model.safetensors.index.json") << R"({"weight_map":{}})";
  CHECK_THROWS_WITH(Checkpoint(folder.path()), Catch::Contains("index.json: names no weights"));
}

}  // namespace
}  // namespace quire
