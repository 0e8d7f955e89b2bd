#pragma once
// Matrices that a checkpoint publishes as small integers with scales beside them: GPTQ, AWQ and
// compressed-tensors' packed and 8-bit forms.

#include <memory>
#include <optional>
#include <string>

#include "model/checkpoint.h"
#include "model/quant_config.h"
#include "model/row_reader.h"

namespace quire {

class PackedWeights {
 public:
  PackedWeights(const Checkpoint* checkpoint, std::optional<PackedConfig> config)
      : checkpoint_(checkpoint), config_(std::move(config)) {}

  // `name` is a matrix's, "….q_proj.weight", whatever stands for it in the file.
  bool has(const std::string& name) const;
  // None where rows cannot be groups of 16 or 32 columns in their order, or of `widest`: sizes that
  // these do not divide, columns in another order, 8 bits with zero points. Of `widest` only where
  // each of the ranks could have whole ones.
  std::optional<GroupFormat> group_format(const std::string& name, int widest = 32,
                                          int ranks = 1) const;
  // Likewise of a matrix whose file is not there, as the configuration lets expect it.
  std::optional<GroupFormat> expected_format(const std::string& name, std::int64_t rows,
                                             std::int64_t columns, int widest, int ranks) const;
  // Throws Failure where parts are missing, misshapen or no numbers to compute with.
  std::unique_ptr<RowReader> open(const std::string& name, std::int64_t rows,
                                  std::int64_t columns) const;

 private:
  std::optional<GroupFormat> format_of(std::int64_t columns, int widest, int ranks) const;

  const Checkpoint* checkpoint_;
  std::optional<PackedConfig> config_;
};

}  // namespace quire
