#include "model/rounded_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/dispatch.h"
#include "base/half.h"
#include "gguf/codes.h"

namespace quire {

namespace {

constexpr int kGroup = 32;

// As the tile will have it.
float as_half(float value) { return half_to_float(float_to_half(value)); }

void round_8(const float* x, std::uint8_t* codes, float& scale) {
  float largest = 0;
  for (int i = 0; i < kGroup; ++i) largest = std::max(largest, std::abs(x[i]));
  scale = as_half(largest / 127);
  const float inverse = scale > 0 ? 1 / scale : 0;
  for (int i = 0; i < kGroup; ++i) {
    const float code = std::clamp(std::nearbyint(x[i] * inverse), -127.f, 127.f);
    codes[i] = static_cast<std::uint8_t>(static_cast<int>(code) + 128);
  }
}

void round_4(const float* x, std::uint8_t* codes, float& scale, float& min) {
  const auto [low, high] = std::minmax_element(x, x + kGroup);
  min = as_half(-*low);
  scale = as_half((*high + min) / 15);
  const float inverse = scale > 0 ? 1 / scale : 0;
  for (int i = 0; i < kGroup; ++i) {
    const float code = std::clamp(std::nearbyint((x[i] + min) * inverse), 0.f, 15.f);
    codes[i] = static_cast<std::uint8_t>(code);
  }
}

}  // namespace

GroupFormat rounded_format(int bits) {
  if (bits == 8) return {.bits = 8, .zero = 128};
  return {.bits = 4, .has_min = true};
}

bool is_mostly_packed(const Checkpoint& checkpoint) {
  std::int64_t packed = 0, all = 0;
  for (const auto& [name, entry] : checkpoint.tensors()) {
    const StoredTensor& tensor = *entry.tensor;
    if (tensor.shape.size() < 2) continue;
    std::int64_t elements = 1;
    for (const std::int64_t extent : tensor.shape) elements *= extent;
    all += elements;
    if (tensor.gguf && gguf::code_format(tensor.gguf->type) != nullptr) packed += elements;
  }
  return 2 * packed > all;
}

RoundedRows::RoundedRows(const StoredTensor& tensor, const std::byte* data,
                         std::unique_ptr<RowReader> values, int bits)
    : RowReader(tensor.shape[0], tensor.shape[1]),
      stored_(tensor.dtype),
      data_(data),
      values_(std::move(values)),
      bits_(bits) {}

void RoundedRows::row(std::int64_t row, float* out) const {
  if (values_ != nullptr) return values_->row(row, out);
  dispatch_float(stored_, [&]<class T>(Type<T>) {
    const std::byte* const from = data_ + row * columns_ * static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t i = 0; i < columns_; ++i) {
      T value;
      std::memcpy(&value, from + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
      out[i] = static_cast<float>(value);
    }
  });
}

void RoundedRows::row(std::int64_t row, CodeRow& out) const {
  std::vector<float> values(static_cast<std::size_t>(columns_));
  this->row(row, values.data());
  for (std::size_t g = 0; g < out.scales.size(); ++g) {
    const float* const x = values.data() + g * kGroup;
    if (!std::all_of(x, x + kGroup, [](float value) { return std::isfinite(value); })) {
      out.scales[g] = std::numeric_limits<float>::quiet_NaN();  // pack_row() refuses it
      continue;
    }
    std::uint8_t* const codes = out.codes.data() + g * kGroup;
    if (bits_ == 8) {
      round_8(x, codes, out.scales[g]);
    } else {
      round_4(x, codes, out.scales[g], out.mins[g]);
    }
  }
}

std::string RoundedRows::type() const {
  return std::string(name_of(stored_)) + " rounded to int" + std::to_string(bits_);
}

}  // namespace quire
