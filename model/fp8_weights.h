#pragma once
// Matrices that a checkpoint publishes in e4m3, with the scales beside them: weight = code · scale.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/ops_moe.h"
#include "model/checkpoint.h"
#include "model/quant_config.h"
#include "model/shard.h"

namespace quire {

// The scales of one matrix [rows, columns]; one for the whole matrix is repeated for every row.
struct Fp8Scales {
  WeightFormat format = WeightFormat::fp8_rows;  // or fp8_blocks
  std::int64_t columns = 1;                      // of values: 1, or ⌈columns / kFp8Block⌉
  std::vector<float> values;                     // [rows or ⌈rows / kFp8Block⌉, columns]

  // Those of the picked rows; none where a block would hold rows of several published blocks.
  std::optional<Fp8Scales> of_rows(const std::vector<std::int64_t>& pick) const;
  // Those of neighbouring columns of the matrix, likewise.
  std::optional<Fp8Scales> of_columns(const Range& range) const;
};

class Fp8Weights {
 public:
  // Without a checkpoint the configuration decides what is fp8, and scales are made up.
  Fp8Weights(const Checkpoint* checkpoint, std::optional<Fp8Config> config)
      : checkpoint_(checkpoint), config_(std::move(config)) {}

  // `name` is a matrix's, "….q_proj.weight". Throws Failure where files and configuration
  // contradict each other.
  bool has(const std::string& name) const;
  // Throws Failure where they are missing, misshapen, or not positive numbers.
  Fp8Scales scales(const std::string& name, std::int64_t rows, std::int64_t columns) const;
  // What the input of the matrix's product is divided by; none where each token has its own.
  std::optional<float> input_scale(const std::string& name) const;
  std::vector<float> dequantized(const std::string& name, std::int64_t rows,
                                 std::int64_t columns) const;

 private:
  std::vector<float> read(const std::string& scale, const std::string& matrix,
                          const std::vector<std::vector<std::int64_t>>& shapes) const;

  const Checkpoint* checkpoint_;
  std::optional<Fp8Config> config_;
};

}  // namespace quire
