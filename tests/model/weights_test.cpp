#include "model/weights.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <fstream>

#include "backend/measuring_device.h"
#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "model/registry.h"
#include "tests/support/temp_path.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// Two matrices: "a" f32 [2, 3] of 0 … 5, "b" bf16 [3, 2] of 0 … 5.
class Fixture {
 public:
  Fixture() : folder_(temp_path("quire_weights_test")) {
    fs::create_directories(folder_);
    std::string header = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                         R"("b":{"dtype":"BF16","shape":[3,2],"data_offsets":[24,36]}})";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const std::uint64_t length = header.size();
    std::ofstream out(folder_ / "model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out << header;
    for (int i = 0; i < 6; ++i) {
      const auto value = static_cast<float>(i);
      out.write(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    for (int i = 0; i < 6; ++i) {
      const bf16 value(static_cast<float>(i));
      out.write(reinterpret_cast<const char*>(&value), sizeof(value));
    }
  }
  ~Fixture() { fs::remove_all(folder_); }

  Weights open(DType dtype) { return {folder_, LoadFormat::safetensors, 0, dtype, *device_}; }
  Device& device() { return *device_; }

 private:
  fs::path folder_;
  std::unique_ptr<Device> device_ = make_cpu_device();
};

std::vector<float> values(TensorView view) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    out.push_back(view.dtype() == DType::f32 ? static_cast<float*>(view.data())[i]
                                             : float(static_cast<bf16*>(view.data())[i]));
  }
  return out;
}

using Floats = std::vector<float>;

TEST_CASE_METHOD(Fixture, "tensors are converted, fused, picked and transposed",
                 "[model][weights]") {
  Weights weights = open(DType::f32);
  CHECK(values(weights.load("b", {3, 2})) == Floats{0, 1, 2, 3, 4, 5});
  const auto load = [&](std::vector<Source> sources, const Shape& shape) {
    return values(weights.load(sources, shape, DType::f32));
  };
  CHECK(load({{.name = "a", .shape = {2, 3}}, {.name = "b", .shape = {3, 2}}}, {12}) ==
        Floats{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5});
  CHECK(load({{.name = "b", .shape = {3, 2}, .pick = {2, 0}}}, {2, 2}) == Floats{4, 5, 0, 1});
  CHECK(load({{.name = "a", .shape = {2, 3}, .transposed = true}}, {3, 2}) ==
        Floats{0, 3, 1, 4, 2, 5});
  CHECK(load({{.name = "a", .shape = {2, 3}, .transposed = true, .pick = {2}, .depth = {0, 1}}},
             {1, 1}) == Floats{2});
  // Two matrices of one row each.
  CHECK(load({{.name = "a", .shape = {2, 3}, .batch = 2, .transposed = true, .pick = {2, 0}}},
             {2, 2}) == Floats{2, 0, 5, 3});
  // Of three such, the last two; of rows, some columns.
  CHECK(load({{.name = "b", .shape = {3, 2}, .batch = 3, .transposed = true, .matrices = {1, 3}}},
             {4}) == Floats{2, 3, 4, 5});
  CHECK(load({{.name = "a", .shape = {2, 3}, .columns = {1, 3}}}, {2, 2}) == Floats{1, 2, 4, 5});
}

TEST_CASE_METHOD(Fixture, "what needs no change stays in the mapped file", "[model][weights]") {
  Weights weights = open(DType::f32);
  const auto* first = static_cast<const std::byte*>(weights.load("a", {2, 3}).data());
  CHECK(first == weights.load("a", {2, 3}).data());
  CHECK(weights.load("a", {2, 3}, DType::bf16).data() != first);
}

TEST_CASE_METHOD(Fixture, "missing and misshapen tensors are refused by name", "[model][weights]") {
  Weights weights = open(DType::f32);
  CHECK_THROWS_WITH(weights.load("c", {1}),
                    Catch::Contains("tensor \"c\" is missing") && Catch::Contains("[1]"));
  CHECK_THROWS_WITH(weights.load("a", {3, 2}),
                    Catch::Contains("has shape [2, 3], expected [3, 2]"));
  CHECK_THROWS_WITH(weights.load("a", {2, 3}, DType::u8), Catch::Contains("stored as float32"));
}

TEST_CASE_METHOD(Fixture, "a number is a tensor of one element, or not there", "[model][weights]") {
  const Weights weights = open(DType::f32);
  CHECK_FALSE(weights.number("c"));
  CHECK_THROWS_WITH(weights.number("a"), Catch::Contains("\"a\"") && Catch::Contains("[2, 3]"));
}

TEST_CASE("dummy weights depend on seed and name alone", "[model][weights]") {
  const auto device = make_cpu_device();
  const auto load = [&](std::uint64_t seed, const char* name) {
    Weights weights("nowhere", LoadFormat::dummy, seed, DType::bf16, *device);
    return values(weights.load(name, {300, 500}));
  };
  const auto one = load(1, "w");
  CHECK(one == load(1, "w"));
  CHECK(one != load(2, "w"));
  CHECK(one != load(1, "v"));
  double squares = 0;
  for (const float v : one) squares += double{v} * v;
  CHECK(std::sqrt(squares / one.size()) == Approx(1 / std::sqrt(500.0)).epsilon(0.05));
}

TEST_CASE("every architecture loads with dummy weights of its shape", "[model][weights]") {
  const auto device = make_cpu_device();
  const auto ops = make_cpu_ops({.threads = 1});
  for (const auto& entry : fs::directory_iterator("tests/data/golden/models")) {
    INFO(entry.path());
    const ModelConfig config = read_model_config(entry.path());
    const auto model = load_model(config, "nowhere", *device, ops->traits(),
                                  {.load_format = LoadFormat::dummy, .max_model_len = 64});
    CHECK(model->weight_bytes() > 100'000);
    MeasuringDevice nothing(/*is_host_memory=*/true);
    const auto measured = load_model(config, "nowhere", nothing, ops->traits(),
                                     {.max_model_len = 64, .measure = true});
    CHECK(measured->weight_bytes() == model->weight_bytes());
    CHECK(nothing.ledger().uses() == device->ledger().uses());
    CHECK(measured->workspace_bytes(32, 4) == model->workspace_bytes(32, 4));
    CHECK(model->workspace_bytes(32, 4) > model->workspace_bytes(1, 1));
  }
}

TEST_CASE("a quantization that the checkpoint does not have is refused", "[model][weights]") {
  const auto device = make_cpu_device();
  const auto ops = make_cpu_ops({.threads = 1});
  const auto load = [&](const fs::path& folder, const char* quantization) {
    load_model(read_model_config(folder), folder, *device, ops->traits(),
               {.quantization = quantization});
  };
  const fs::path quantized = "tests/data/golden/quantized/fp8-block";
  CHECK_NOTHROW(load(quantized, "fp8"));
  CHECK_THROWS_WITH(load(quantized, "awq"), Catch::Contains("LoadOptions::quantization awq") &&
                                                Catch::Contains("is \"fp8\""));
  CHECK_THROWS_WITH(load("models/quire-tiny", "fp8"), Catch::Contains("no quantization_config"));
}

TEST_CASE("quantization that is not supported is refused by name", "[model][weights]") {
  const auto device = make_cpu_device();
  const auto ops = make_cpu_ops({.threads = 1});
  ModelConfig config = read_model_config("models/quire-tiny");
  config.quant =
      parse_model_config(R"({"architectures":["LlamaForCausalLM"],"vocab_size":8,"hidden_size":64,)"
                         R"("num_attention_heads":4,"num_hidden_layers":1,)"
                         R"("quantization_config":{"quant_method":"made-up"}})",
                         "config.json")
          .quant;
  CHECK_THROWS_WITH(load_model(config, "models/quire-tiny", *device, ops->traits(), {}),
                    Catch::Contains("quantization_config.quant_method: \"made-up\""));
}

TEST_CASE("values beyond float16 are counted and refused", "[model][weights]") {
  const fs::path folder = temp_path("quire_overflow_test");
  fs::create_directories(folder);
  std::string header = R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = header.size();
  {
    std::ofstream out(folder / "model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof(length));
    out << header;
    for (const float value : {1.f, 65504.f, 70000.f, -1e30f}) {
      const bf16 stored(value);
      out.write(reinterpret_cast<const char*>(&stored), sizeof(stored));
    }
  }
  const auto device = make_cpu_device();
  Weights wide(folder, LoadFormat::safetensors, 0, DType::bf16, *device);
  CHECK(wide.load("a", {4}).numel() == 4);
  Weights narrow(folder, LoadFormat::safetensors, 0, DType::f16, *device);
  // 65504 is no bf16; the nearest one is 65536.
  CHECK_THROWS_WITH(
      narrow.load("a", {4}),
      Catch::Contains("LoadOptions::dtype float16: 3 of the 4 values") && Catch::Contains("\"a\""));
  fs::remove_all(folder);
}

TEST_CASE("loading reports the bytes that have come", "[model][weights]") {
  Fixture fixture;
  Weights weights = fixture.open(DType::f32);
  std::vector<std::size_t> reported;
  weights.on_progress([&](std::size_t bytes) { reported.push_back(bytes); });
  weights.load("a", {2, 3});
  weights.load("b", {3, 2});
  CHECK(reported == std::vector<std::size_t>{24, 48});
}

}  // namespace
}  // namespace quire
