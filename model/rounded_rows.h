#pragma once
// Matrices of plain numbers, rounded to small integers while they are loaded: --quantization int8 and
// int4 of a checkpoint that is published in 16 bits.

#include <memory>

#include "model/checkpoint.h"
#include "model/row_reader.h"

namespace quire {

// Groups of 32 columns; 8 bits around zero, 4 with a minimum of each group. `bits` is 8 or 4.
GroupFormat rounded_format(int bits);

// Are most of the matrices in codes already, so that there is little to round?
bool is_mostly_packed(const Checkpoint& checkpoint);

class RoundedRows final : public RowReader {
 public:
  // Of a float tensor [rows, columns] whose elements begin at `data`, or, with `values`, what that
  // reads.
  RoundedRows(const StoredTensor& tensor, const std::byte* data, std::unique_ptr<RowReader> values,
              int bits);

  void row(std::int64_t row, float* out) const override;  // before they are rounded
  void row(std::int64_t row, CodeRow& out) const override;
  std::string type() const override;

 private:
  DType stored_;
  const std::byte* data_;
  std::unique_ptr<RowReader> values_;
  int bits_;
};

}  // namespace quire
