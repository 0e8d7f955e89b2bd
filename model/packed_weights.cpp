#include "model/packed_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/dispatch.h"

namespace quire {

namespace {

using Shape = std::vector<std::int64_t>;

std::string stem_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

const char* codes_suffix(PackedLayout layout) {
  switch (layout) {
    case PackedLayout::gptq:
    case PackedLayout::awq:
      return ".qweight";
    case PackedLayout::compressed:
      return ".weight_packed";
    case PackedLayout::int8:
      return ".weight";
  }
  return "";
}

class PackedMatrix final : public RowReader {
 public:
  PackedMatrix(const Checkpoint& checkpoint, const PackedConfig& config, const std::string& name,
               std::int64_t rows, std::int64_t columns)
      : RowReader(rows, columns),
        checkpoint_(checkpoint),
        config_(config),
        stem_(stem_of(name)),
        per_word_(32 / config.bits),
        group_(config.group_size > 0 ? config.group_size : columns) {
    if (columns % group_ != 0 || columns % per_word_ != 0 || rows % per_word_ != 0) {
      fail(codes_suffix(config.layout), "of " + shape_text({rows, columns}) +
                                            " is not made of whole groups of " +
                                            std::to_string(group_));
    }
    groups_ = columns / group_;
    find_codes();
    find_scales();
    if (!config.symmetric || config.layout == PackedLayout::gptq) find_zeros();
    find_order();
  }

  void row(std::int64_t row, float* out) const override {
    for (std::int64_t k = 0; k < columns_; ++k) {
      const std::int64_t g = order_.empty() ? k / group_ : order_[static_cast<std::size_t>(k)];
      out[k] = scale(row, g) * static_cast<float>(code(row, k) - zero(row, g));
    }
  }

  void row(std::int64_t row, CodeRow& out) const override {
    codes_of(row, out.codes.data());
    const auto step = static_cast<std::int64_t>(out.codes.size() / out.scales.size());
    for (std::int64_t k = 0; k < columns_; k += step) {
      const auto at = static_cast<std::size_t>(k / step);
      out.scales[at] = scale(row, k / group_);
      out.mins[at] = out.scales[at] * static_cast<float>(zero(row, k / group_));
    }
  }

  std::string type() const override { return "int" + std::to_string(config_.bits); }

 private:
  [[noreturn]] void fail(const std::string& suffix, const std::string& problem) const {
    throw Failure(ErrorCode::invalid_argument, checkpoint_.directory().string() + ": tensor \"" +
                                                   stem_ + suffix + "\" " + problem);
  }

  const std::byte* find(const std::string& suffix, const Shape& shape, DType dtype) const {
    const Checkpoint::Entry* entry = checkpoint_.find(stem_ + suffix);
    if (entry == nullptr) fail(suffix, "is missing, expected with shape " + shape_text(shape));
    if (entry->tensor->shape != shape) {
      fail(suffix, "has shape " + shape_text(entry->tensor->shape) + ", expected " +
                       shape_text(shape));
    }
    if (entry->tensor->dtype != dtype) {
      fail(suffix, "is stored as " + std::string(name_of(entry->tensor->dtype)) + ", expected " +
                       std::string(name_of(dtype)));
    }
    return entry->file->data(*entry->tensor);
  }

  void find_codes() {
    const char* const suffix = codes_suffix(config_.layout);
    switch (config_.layout) {
      case PackedLayout::gptq:
        codes_ = find(suffix, {columns_ / per_word_, rows_}, DType::i32);
        return;
      case PackedLayout::awq:
        codes_ = find(suffix, {columns_, rows_ / per_word_}, DType::i32);
        return;
      case PackedLayout::compressed:
        codes_ = find(suffix, {rows_, columns_ / per_word_}, DType::i32);
        return;
      case PackedLayout::int8:
        codes_ = find(suffix, {rows_, columns_}, DType::i8);
        return;
    }
  }

  // [groups, rows] of GPTQ and AWQ, [rows, groups] of compressed-tensors; kept as the latter.
  void find_scales() {
    const bool across = by_rows();
    const std::string suffix = across ? ".weight_scale" : ".scales";
    const Shape shape = across ? Shape{rows_, groups_} : Shape{groups_, rows_};
    const Checkpoint::Entry* entry = checkpoint_.find(stem_ + suffix);
    const DType stored = entry != nullptr ? entry->tensor->dtype : DType::f16;
    if (stored != DType::f32 && stored != DType::bf16 && stored != DType::f16) {
      fail(suffix, "is stored as " + std::string(name_of(stored)) +
                       ", scales are float32, bfloat16 or float16");
    }
    const std::byte* data = find(suffix, shape, stored);
    scales_.resize(static_cast<std::size_t>(rows_ * groups_));
    dispatch_float(stored, [&]<class T>(Type<T>) {
      for (std::int64_t i = 0; i < rows_ * groups_; ++i) {
        T value;
        std::memcpy(&value, data + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
        const std::int64_t to = across ? i : i % rows_ * groups_ + i / rows_;
        scales_[static_cast<std::size_t>(to)] = static_cast<float>(value);
      }
    });
    for (std::size_t i = 0; i < scales_.size(); ++i) {
      if (std::isfinite(scales_[i]) && scales_[i] > 0) continue;
      fail(suffix, "holds " + std::to_string(scales_[i]) + " for row " +
                       std::to_string(i / static_cast<std::size_t>(groups_)) +
                       ", scales are positive numbers");
    }
  }

  void find_zeros() {
    zeros_.resize(scales_.size());
    const bool across = by_rows();
    const Shape shape = across ? Shape{rows_ / per_word_, groups_} : Shape{groups_, rows_ / per_word_};
    const std::byte* data = find(across ? ".weight_zero_point" : ".qzeros", shape, DType::i32);
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t g = 0; g < groups_; ++g) {
        const std::int64_t at =
            across ? r / per_word_ * groups_ + g : g * (rows_ / per_word_) + r / per_word_;
        int zero = field(data, at, config_.layout == PackedLayout::awq ? awq_place(r % per_word_)
                                                                     : r % per_word_);
        if (config_.zeros_minus_one) zero = (zero + 1) & mask();
        if (config_.symmetric && zero != middle()) {
          fail(".qzeros", "holds " + std::to_string(zero) + " for row " + std::to_string(r) +
                              ", a symmetric matrix has " + std::to_string(middle()));
        }
        zeros_[static_cast<std::size_t>(r * groups_ + g)] = static_cast<std::uint8_t>(zero);
      }
    }
  }

  // The group of each column, where columns were quantized in another order than they stand in.
  void find_order() {
    const std::string suffix = by_rows() ? ".weight_g_idx" : ".g_idx";
    if (!config_.act_order) return check_no_order();
    const std::byte* data = find(suffix, {columns_}, DType::i32);
    order_.resize(static_cast<std::size_t>(columns_));
    std::memcpy(order_.data(), data, order_.size() * sizeof(order_[0]));
    for (std::size_t k = 0; k < order_.size(); ++k) {
      if (order_[k] >= 0 && order_[k] < groups_) continue;
      fail(suffix, "holds " + std::to_string(order_[k]) + " at " + std::to_string(k) + " of " +
                       std::to_string(groups_) + " groups");
    }
  }

  // GPTQ writes the order even where there is none; another one would be left out of account.
  void check_no_order() const {
    if (config_.layout != PackedLayout::gptq || checkpoint_.find(stem_ + ".g_idx") == nullptr) return;
    const std::byte* data = find(".g_idx", {columns_}, DType::i32);
    for (std::int64_t k = 0; k < columns_; ++k) {
      std::int32_t group;
      std::memcpy(&group, data + k * 4, sizeof group);
      if (group == k / group_) continue;
      fail(".g_idx", "puts column " + std::to_string(k) + " into group " + std::to_string(group) +
                         ", but the configuration does not say \"desc_act\": true, without which "
                         "columns lie in their order");
    }
  }

  bool by_rows() const {
    return config_.layout == PackedLayout::compressed || config_.layout == PackedLayout::int8;
  }
  int mask() const { return (1 << config_.bits) - 1; }
  int middle() const { return 1 << (config_.bits - 1); }

  // Eight columns of a word lie in this order: 0, 2, 4, 6, 1, 3, 5, 7.
  static std::int64_t awq_place(std::int64_t column) {
    return column % 2 * 4 + column / 2;
  }

  int field(const std::byte* words, std::int64_t word, std::int64_t place) const {
    std::uint32_t value;
    std::memcpy(&value, words + word * 4, sizeof value);
    return static_cast<int>(value >> place * config_.bits) & mask();
  }

  void codes_of(std::int64_t r, std::uint8_t* out) const {
    if (config_.layout == PackedLayout::awq || config_.layout == PackedLayout::int8) {
      for (std::int64_t k = 0; k < columns_; ++k) out[k] = static_cast<std::uint8_t>(code(r, k));
      return;
    }
    const bool gptq = config_.layout == PackedLayout::gptq;
    const std::int64_t words = columns_ / per_word_, step = gptq ? rows_ : 1;
    const std::byte* at = codes_ + (gptq ? r : r * words) * 4;
    for (std::int64_t w = 0; w < words; ++w, at += 4 * step) {
      std::uint32_t value;
      std::memcpy(&value, at, sizeof value);
      for (std::int64_t i = 0; i < per_word_; ++i, value >>= config_.bits) {
        *out++ = static_cast<std::uint8_t>(value & static_cast<std::uint32_t>(mask()));
      }
    }
  }

  int code(std::int64_t r, std::int64_t k) const {
    switch (config_.layout) {
      case PackedLayout::gptq:
        return field(codes_, k / per_word_ * rows_ + r, k % per_word_);
      case PackedLayout::awq:
        return field(codes_, k * (rows_ / per_word_) + r / per_word_, awq_place(r % per_word_));
      case PackedLayout::compressed:
        return field(codes_, r * (columns_ / per_word_) + k / per_word_, k % per_word_);
      case PackedLayout::int8:
        return static_cast<std::uint8_t>(codes_[r * columns_ + k]) ^ 0x80;
    }
    return 0;
  }
  int zero(std::int64_t r, std::int64_t g) const {
    return zeros_.empty() ? middle() : zeros_[static_cast<std::size_t>(r * groups_ + g)];
  }
  float scale(std::int64_t r, std::int64_t g) const {
    return scales_[static_cast<std::size_t>(r * groups_ + g)];
  }

  const Checkpoint& checkpoint_;
  const PackedConfig& config_;
  std::string stem_;
  std::int64_t per_word_, group_, groups_ = 0;
  const std::byte* codes_ = nullptr;
  std::vector<float> scales_;         // [rows, groups]
  std::vector<std::uint8_t> zeros_;   // likewise; empty: the middle
  std::vector<std::int32_t> order_;   // of columns; empty: as they stand
};

}  // namespace

bool PackedWeights::has(const std::string& name) const {
  if (!config_ || checkpoint_ == nullptr || !name.ends_with(".weight")) return false;
  const Checkpoint::Entry* entry =
      checkpoint_->find(stem_of(name) + codes_suffix(config_->layout));
  return entry != nullptr &&
         (config_->layout != PackedLayout::int8 || entry->tensor->dtype == DType::i8);
}

std::optional<GroupFormat> PackedWeights::group_format(const std::string& name, int widest,
                                                       int ranks) const {
  if (!has(name)) return {};
  const Shape& shape =
      checkpoint_->find(stem_of(name) + codes_suffix(config_->layout))->tensor->shape;
  if (shape.size() != 2) return {};
  const std::int64_t per_word = 32 / config_->bits;
  return format_of(config_->layout == PackedLayout::gptq         ? shape[0] * per_word
                   : config_->layout == PackedLayout::awq        ? shape[0]
                   : config_->layout == PackedLayout::compressed ? shape[1] * per_word
                                                                 : shape[1],
                   widest, ranks);
}

// What the quantizers pack: linear layers, the head where they are told to, no embeddings.
std::optional<GroupFormat> PackedWeights::expected_format(const std::string& name,
                                                          std::int64_t rows, std::int64_t columns,
                                                          int widest, int ranks) const {
  if (!config_ || rows % (32 / config_->bits) != 0) return {};
  const std::string module = stem_of(name);
  if (module.ends_with("embed_tokens") || names_module(config_->ignored, module)) return {};
  if (module.ends_with("lm_head") && !config_->head) return {};
  return format_of(columns, widest, ranks);
}

std::optional<GroupFormat> PackedWeights::format_of(std::int64_t columns, int widest,
                                                    int ranks) const {
  if (config_->act_order || (config_->bits == 8 && !config_->symmetric)) return {};
  const std::int64_t group = config_->group_size > 0 ? config_->group_size : columns;
  const bool halves = group % 32 != 0;
  if (columns % 32 != 0 || group % 16 != 0 || (halves && config_->bits == 8)) return {};
  const bool divides = group % widest == 0 && columns % (std::int64_t{widest} * ranks) == 0;
  const int width = divides ? widest : halves ? 16 : 32;
  return GroupFormat{
      .bits = static_cast<std::uint8_t>(config_->bits),
      .group = static_cast<std::uint8_t>(width),
      .zero = static_cast<std::uint8_t>(config_->symmetric ? 1 << (config_->bits - 1) : 0),
      .has_min = !config_->symmetric};
}

std::unique_ptr<RowReader> PackedWeights::open(const std::string& name, std::int64_t rows,
                                               std::int64_t columns) const {
  return std::make_unique<PackedMatrix>(*checkpoint_, *config_, name, rows, columns);
}

}  // namespace quire
