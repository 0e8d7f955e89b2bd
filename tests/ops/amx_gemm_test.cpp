// The AMX product on tiles in plain C++: packing, edges and the order of sums are the same code
// that runs on the hardware's tiles, where a machine has them.

#define QUIRE_CPU_ISA emulated_amx
#include "cpu/kernels/gemm_amx.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "tests/support/op_test.h"

namespace quire::test {
namespace {

// Eight registers of 16 rows of 64 bytes. A use that the configuration forbids fails the test.
struct EmulatedTiles {
  static inline std::uint32_t cell[8][16][16];
  static inline int columns[8];  // 0: not configured

  static void configure(int first, int second) {
    std::memset(cell, 0xff, sizeof(cell));
    const int all[8] = {first, second, first, second, 16, 16, first, second};
    std::copy(all, all + 8, columns);
  }
  static void release() { std::fill(columns, columns + 8, 0); }
  template <int kTile>
  static void zero() {
    std::memset(cell[kTile], 0, sizeof(cell[kTile]));
  }
  template <int kTile>
  static void load(const void* data, std::int64_t stride) {
    REQUIRE(columns[kTile] > 0);
    for (int r = 0; r < 16; ++r) {
      std::memset(cell[kTile][r], 0, 64);
      std::memcpy(cell[kTile][r], static_cast<const char*>(data) + r * stride,
                  static_cast<std::size_t>(columns[kTile]) * 4);
    }
  }
  template <int kTile>
  static void store(void* data, std::int64_t stride) {
    for (int r = 0; r < 16; ++r) {
      std::memcpy(static_cast<char*>(data) + r * stride, cell[kTile][r],
                  static_cast<std::size_t>(columns[kTile]) * 4);
    }
  }
  // Intel SDM, TDPBF16PS.
  template <int kC, int kA, int kB>
  static void dot() {
    REQUIRE(columns[kB] == columns[kC]);
    for (int m = 0; m < 16; ++m) {
      for (int n = 0; n < columns[kC]; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < 16; ++k) {
          even += half(cell[kA][m][k], 0) * half(cell[kB][k][n], 0);
          odd += half(cell[kA][m][k], 1) * half(cell[kB][k][n], 1);
        }
        float sum;
        std::memcpy(&sum, &cell[kC][m][n], 4);
        sum += even + odd;
        std::memcpy(&cell[kC][m][n], &sum, 4);
      }
    }
  }
  static float half(std::uint32_t pair, int which) {
    return std::bit_cast<float>(which == 0 ? pair << 16 : pair & 0xffff0000u);
  }
};

HostTensor product(const HostTensor& x, std::int64_t first, std::int64_t rows, const HostTensor& w,
                   const HostTensor& bias, DType out_type) {
  const std::int64_t k = w.extents[1], n = w.extents[0];
  HostTensor out(out_type, {rows, n});
  std::vector<std::uint32_t> scratch(static_cast<std::size_t>((k + 31) / 32 * 32) * 16);
  const cpu::GemmArgs args{.w = w.bytes.data(),
                           .w_type = cpu::Float::bf16,
                           .w_stride = k,
                           .x = x.bytes.data() + first * k * 2,
                           .x_stride = k,
                           .out = out.bytes.data(),
                           .out_type = out_type == DType::f32 ? cpu::Float::f32 : cpu::Float::bf16,
                           .out_stride = n,
                           .bias = bias.bytes.data(),
                           .bias_type = cpu::Float::bf16,
                           .k = k};
  // In two parts, as two threads would.
  cpu::emulated_amx::AmxGemm<EmulatedTiles> gemm(args, scratch.data());
  gemm.run(0, rows, 0, n / 3);
  gemm.run(0, rows, n / 3, n);
  return out;
}

}  // namespace

TEST_CASE("the AMX product is right at every edge and for a row alone", "[ops][linear][amx]") {
  const std::int64_t k = GENERATE(32, 64, 37, 200, 5);
  const std::int64_t n = GENERATE(16, 32, 75, 9);
  const DType out_type = GENERATE(DType::f32, DType::bf16);
  const std::int64_t rows = 70;
  std::mt19937 rng(1);
  const HostTensor x = random_tensor(rng, DType::bf16, {rows, k});
  const HostTensor w = random_tensor(rng, DType::bf16, {n, k}, 0.3f);
  const HostTensor bias = random_tensor(rng, DType::bf16, {n});
  std::vector<double> want;
  for (std::int64_t i = 0; i < rows * n; ++i) {
    double sum = bias.at(i % n);
    for (std::int64_t j = 0; j < k; ++j) sum += double(x.at(i / n * k + j)) * w.at(i % n * k + j);
    want.push_back(sum);
  }
  const HostTensor whole = product(x, 0, rows, w, bias, out_type);
  check_close(whole, want);
  const auto row_bytes =
      static_cast<std::ptrdiff_t>(static_cast<std::size_t>(n) * size_of(out_type));
  for (const std::int64_t count : {1, 3, 16, 17, 31, 32, 33}) {
    const HostTensor part = product(x, 2, count, w, bias, out_type);
    INFO(count << " rows of " << n << " by " << k);
    CHECK(std::equal(part.bytes.begin(), part.bytes.end(), whole.bytes.begin() + 2 * row_bytes));
  }
}

}  // namespace quire::test
