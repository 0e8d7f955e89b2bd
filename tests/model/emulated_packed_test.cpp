// Packed weights on the way to the CUDA backend, its kernels emulated: what lies in a device's
// memory stands for the published numbers, and products are those with them.

#include <catch2/catch.hpp>

#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <random>

#include "backend/measuring_device.h"
#include "cpu/cpu_backend.h"
#include "cuda/cuda_backend.h"
#include "gguf/archive.h"
#include "gguf/codes.h"
#include "model/weights.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temp_path.h"

namespace quire {
namespace {

class OnDevice {
 public:
  TensorView upload(const void* data, DType dtype, const Shape& shape) {
    const TensorView out = make(dtype, shape);
    device->copy(out.data(), data, out.bytes(), stream());
    return out;
  }
  TensorView make(DType dtype, const Shape& shape) {
    buffers_.push_back(device->allocate(view_of(nullptr, dtype, shape).bytes()));
    return view_of(buffers_.back().data(), dtype, shape);
  }
  std::vector<float> floats(TensorView view) {
    std::vector<float> out(static_cast<std::size_t>(view.numel()));
    device->copy(out.data(), view.data(), view.bytes(), stream());
    device->synchronize(stream());
    return out;
  }
  StreamRef stream() { return device->stream(); }

  std::unique_ptr<Device> device = make_cuda_device({});
  std::unique_ptr<Ops> ops = make_cuda_ops(*device);

 private:
  std::vector<Buffer> buffers_;
};

constexpr std::int64_t kRows = 2, kColumns = 512;

// The blocks of tests/data/gguf/blocks.gguf as a matrix of each type: a row as they stand, and one
// backwards.
struct Matrices {
  Matrices() {
    const gguf::Shard stored("tests/data/gguf/blocks.gguf");
    GgufBytes header;
    header.text("general.architecture", "qwen3");
    std::string data;
    for (const gguf::TensorInfo& info : stored.header.tensors) {
      if (!info.name.starts_with("stored.") || gguf::code_format(info.type->type) == nullptr)
        continue;
      const std::string blocks(reinterpret_cast<const char*>(stored.map.data() + info.begin),
                               info.bytes);
      const auto size = static_cast<std::size_t>(info.type->bytes);
      std::string rows = blocks;
      for (std::size_t at = blocks.size(); at > 0; at -= size)
        rows += blocks.substr(at - size, size);
      const std::string name = std::string(info.type->name);
      header.tensor(name + ".weight", {kColumns, kRows},
                    static_cast<std::uint32_t>(info.type->type), data.size());
      data += rows;
      data.resize((data.size() + 31) / 32 * 32);
      std::vector<float>& all = numbers[name];
      all.resize(kRows * kColumns);
      for (std::int64_t r = 0; r < kRows; ++r) {
        gguf::dequantize(info.type->type,
                         reinterpret_cast<const std::byte*>(rows.data()) +
                             static_cast<std::int64_t>(blocks.size()) * r,
                         kColumns, all.data() + r * kColumns);
      }
    }
    std::ofstream(path, std::ios::binary) << header.with_data(0) + data;
  }
  ~Matrices() { std::filesystem::remove(path); }

  const std::filesystem::path path = temp_path("emulated_packed").replace_extension(".gguf");
  std::map<std::string, std::vector<float>> numbers;
};

TEST_CASE("every GGUF block type that stays packed on the CPU does on CUDA", "[model][cuda]") {
  const Matrices file;
  OnDevice on;
  Weights weights(file.path, LoadFormat::safetensors, 0, DType::bf16, *on.device);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const char* type : {"Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
                           "Q6_K", "IQ4_NL", "IQ4_XS"}) {
    INFO(type);
    const std::string name = std::string(type) + ".weight";
    const auto format = weights.groups_of(name, {kRows, kColumns});
    REQUIRE(format);
    const Weight weight = weights.load_groups({{.name = name, .shape = {kRows, kColumns}}},
                                              {kRows, kColumns}, *format);
    CHECK(weight.format == WeightFormat::fragments);
    MeasuringDevice nowhere(/*is_host_memory=*/false);
    Weights measured(file.path, LoadFormat::safetensors, 0, DType::bf16, nowhere, {}, true);
    measured.load_groups({{.name = name, .shape = {kRows, kColumns}}}, {kRows, kColumns}, *format);
    CHECK(measured.bytes() == weight.data.bytes());

    const std::int32_t ids[kRows] = {0, 1};
    const TensorView all = on.make(DType::f32, {kRows, kColumns});
    on.ops->quantized_embedding(all, weight, 0, on.upload(ids, DType::i32, {kRows}), on.stream());
    const std::vector<float> numbers = on.floats(all);
    const std::vector<float>& want = file.numbers.at(type);
    float largest = 0;
    for (const float value : want) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < want.size(); ++i) {
      INFO(i);
      CHECK(std::abs(numbers[i] - want[i]) <= 2e-3f * largest);  // scales are float16 in tiles
    }

    for (const std::int64_t rows : {1, 40}) {
      std::vector<bf16> x(static_cast<std::size_t>(rows * kColumns));
      for (bf16& value : x) value = bf16(normal(random));
      const TensorView out = on.make(DType::f32, {rows, kRows});
      on.ops->quantized_linear(out, on.upload(x.data(), DType::bf16, {rows, kColumns}), weight, {},
                               {}, on.stream());
      const std::vector<float> got = on.floats(out);
      for (std::int64_t i = 0; i < rows * kRows; ++i) {
        double sum = 0, size = 0;
        for (std::int64_t k = 0; k < kColumns; ++k) {
          const bf16 value = x[static_cast<std::size_t>(i / kRows * kColumns + k)];
          const double part = double{static_cast<float>(value)} *
                              double{numbers[static_cast<std::size_t>(i % kRows * kColumns + k)]};
          sum += part;
          size += std::abs(part);
        }
        CHECK(std::abs(got[static_cast<std::size_t>(i)] - sum) <= 1e-5 * size);
      }
    }
  }
}

// What a device's operators read of the matrix that the folder publishes as "m.weight".
std::vector<float> rounded_rows(const std::filesystem::path& folder, int bits, Device& device,
                                Ops& ops) {
  Weights weights(folder, LoadFormat::safetensors, 0, DType::bf16, device);
  weights.round_matrices(bits);
  const auto format = weights.groups_of("m.weight", {20, 160});
  REQUIRE(format);
  const Weight weight =
      weights.load_groups({{.name = "m.weight", .shape = {20, 160}}}, {20, 160}, *format);
  std::vector<std::int32_t> ids(20);
  std::iota(ids.begin(), ids.end(), 0);
  const Buffer there = device.allocate(ids.size() * 4), out = device.allocate(20 * 160 * 4);
  device.copy(there.data(), ids.data(), ids.size() * 4, device.stream());
  ops.quantized_embedding(TensorView(out.data(), DType::f32, {20, 160}), weight, 0,
                          TensorView(there.data(), DType::i32, {20}), device.stream());
  std::vector<float> rows(20 * 160);
  device.copy(rows.data(), out.data(), rows.size() * 4, device.stream());
  device.synchronize(device.stream());
  return rows;
}

TEST_CASE("matrices rounded while they load are the CPU's numbers on CUDA", "[model][cuda]") {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> values(20 * 160);
  for (float& value : values) value = normal(random);
  test::ModelFolder folder("rounded_on_cuda");
  folder.write_tensors({{"m.weight", test::file_tensor("F32", {20, 160}, values)}});
  for (const int bits : {4, 8}) {
    INFO(bits);
    const auto cpu = make_cpu_device();
    const auto cpu_ops = make_cpu_ops({.threads = 1});
    OnDevice on;
    const std::vector<float> want = rounded_rows(folder.path(), bits, *cpu, *cpu_ops);
    const std::vector<float> got = rounded_rows(folder.path(), bits, *on.device, *on.ops);
    for (std::size_t i = 0; i < want.size(); ++i) CHECK(got[i] == Approx(want[i]).margin(1e-5));
  }
}

}  // namespace
}  // namespace quire
