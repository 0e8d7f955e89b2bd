// Matrices that stay packed, or are rounded while they are loaded.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/dispatch.h"
#include "backend/fragment_pack.h"
#include "base/error.h"
#include "gguf/codes.h"
#include "model/delivery.h"
#include "model/gguf/values.h"
#include "model/loader_threads.h"
#include "model/rounded_rows.h"
#include "model/weights.h"

namespace quire {

namespace {

// The end of a sentence about the row.
std::string why_not_packed(const RowReader& values, std::int64_t row, std::int64_t columns,
                           int rounded_bits) {
  std::vector<float> plain(static_cast<std::size_t>(columns));
  values.row(row, plain.data());
  for (std::size_t column = 0; column < plain.size(); ++column) {
    if (std::isfinite(plain[column])) continue;
    return "is " + std::to_string(plain[column]) + " in column " + std::to_string(column) +
           "; the file is damaged, or was made wrongly";
  }
  return std::string("has a scale beyond float16's range; ") +
         (rounded_bits > 0 ? "leave LoadOptions::quantization out"
                           : "use LoadOptions::dtype float32");
}

bool is_table(const std::string& name) {
  return name.find("embed_tokens") != std::string::npos || name.find("lm_head") != std::string::npos;
}

}  // namespace

std::optional<GroupFormat> Weights::groups_of(const std::string& name, const Shape& shape) const {
  if (dtype_ == DType::f32) return {};
  const auto format =
      checkpoint_ != nullptr ? published_groups(name) : expected_groups(name, shape);
  const bool fits = device_.is_host_memory() || !format || fits_fragments(*format);
  return fits ? format : std::nullopt;
}

std::optional<GroupFormat> Weights::published_groups(const std::string& name) const {
  const int widest = device_.is_host_memory() ? kGroupTileColumns : kFragmentColumns;
  if (packed_.has(name)) return packed_.group_format(name, widest, shard_.size);
  const Checkpoint::Entry* entry = checkpoint_->find(name);
  if (entry == nullptr || !entry->tensor->usable || entry->tensor->shape.size() != 2) return {};
  if (const int bits = rounded_bits(name); bits > 0) return rounded_format(bits);
  if (!entry->tensor->gguf) return {};
  return group_format_of(*entry->tensor->gguf);
}

// Dummy weights are plain.
std::optional<GroupFormat> Weights::expected_groups(const std::string& name,
                                                    const Shape& shape) const {
  if (!measure_only_ || dummy_ || shape.size() != 2) return {};
  if (round_bits_ > 0) {
    if (shape[1] % kGroupTileColumns != 0) return {};
    return rounded_format(is_table(name) ? 8 : round_bits_);
  }
  const int widest = device_.is_host_memory() ? kGroupTileColumns : kFragmentColumns;
  return packed_.expected_format(name, shape[0], shape[1], widest, shard_.size);
}

int Weights::rounded_bits(const std::string& name) const {
  if (round_bits_ == 0) return 0;
  const StoredTensor& tensor = *checkpoint_->find(name)->tensor;
  const bool coded = tensor.gguf && gguf::code_format(tensor.gguf->type) != nullptr;
  if (coded || !is_float(tensor.dtype) || tensor.shape[1] % kGroupTileColumns != 0) return 0;
  return is_table(name) ? 8 : round_bits_;
}

std::unique_ptr<RowReader> Weights::group_rows(const Source& source) const {
  auto values = packed_rows(source);
  if (packed_.has(source.name)) return values;
  const Checkpoint::Entry& entry = find(source, DType::f32);
  const int bits = rounded_bits(source.name);
  if (bits == 0) return values;
  return std::make_unique<RoundedRows>(*entry.tensor, entry.file->data(*entry.tensor),
                                       std::move(values), bits);
}

Weight Weights::load_groups(const std::vector<Source>& sources, const Shape& shape,
                            const GroupFormat& format) {
  const std::int64_t columns = shape.back();
  for (const Source& source : sources) {
    check_extents(source);
    const std::string type = checkpoint_ != nullptr ? group_rows(source)->type()
                                                    : "int" + std::to_string(format.bits);
    packed_bytes_[type] +=
        static_cast<std::size_t>(delivered(source) / columns * packed_row_bytes(format, columns));
  }
  Shape packed = shape;
  packed.back() = packed_row_bytes(format, columns);
  std::int64_t& rows = packed[packed.size() - 2];
  rows = (rows + kGroupTileRows - 1) / kGroupTileRows * kGroupTileRows;
  const TensorView data = make(packed, DType::u8, [&](std::byte* out) {
    // Rows of the last tile that nobody writes, and in fragments columns of any.
    const auto all = static_cast<std::size_t>(product(packed));
    const auto tail = packed_format() == WeightFormat::fragments
                          ? all
                          : static_cast<std::size_t>(kGroupTileRows * packed.back());
    std::memset(out + all - tail, 0, tail);
    std::int64_t row = 0;
    for (const Source& source : sources) row = pack(source, format, row, out);
  });
  return {.data = data, .scales = {}, .format = packed_format(), .group = format};
}

std::int64_t Weights::packed_row_bytes(const GroupFormat& format, std::int64_t columns) const {
  return packed_format() == WeightFormat::fragments ? fragment_row_bytes(format, columns)
                                                    : group_row_bytes(format, columns);
}

std::int64_t Weights::pack(const Source& source, const GroupFormat& format, std::int64_t row,
                           std::byte* tiles) {
  const auto values = group_rows(source);
  const auto count =
      source.pick.empty() ? source.shape[0] : static_cast<std::int64_t>(source.pick.size());
  const Range taken = columns_of(source);
  const auto put = packed_format() == WeightFormat::fragments ? pack_fragment_row : pack_row;
  for_rows_in_parallel(count, kGroupTileRows, [&](std::int64_t begin, std::int64_t end) {
    CodeRow codes(source.shape[1], format);
    CodeRow own(taken.size(), format);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t from = source.pick.empty() ? i : source.pick[static_cast<std::size_t>(i)];
      values->row(from, codes);
      if (put(format, columns_of(codes, taken, own), row + i, tiles)) continue;
      throw Failure(ErrorCode::unsupported,
                    checkpoint_->directory().string() + ": tensor \"" + source.name + "\" row " +
                        std::to_string(from) + " " +
                        why_not_packed(*values, from, source.shape[1], rounded_bits(source.name)));
    }
  });
  forget(source);
  arrived(static_cast<std::size_t>(count * packed_row_bytes(format, taken.size())));
  return row + count;
}

}  // namespace quire
