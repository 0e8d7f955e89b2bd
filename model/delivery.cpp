#include "model/delivery.h"

#include <algorithm>
#include <functional>
#include <string>

#include "base/error.h"

namespace quire {

std::int64_t product(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

Matrix matrix_of(const Source& source) {
  const std::int64_t cols = source.row_width > 0   ? source.row_width
                            : source.shape.empty() ? 1
                                                   : source.shape.back();
  return {product(source.shape) / (source.batch * cols), cols};
}

Range columns_of(const Source& source) {
  return source.columns.size() > 0 ? source.columns : Range{0, matrix_of(source).cols};
}

Range depth_of(const Source& source) {
  return source.depth.size() > 0 ? source.depth : Range{0, matrix_of(source).rows};
}

Range matrices_of(const Source& source) {
  return source.matrices.size() > 0 ? source.matrices : Range{0, source.batch};
}

bool as_published(const Source& source) {
  if (source.transposed || source.columns.size() > 0 || source.matrices.size() > 0) return false;
  const auto& pick = source.pick;
  const auto step = [](std::int64_t row, std::int64_t next) { return next != row + 1; };
  return pick.empty() ||
         (source.batch == 1 && std::adjacent_find(pick.begin(), pick.end(), step) == pick.end());
}

std::int64_t picked_row(const Source& source) {
  return source.pick.empty() ? 0 : source.pick.front();
}

std::int64_t delivered(const Source& source) {
  const auto [rows, cols] = matrix_of(source);
  const std::int64_t picked = source.pick.empty() ? (source.transposed ? cols : rows)
                                                  : static_cast<std::int64_t>(source.pick.size());
  const Range across = source.transposed ? depth_of(source) : columns_of(source);
  return matrices_of(source).size() * picked * across.size();
}

const CodeRow& columns_of(const CodeRow& row, const Range& taken, CodeRow& own) {
  if (own.codes.size() == row.codes.size()) return row;
  const auto group = static_cast<std::int64_t>(row.codes.size() / row.scales.size());
  std::copy_n(row.codes.begin() + taken.begin, taken.size(), own.codes.begin());
  std::copy_n(row.scales.begin() + taken.begin / group, own.scales.size(), own.scales.begin());
  std::copy_n(row.mins.begin() + taken.begin / group, own.mins.size(), own.mins.begin());
  return own;
}

void check_extents(const Source& source) {
  constexpr std::int64_t kMost = std::int64_t{1} << 48;  // elements
  std::int64_t elements = source.shape.empty() ? 0 : 1;
  for (const std::int64_t extent : source.shape)
    elements = extent < 1 || elements > kMost / extent ? 0 : elements * extent;
  if (elements == 0 || elements < source.batch * std::max<std::int64_t>(source.row_width, 1))
    throw Failure(ErrorCode::invalid_argument, "config.json: tensor \"" + source.name +
                                                   "\" cannot have shape " +
                                                   shape_text(source.shape));
}

void refuse_infinities(const Source& source, const std::byte* out) {
  const std::int64_t n = delivered(source);
  std::int64_t infinite = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, out + i * 2, 2);
    infinite += (bits & 0x7fff) == 0x7c00;
  }
  if (infinite > 0)
    throw Failure(Error{ErrorCode::unsupported,
                        "LoadOptions::dtype float16: " + std::to_string(infinite) + " of the " +
                            std::to_string(n) + " values of tensor \"" + source.name +
                            "\" are beyond its largest, 65504; use bfloat16 or float32",
                        "LoadOptions::dtype"});
}

}  // namespace quire
