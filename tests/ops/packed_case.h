#pragma once
// A matrix of packed integers for the operator tests: its numbers, and its tiles as a backend has
// them.

#include "backend/fragment_pack.h"
#include "tests/support/op_test.h"

namespace quire::test {

inline constexpr GroupFormat kPackedFormats[] = {
    {.bits = 8, .zero = 128},
    {.bits = 8, .group = 128, .zero = 128},
    {.bits = 4, .zero = 8},
    {.bits = 4, .has_min = true},
    {.bits = 4, .group = 16, .zero = 4},
    {.bits = 4, .group = 16, .has_min = true},
    {.bits = 4, .group = 128, .zero = 8},
    {.bits = 4, .group = 128, .has_min = true},
    {.bits = 4, .zero = kNonlinearZero, .nonlinear = true},
    {.bits = 6, .zero = 16},
    {.bits = 6, .has_min = true},
    {.bits = 6, .group = 16, .zero = 32},
};

inline std::string name_of(const GroupFormat& format) {
  return std::to_string(format.bits) + " bits, groups of " + std::to_string(format.group) +
         (format.has_min ? ", minima" : "") + (format.nonlinear ? ", indices" : "");
}

// Matrices [experts, rows, columns], each of whole tiles or the only one; results of the order
// of 1.
struct PackedCase {
  GroupFormat format;
  std::int64_t rows, columns, padded, experts;
  std::vector<double> values;
  std::vector<std::byte> groups, fragments;  // the CPU's tiles, if it has any; CUDA's

  PackedCase(std::mt19937& rng, const GroupFormat& format, std::int64_t rows, std::int64_t columns,
             std::int64_t experts = 1)
      : format(format),
        rows(rows),
        columns(columns),
        padded((rows + 15) / 16 * 16),
        experts(experts),
        fragments(
            static_cast<std::size_t>(experts * padded * fragment_row_bytes(format, columns))) {
    if (format.group <= 32)
      groups.resize(static_cast<std::size_t>(experts * padded * group_row_bytes(format, columns)));
    const float spread = format.nonlinear || format.bits == 8 ? 70.f
                         : format.bits == 6                   ? 20.f
                                                              : 5.f;
    const float size = 1.f / (spread * std::sqrt(static_cast<float>(columns)));
    std::uniform_real_distribution<float> scale(0.5f * size, 1.5f * size);
    const float middle = format.bits == 6 ? 32.f : 8.f;
    CodeRow row(columns, format);
    for (std::int64_t r = 0; r < experts * rows; ++r) {
      for (std::size_t g = 0; g < row.scales.size(); ++g) {
        row.scales[g] = half(scale(rng));
        row.mins[g] = format.has_min ? half(row.scales[g] * middle + scale(rng)) : 0.f;
      }
      for (auto& code : row.codes) code = static_cast<std::uint8_t>(rng() % (1u << format.bits));
      const std::int64_t at = r / rows * padded + r % rows;
      bool packed = pack_fragment_row(format, row, at, fragments.data());
      if (!groups.empty()) packed = packed && pack_row(format, row, at, groups.data());
      if (!packed) throw std::logic_error("a scale that is no float16");
      for (std::size_t k = 0; k < row.codes.size(); ++k) {
        const int code = format.nonlinear ? kNonlinearCodes[row.codes[k]] : row.codes[k];
        const std::size_t g = k / format.group;
        values.push_back(double{row.scales[g]} * (code - format.zero) - double{row.mins[g]});
      }
    }
  }

  double at(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }

  // x · valuesᵀ (+ bias) of the only matrix
  std::vector<double> product(const HostTensor& x, const HostTensor* bias) const {
    std::vector<double> out;
    const std::vector<double> xs = x.values();
    for (std::int64_t t = 0; t < x.extents[0]; ++t) {
      for (std::int64_t r = 0; r < rows; ++r) {
        double sum = bias == nullptr ? 0. : bias->at(r);
        for (std::int64_t k = 0; k < columns; ++k)
          sum += xs[static_cast<std::size_t>(t * columns + k)] * at(r, k);
        out.push_back(sum);
      }
    }
    return out;
  }

  static bool is_cpu(const OpBackend& backend) { return backend.device->is_host_memory(); }
  bool suits(const OpBackend& backend) const { return !is_cpu(backend) || !groups.empty(); }

  Weight weight(OpRun& run) const {
    const bool cpu = run.device().is_host_memory();
    const std::vector<std::byte>& tiles = cpu ? groups : fragments;
    const std::int64_t row_bytes = static_cast<std::int64_t>(tiles.size()) / (experts * padded);
    HostTensor data(DType::u8, experts > 1 ? std::vector<std::int64_t>{experts, padded, row_bytes}
                                           : std::vector<std::int64_t>{padded, row_bytes});
    data.bytes = tiles;
    return {.data = run.upload_constant(data),
            .scales = {},
            .format = cpu ? WeightFormat::groups : WeightFormat::fragments,
            .group = format};
  }

  // The CPU rounds x to 8 bits of its largest in 32 columns: a few thousandths of a result's size.
  void check(const OpBackend& backend, const HostTensor& got,
             const std::vector<double>& want) const {
    if (!is_cpu(backend)) return check_close(got, want);
    const Tolerance exact = tolerance_of(got.dtype);
    check_close(got, want, {exact.absolute + 0.06, exact.relative});
  }

 private:
  static float half(float value) { return static_cast<float>(f16(value)); }
};

}  // namespace quire::test
