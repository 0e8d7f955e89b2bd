#include "model/fp8_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "backend/dispatch.h"
#include "backend/fp8.h"

namespace quire {

namespace {

constexpr float kMadeUpScale = 0x1p-5f;
constexpr std::string_view kWeight = ".weight";

std::int64_t blocks_of(std::int64_t n) { return (n + kFp8Block - 1) / kFp8Block; }

std::string module_of(std::string_view name) {
  if (name.ends_with(kWeight)) name.remove_suffix(kWeight.size());
  return std::string(name);
}

std::string text_of(const Checkpoint::Entry& entry, const std::string& name) {
  return entry.file->path().string() + ": tensor \"" + name + "\" ";
}

}  // namespace

std::optional<Fp8Scales> Fp8Scales::of_rows(const std::vector<std::int64_t>& pick) const {
  const bool blocks = format == WeightFormat::fp8_blocks;
  const std::size_t step = blocks ? kFp8Block : 1;
  Fp8Scales picked{.format = format, .columns = columns, .values = {}};
  for (std::size_t i = 0; i < pick.size(); ++i) {
    const std::int64_t from = pick[i] / static_cast<std::int64_t>(step);
    if (i % step != 0) {
      if (from != pick[i - 1] / static_cast<std::int64_t>(step)) return {};
      continue;
    }
    const auto row = values.begin() + from * columns;
    picked.values.insert(picked.values.end(), row, row + columns);
  }
  return picked;
}

std::optional<Fp8Scales> Fp8Scales::of_columns(const Range& range) const {
  if (format != WeightFormat::fp8_blocks) return *this;
  const std::int64_t first = range.begin / kFp8Block, last = (range.end - 1) / kFp8Block;
  if (range.begin % kFp8Block != 0 && first != last) return {};
  Fp8Scales picked{.format = format, .columns = last - first + 1, .values = {}};
  for (auto row = values.begin(); row != values.end(); row += columns)
    picked.values.insert(picked.values.end(), row + first, row + last + 1);
  return picked;
}

bool Fp8Weights::has(const std::string& name) const {
  const std::string module = module_of(name);
  if (checkpoint_ == nullptr) return config_ && !config_->ignores(module);
  const Checkpoint::Entry* entry = checkpoint_->find(name);
  if (entry == nullptr) return false;
  const auto refuse = [&](const std::string& reason) {
    throw Failure(ErrorCode::invalid_argument, text_of(*entry, name) + reason);
  };
  if (entry->tensor->dtype != DType::fp8_e4m3) {
    if (config_ && checkpoint_->find(name + config_->scale_suffix) != nullptr) {
      refuse("has scales beside it and is stored as " + std::string(name_of(entry->tensor->dtype)));
    }
    return false;
  }
  if (!config_) {
    refuse("is stored as fp8_e4m3, and no quantization_config says how it is scaled");
  }
  if (config_->ignores(module)) {
    refuse("is stored as fp8_e4m3, and quantization_config says that it is not quantized");
  }
  return true;
}

Fp8Scales Fp8Weights::scales(const std::string& name, std::int64_t rows,
                             std::int64_t columns) const {
  const std::string scale = name + config_->scale_suffix;
  if (config_->scope == Fp8Scope::block) {
    const std::int64_t across = blocks_of(columns), down = blocks_of(rows);
    return {WeightFormat::fp8_blocks, across, read(scale, name, {{down, across}})};
  }
  const bool whole = config_->scope == Fp8Scope::tensor;
  std::vector<float> values =
      read(scale, name,
           whole ? std::vector<std::vector<std::int64_t>>{{1}, {}, {1, 1}}
                 : std::vector<std::vector<std::int64_t>>{{rows, 1}, {rows}});
  if (whole) values.resize(static_cast<std::size_t>(rows), values.front());
  return {WeightFormat::fp8_rows, 1, std::move(values)};
}

std::optional<float> Fp8Weights::input_scale(const std::string& name) const {
  if (!config_ || !config_->static_input) return {};
  return read(module_of(name) + ".input_scale", name, {{1}, {}, {1, 1}}).front();
}

// Of one of these shapes, the first is the one to name.
std::vector<float> Fp8Weights::read(const std::string& scale, const std::string& matrix,
                                    const std::vector<std::vector<std::int64_t>>& shapes) const {
  std::int64_t count = 1;
  for (const std::int64_t n : shapes.front()) count *= n;
  std::vector<float> values(static_cast<std::size_t>(count), kMadeUpScale);
  if (checkpoint_ == nullptr) return values;
  const Checkpoint::Entry* entry = checkpoint_->find(scale);
  if (entry == nullptr) {
    throw Failure(ErrorCode::invalid_argument, checkpoint_->directory().string() + ": tensor \"" +
                                                   scale + "\" is missing, the scales of \"" +
                                                   matrix + "\", expected with shape " +
                                                   shape_text(shapes.front()));
  }
  const auto refuse = [&](const std::string& reason) {
    throw Failure(ErrorCode::invalid_argument, text_of(*entry, scale) + reason);
  };
  if (std::find(shapes.begin(), shapes.end(), entry->tensor->shape) == shapes.end()) {
    refuse("has shape " + shape_text(entry->tensor->shape) + ", expected " +
           shape_text(shapes.front()));
  }
  const DType stored = entry->tensor->dtype;
  if (stored != DType::f32 && stored != DType::bf16 && stored != DType::f16) {
    refuse("is stored as " + std::string(name_of(stored)) +
           ", scales are float32, bfloat16 or "
           "float16");
  }
  dispatch_float(stored, [&]<class T>(Type<T>) {
    std::vector<T> raw(values.size());
    std::memcpy(raw.data(), entry->file->data(*entry->tensor), entry->tensor->bytes);
    std::transform(raw.begin(), raw.end(), values.begin(),
                   [](T value) { return static_cast<float>(value); });
  });
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]) && values[i] > 0) continue;
    refuse("holds " + std::to_string(values[i]) + " at " + std::to_string(i) +
           ", scales are positive numbers");
  }
  return values;
}

std::vector<float> Fp8Weights::dequantized(const std::string& name, std::int64_t rows,
                                           std::int64_t columns) const {
  const Fp8Scales own = scales(name, rows, columns);
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  const Checkpoint::Entry* entry = checkpoint_->find(name);
  const auto* code = reinterpret_cast<const fp8_e4m3*>(entry->file->data(*entry->tensor));
  const bool blocks = own.format == WeightFormat::fp8_blocks;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* scale = own.values.data() + (blocks ? r / kFp8Block : r) * own.columns;
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto at = static_cast<std::size_t>(r * columns + c);
      values[at] = static_cast<float>(code[at]) * scale[blocks ? c / kFp8Block : 0];
    }
  }
  return values;
}

}  // namespace quire
