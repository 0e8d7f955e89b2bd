// --quantization int8 and int4: how far a rounded matrix is from the published one, and where it is
// refused.

#include "model/rounded_rows.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "model/registry.h"
#include "model/weights.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temp_path.h"

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
  CHECK(refused(plain, {.quantization = "gptq_marlin"}).find("no quantization_config") !=
        std::string::npos);
  ModelConfig packed = plain;
  packed.quant.method = "gptq";
  CHECK(refused(packed, {.quantization = "awq_marlin"}).find("is \"gptq\"") != std::string::npos);
  CHECK(refused(packed, {.quantization = "gptq_marlin"}).empty());
  CHECK(refused(packed, {.quantization = "int8"}).find("already") != std::string::npos);
}

TEST_CASE("no code stands for a number that is not finite", "[model][rounding]") {
  for (const float odd : {NAN, -NAN, INFINITY, -INFINITY}) {
    for (const int bits : {8, 4}) {
      INFO(odd << " in " << bits << " bits");
      Matrix matrix(2, 64);
      matrix.values[64 + 37] = bf16(odd);
      const GroupFormat format = rounded_format(bits);
      CodeRow codes(64, format);
      std::vector<std::byte> tiles(static_cast<std::size_t>(16 * group_row_bytes(format, 64)));
      const RoundedRows rows(matrix.tensor, matrix.data(), nullptr, bits);
      rows.row(0, codes);
      CHECK(pack_row(format, codes, 0, tiles.data()));
      rows.row(1, codes);
      CHECK_FALSE(pack_row(format, codes, 1, tiles.data()));

      test::ModelFolder folder("odd_rows");
      const auto& v = matrix.values;
      const auto* const bytes = reinterpret_cast<const char*>(v.data());
      folder.write_tensors({{"m.weight", {"BF16", {2, 64}, std::string(bytes, v.size() * 2)}}});
      const auto device = make_cpu_device();
      Weights weights(folder.path(), LoadFormat::safetensors, 0, DType::bf16, *device);
      weights.round_matrices(bits);
      const std::vector<Source> sources{{.name = "m.weight", .shape = {2, 64}}};
      CHECK_THROWS_WITH(weights.load_groups(sources, {2, 64}, *weights.groups_of("m.weight", {2, 64})),
                        Catch::Contains("tensor \"m.weight\" row 1 is ") &&
                            Catch::Contains(std::isnan(odd) ? "nan" : "inf") &&
                            Catch::Contains("in column 37"));
    }
  }
}

TEST_CASE("a file that is packed already is not rounded, a plain GGUF is", "[model][rounding]") {
  const auto load = [&](const std::string& name, std::uint32_t type, std::size_t bytes) {
    const auto file = temp_path("quire_packed_gguf");
    GgufBytes gguf;
    gguf.text("general.architecture", "llama").u32("llama.attention.head_count", 1);
    gguf.tensor(name, {32, 4}, type, 0);
    std::ofstream(file, std::ios::binary) << gguf.with_data(bytes);
    const bool packed = is_mostly_packed(Checkpoint(file));
    std::filesystem::remove(file);
    return packed;
  };
  CHECK(load("blk.0.attn_q.weight", 8, 4 * 34));     // Q8_0
  CHECK_FALSE(load("blk.0.attn_q.weight", 1, 256));  // F16
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
