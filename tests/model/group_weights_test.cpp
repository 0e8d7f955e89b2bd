// Products with weights in groups, once per instruction set of this machine, against plain loops in
// double: over the input in 8 bits, which only summing in float32 may change, and over the input
// itself, which rounding to 8 bits may change by a percent of the result's size.

#include <catch2/catch.hpp>

#include <cmath>
#include <random>

#include "backend/group_pack.h"
#include "cpu/cpu_backend.h"
#include "gguf/archive.h"
#include "gguf/codes.h"
#include "model/gguf/values.h"

namespace quire {
namespace {

const StreamRef kStream = make_cpu_device()->stream();

constexpr GroupFormat kFormats[] = {
    {.bits = 8, .zero = 128},
    {.bits = 4, .zero = 8},
    {.bits = 4, .has_min = true},
    {.bits = 4, .group = 16, .zero = 4},
    {.bits = 4, .group = 16, .has_min = true},
    {.bits = 4, .zero = kNonlinearZero, .nonlinear = true},
    {.bits = 6, .zero = 16},
    {.bits = 6, .has_min = true},
    {.bits = 6, .group = 16, .zero = 32},
};

struct Packed {
  Packed(const GroupFormat& format, std::int64_t rows, std::int64_t columns, std::mt19937& random)
      : rows(rows),
        columns(columns),
        padded((rows + 15) / 16 * 16),
        tiles(static_cast<std::size_t>(padded * group_row_bytes(format, columns))) {
    std::uniform_real_distribution<float> scale(-0.02f, 0.02f);
    CodeRow row(columns, format);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (auto& s : row.scales) s = static_cast<float>(f16(scale(random)));
      for (auto& m : row.mins) m = static_cast<float>(f16(scale(random)));
      for (auto& code : row.codes) code = static_cast<std::uint8_t>(random() % (1u << format.bits));
      REQUIRE(pack_row(format, row, r, tiles.data()));
      for (std::size_t k = 0; k < row.codes.size(); ++k) {
        const std::uint8_t code = row.codes[k];
        const int value = (format.nonlinear ? kNonlinearCodes[code] : code) - format.zero;
        const std::size_t g = k / format.group;
        values.push_back(double{row.scales[g]} * value - (format.has_min ? row.mins[g] : 0.f));
      }
    }
    std::vector<float> again(static_cast<std::size_t>(columns));
    for (std::int64_t r = 0; r < rows; ++r) {
      unpack_row(format, tiles.data(), r, again);
      for (std::int64_t k = 0; k < columns; ++k) {
        const double value = values[static_cast<std::size_t>(r * columns + k)];
        REQUIRE(std::abs(again[static_cast<std::size_t>(k)] - value) <= 1e-6 * (1 + std::abs(value)));
      }
    }
    weight.data = TensorView(tiles.data(), DType::u8, {padded, group_row_bytes(format, columns)});
    weight.format = WeightFormat::groups;
    weight.group = format;
  }
  std::int64_t rows, columns, padded;
  std::vector<std::byte> tiles;
  std::vector<double> values;
  Weight weight;
};

// As the operator rounds it: 32 columns by their largest. Where the product with the inverse is
// rounded itself (no fused addition) a half may fall on the other side.
std::vector<double> in_8_bits(const std::vector<float>& x, bool fused) {
  std::vector<double> out;
  for (std::size_t g = 0; g < x.size(); g += 32) {
    float largest = 0;
    for (std::size_t i = g; i < g + 32; ++i) largest = std::max(largest, std::abs(x[i]));
    const float inverse = largest > 0 ? 127.f / largest : 0.f, scale = largest / 127.f;
    for (std::size_t i = g; i < g + 32; ++i) {
      const double exact = double{x[i]} * inverse;
      out.push_back(std::nearbyint(fused ? exact : static_cast<float>(exact)) * scale);
    }
  }
  return out;
}

void check(Ops& ops, const Packed& w, std::int64_t m, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(m * w.columns));
  std::vector<float> bias(static_cast<std::size_t>(w.rows)), out(static_cast<std::size_t>(m * w.rows));
  for (float& v : x) v = normal(random);
  for (float& v : bias) v = normal(random);
  const auto view = [](std::vector<float>& v, std::int64_t rows) {
    return TensorView(v.data(), DType::f32, {rows, static_cast<std::int64_t>(v.size()) / rows});
  };
  ops.quantized_linear(view(out, m), view(x, m), w.weight,
                       TensorView(bias.data(), DType::f32, {w.rows}), {}, kStream);
  const std::vector<double> fused = in_8_bits(x, true), rounded = in_8_bits(x, false);
  double off = 0, size = 0;
  for (std::int64_t i = 0; i < m * w.rows; ++i) {
    const std::int64_t r = i / w.rows, n = i % w.rows;
    double exact = bias[static_cast<std::size_t>(n)], seen = exact, other = exact, magnitude = 1;
    for (std::int64_t k = 0; k < w.columns; ++k) {
      const double value = w.values[static_cast<std::size_t>(n * w.columns + k)];
      const auto at = static_cast<std::size_t>(r * w.columns + k);
      exact += value * x[at];
      seen += value * rounded[at];
      other += value * fused[at];
      magnitude += std::abs(value * rounded[at]);
    }
    const double got = out[static_cast<std::size_t>(i)];
    CHECK(std::min(std::abs(got - seen), std::abs(got - other)) <= 2e-6 * magnitude);
    off += (got - exact) * (got - exact);
    size += magnitude * magnitude / static_cast<double>(w.columns);
  }
  CHECK(std::sqrt(off / size) <= 0.012);
}

TEST_CASE("products with packed codes are those with the numbers they stand for", "[model][ops]") {
  for (const CpuIsa isa :
       {CpuIsa::portable, CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512_bf16}) {
    if (isa > detect_cpu_isa()) break;
    INFO(name_of(isa));
    const auto ops = make_cpu_ops({.threads = 2, .best_isa = isa});
    std::mt19937 random(11);
    for (const GroupFormat& format : kFormats) {
      INFO("bits " << int{format.bits} << " group " << int{format.group} << " minimum "
                   << format.has_min << " nonlinear " << format.nonlinear);
      const Packed whole(format, 48, 96, random), odd(format, 37, 64, random);
      for (const std::int64_t m : {1, 2, 5, 19, 33}) {
        check(*ops, whole, m, random);
        check(*ops, odd, m, random);
      }
    }
  }
}

TEST_CASE("a row's product does not depend on its company", "[model][ops]") {
  const auto ops = make_cpu_ops({.threads = 2});
  std::mt19937 random(5);
  const Packed w(kFormats[1], 64, 128, random);
  std::normal_distribution<float> normal;
  std::vector<float> x(15 * 128), all(15 * 64), one(64);
  for (float& v : x) v = normal(random);
  ops->quantized_linear(TensorView(all.data(), DType::f32, {15, 64}),
                        TensorView(x.data(), DType::f32, {15, 128}), w.weight, {}, {}, kStream);
  for (std::int64_t r = 0; r < 15; ++r) {
    ops->quantized_linear(TensorView(one.data(), DType::f32, {1, 64}),
                          TensorView(x.data() + r * 128, DType::f32, {1, 128}), w.weight, {}, {},
                          kStream);
    CHECK(std::equal(one.begin(), one.end(), all.begin() + r * 64));
  }
}

TEST_CASE("inputs too small for a scale count as zero, and one that is no number shows", "[model][ops]") {
  for (const CpuIsa isa : {CpuIsa::portable, CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512_bf16}) {
    if (isa > detect_cpu_isa()) break;
    INFO(name_of(isa));
    const auto ops = make_cpu_ops({.threads = 2, .best_isa = isa});
    std::mt19937 random(7);
    for (const GroupFormat& format : {kFormats[0], kFormats[1], kFormats[2]}) {
      const Packed w(format, 32, 64, random);
      std::vector<float> x(3 * 64), out(3 * 32);
      for (std::size_t k = 0; k < 64; ++k) x[k] = k % 2 == 0 ? 1e-38f : -3e-37f;
      x[64 + 40] = std::nanf("");
      ops->quantized_linear(TensorView(out.data(), DType::f32, {3, 32}),
                            TensorView(x.data(), DType::f32, {3, 64}), w.weight, {}, {}, kStream);
      const auto row = [&](int r) { return std::vector(out.begin() + 32 * r, out.begin() + 32 * (r + 1)); };
      for (const float y : row(0)) CHECK(std::abs(y) < 1e-33f);
      for (const float y : row(1)) CHECK(std::isnan(y));
      for (const float y : row(2)) CHECK(y == 0.f);
    }
  }
}

TEST_CASE("GGUF blocks stay packed as codes of the same numbers", "[model][gguf]") {
  const gguf::Shard file("tests/data/gguf/blocks.gguf");
  int packed = 0;
  for (const gguf::TensorInfo& info : file.header.tensors) {
    StoredTensor tensor;
    tensor.shape = info.shape;
    tensor.bytes = info.bytes;
    tensor.gguf = GgufTensor{.type = info.type->type};
    const auto format = group_format_of(*tensor.gguf);
    if (!format) continue;
    INFO(info.type->name);
    const GgufValues values(tensor, file.map.data() + info.begin);
    CodeRow codes(info.shape.back(), *format);
    values.row(0, codes);
    std::vector<float> numbers(codes.codes.size());
    values.row(0, numbers.data());
    for (std::size_t k = 0; k < numbers.size(); ++k) {
      const int code = format->nonlinear ? kNonlinearCodes[codes.codes[k]] : codes.codes[k];
      const std::size_t g = k / format->group;
      CHECK(numbers[k] == codes.scales[g] * static_cast<float>(code - format->zero) -
                              (format->has_min ? codes.mins[g] : 0.f));
    }
    ++packed;
  }
  CHECK(packed == 12);
}

}  // namespace
}  // namespace quire
