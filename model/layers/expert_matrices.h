#pragma once
// One matrix of every expert of a layer, published one by one: how they are stored, and what of each
// a rank loads.

#include <cstdint>
#include <vector>

#include "model/weights.h"

namespace quire {

class ExpertMatrices {
 public:
  // Matrices [rows, columns], all of one shape, of which so many neighbours are one expert's. Throws
  // Failure for files that contradict themselves.
  ExpertMatrices(Weights& weights, std::vector<Source> sources, int per_expert);

  // Rows or columns that stay together.
  std::int64_t unit() const;
  // Only these of each matrix.
  void take_rows(const Range& rows);
  void take_columns(const Range& columns);
  // All, as `shape`: [experts, rows, columns].
  Weight load(Weights& weights, const Shape& shape) const;

 private:
  std::vector<Source> sources_;
  WeightFormat format_ = WeightFormat::plain;
  GroupFormat group_ = {};          // of all, in groups
  std::vector<Fp8Scales> scales_;  // of each, in fp8
};

}  // namespace quire
