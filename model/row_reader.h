#pragma once
// A published matrix that is packed in some way, row by row.

#include <cstdint>
#include <string>
#include <vector>

#include "backend/group_pack.h"

namespace quire {

class RowReader {
 public:
  RowReader(std::int64_t rows, std::int64_t columns) : rows_(rows), columns_(columns) {}
  virtual ~RowReader() = default;

  virtual void row(std::int64_t row, float* out) const = 0;
  // As codes, where the matrix has a GroupFormat.
  virtual void row(std::int64_t row, CodeRow& out) const = 0;
  virtual std::vector<float> all() const {
    std::vector<float> values(static_cast<std::size_t>(rows_ * columns_));
    for (std::int64_t r = 0; r < rows_; ++r) row(r, values.data() + r * columns_);
    return values;
  }
  virtual std::string type() const = 0;  // "Q4_K"

 protected:
  std::int64_t rows_, columns_;  // a vector is one row
};

}  // namespace quire
