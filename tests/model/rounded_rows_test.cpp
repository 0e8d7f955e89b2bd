// --quantization int8 and int4: how far a rounded matrix is from the published one, and where it is
// refused.

#include "model/rounded_rows.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <random>

#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "model/registry.h"

namespace quire {
namespace {

struct Matrix {
  Matrix(std::int64_t rows, std::int64_t columns) : values(static_cast<std::size_t>(rows * columns)) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (bf16& value : values) value = bf16(normal(random));
    tensor.dtype = DType::bf16;
    tensor.shape = {rows, columns};
  }
  const std::byte* data() const { return reinterpret_cast<const std::byte*>(values.data()); }
  std::vector<bf16> values;
  StoredTensor tensor;
};

TEST_CASE("a rounded number is at most half a step from the published one", "[model][rounding]") {
  const Matrix matrix(5, 96);
  for (const int bits : {8, 4}) {
    INFO(bits);
    const GroupFormat format = rounded_format(bits);
    const RoundedRows rows(matrix.tensor, matrix.data(), nullptr, bits);
    CodeRow codes(96, format);
    std::vector<std::byte> tiles(static_cast<std::size_t>(16 * group_row_bytes(format, 96)));
    for (std::int64_t r = 0; r < 5; ++r) {
      rows.row(r, codes);
      REQUIRE(pack_row(format, codes, r, tiles.data()));
      std::vector<float> back(96), exact(96);
      unpack_row(format, tiles.data(), r, back);
      rows.row(r, exact.data());
      for (std::size_t k = 0; k < 96; ++k) {
        CHECK(exact[k] == static_cast<float>(matrix.values[static_cast<std::size_t>(r) * 96 + k]));
        // Scales and minima are float16: up to a thousandth of the largest beside the half step.
        CHECK(std::abs(back[k] - exact[k]) <= codes.scales[k / 32] * (bits == 8 ? 0.57 : 0.51));
      }
    }
  }
}

TEST_CASE("a group of one value, or of none, is exact", "[model][rounding]") {
  Matrix matrix(1, 64);
  for (std::size_t k = 0; k < 64; ++k) matrix.values[k] = bf16(k < 32 ? 0.f : -2.f);
  for (const int bits : {8, 4}) {
    const GroupFormat format = rounded_format(bits);
    CodeRow codes(64, format);
    RoundedRows(matrix.tensor, matrix.data(), nullptr, bits).row(0, codes);
    std::vector<std::byte> tiles(static_cast<std::size_t>(16 * group_row_bytes(format, 64)));
    REQUIRE(pack_row(format, codes, 0, tiles.data()));
    std::vector<float> back(64);
    unpack_row(format, tiles.data(), 0, back);
    for (std::size_t k = 0; k < 64; ++k) CHECK(back[k] == Approx(k < 32 ? 0 : -2).epsilon(1e-3));
  }
}

TEST_CASE("rounding is refused where it would do nothing", "[model][rounding]") {
  const ModelConfig plain = read_model_config("models/quire-tiny");
  const auto device = make_cpu_device();
  const auto refused = [&](const ModelConfig& config, const LoadOptions& options) -> std::string {
    try {
      load_model(config, "models/quire-tiny", *device, cpu_traits(), options);
    } catch (const Failure& failure) {
      CHECK(failure.error().field == "LoadOptions::quantization");
      return failure.error().detail;
    }
    return "";
  };
  CHECK(refused(plain, {.quantization = "int8"}).empty());
  CHECK(refused(plain, {.quantization = "int4"}).empty());
  CHECK(refused(plain, {.quantization = "int3"}).find("rounded to int8 or int4") != std::string::npos);
  CHECK(refused(plain, {.dtype = DType::f32, .quantization = "int8"}).find("bfloat16") !=
        std::string::npos);
  CHECK(refused(plain, {.load_format = LoadFormat::dummy, .quantization = "int4"})
            .find("no weights") != std::string::npos);
  ModelConfig packed = plain;
  packed.quant.method = "gptq";
  CHECK(refused(packed, {.quantization = "int8"}).find("already") != std::string::npos);
}

TEST_CASE("rounded matrices take the bytes of their codes", "[model][rounding]") {
  const ModelConfig config = read_model_config("models/quire-tiny");
  const auto device = make_cpu_device();
  const auto bytes = [&](const std::string& method) {
    return load_model(config, "models/quire-tiny", *device, cpu_traits(), {.quantization = method})
        ->weight_bytes();
  };
  const std::size_t plain = bytes(""), eight = bytes("int8"), four = bytes("int4");
  const double layers = config.num_layers *
                        (config.hidden_size * config.head_dim *
                             (2. * config.num_heads + 2. * config.num_kv_heads) +
                         3. * config.hidden_size * config.intermediate_size);
  const double table = double{1} * config.vocab_size * config.hidden_size;
  // A scale in 16 bits for 32 codes, or a scale and a minimum; beside them rotary tables and norms.
  CHECK(static_cast<double>(plain - eight) == Approx((layers + table) * (2 - 34. / 32)).epsilon(0.01));
  CHECK(static_cast<double>(eight - four) == Approx(layers * (34 - 20) / 32.).epsilon(0.01));
}

}  // namespace
}  // namespace quire
