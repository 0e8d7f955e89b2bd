#pragma once
// A GGUF tensor's numbers as they were published.

#include <cstdint>
#include <optional>
#include <vector>

#include "model/row_reader.h"
#include "model/safetensors.h"

namespace quire {

// Whether the stored bytes are the published ones.
bool is_as_published(const GgufTensor& tensor);

// How the tensor's blocks stay packed in a product; none where they cannot.
std::optional<GroupFormat> group_format_of(const GgufTensor& tensor);

class GgufValues final : public RowReader {
 public:
  // `data` is the tensor's; both outlive this.
  GgufValues(const StoredTensor& tensor, const std::byte* data);

  // Published row `row` of a matrix, as stored.
  const std::byte* row_data(std::int64_t row) const;
  void row(std::int64_t row, float* out) const override;
  // The same row as codes; where group_format_of() says so.
  void row(std::int64_t row, CodeRow& out) const override;
  std::vector<float> all() const override;
  std::string type() const override;

 private:
  const GgufTensor& tensor_;
  const std::byte* data_;
  std::int64_t row_bytes_;
};

}  // namespace quire
