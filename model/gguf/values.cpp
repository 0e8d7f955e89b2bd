#include "model/gguf/values.h"

#include <algorithm>

#include "base/error.h"
#include "gguf/codes.h"

namespace quire {

namespace {

std::int64_t rows_of(const StoredTensor& tensor) {
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) rows *= tensor.shape[i];
  return rows;
}

// Where a published row, or element of a bias, is stored among n: in pairs (i, i + half of the
// head).
std::int64_t stored_at(std::int64_t at, std::int64_t n, int heads) {
  const std::int64_t dim = n / heads, head = at / dim, within = at % dim;
  return head * dim + within % (dim / 2) * 2 + within / (dim / 2);
}

}  // namespace

bool is_as_published(const GgufTensor& tensor) {
  return gguf::code_format(tensor.type) == nullptr && tensor.paired_heads == 0 &&
         tensor.added == 0.f;
}

std::optional<GroupFormat> group_format_of(const GgufTensor& tensor) {
  const gguf::CodeFormat* codes = gguf::code_format(tensor.type);
  // Other tables and the scales of MXFP4 have no place in a tile.
  const bool tabled = codes != nullptr && codes->table != nullptr;
  if (codes == nullptr || tensor.added != 0.f || tensor.type == gguf::BlockType::mxfp4) return {};
  return GroupFormat{.bits = static_cast<std::uint8_t>(codes->bits == 5 ? 6 : codes->bits),
                     .group = static_cast<std::uint8_t>(codes->group),
                     .zero = static_cast<std::uint8_t>(tabled ? kNonlinearZero : codes->zero),
                     .has_min = codes->has_min,
                     .nonlinear = tabled};
}

GgufValues::GgufValues(const StoredTensor& tensor, const std::byte* data)
    : RowReader(rows_of(tensor), tensor.shape.back()),
      tensor_(*tensor.gguf),
      data_(data),
      row_bytes_(static_cast<std::int64_t>(tensor.bytes) / rows_) {
  const std::int64_t length = tensor.shape.size() > 1 ? rows_ : columns_;
  if (tensor_.paired_heads > 0 && length % (2 * tensor_.paired_heads) != 0) {
    throw Failure(ErrorCode::invalid_argument,
                  "a GGUF tensor of " + std::to_string(length) + " rows cannot be " +
                      std::to_string(tensor_.paired_heads) + " heads of rotated pairs");
  }
}

const std::byte* GgufValues::row_data(std::int64_t row) const {
  const bool paired = tensor_.paired_heads > 0 && rows_ > 1;
  return data_ + (paired ? stored_at(row, rows_, tensor_.paired_heads) : row) * row_bytes_;
}

void GgufValues::row(std::int64_t row, float* out) const {
  gguf::dequantize(tensor_.type, row_data(row), columns_, out);
  if (tensor_.added == 0.f) return;
  for (std::int64_t i = 0; i < columns_; ++i) out[i] -= tensor_.added;
}

void GgufValues::row(std::int64_t row, CodeRow& out) const {
  const gguf::BlockTypeInfo& info = gguf::info_of(tensor_.type);
  const int group = gguf::code_format(tensor_.type)->group;
  const std::byte* block = row_data(row);
  gguf::BlockCodes codes;
  for (std::int64_t at = 0; at < columns_; at += info.elements, block += info.bytes) {
    gguf::unpack_block(tensor_.type, block, codes);
    std::copy_n(codes.codes.begin(), info.elements, out.codes.begin() + at);
    std::copy_n(codes.scales.begin(), info.elements / group, out.scales.begin() + at / group);
    std::copy_n(codes.mins.begin(), info.elements / group, out.mins.begin() + at / group);
  }
}

std::string GgufValues::type() const { return std::string(gguf::info_of(tensor_.type).name); }

std::vector<float> GgufValues::all() const {
  std::vector<float> values(static_cast<std::size_t>(rows_ * columns_));
  for (std::int64_t r = 0; r < rows_; ++r) row(r, values.data() + r * columns_);
  if (tensor_.paired_heads == 0 || rows_ > 1) return values;
  std::vector<float> published(values.size());
  for (std::int64_t i = 0; i < columns_; ++i) {
    published[static_cast<std::size_t>(i)] =
        values[static_cast<std::size_t>(stored_at(i, columns_, tensor_.paired_heads))];
  }
  return published;
}

}  // namespace quire
