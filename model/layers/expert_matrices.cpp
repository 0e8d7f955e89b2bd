#include "model/layers/expert_matrices.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "model/layers/fp8_matrix.h"

namespace quire {

namespace {

// A format that all have, whose tiles are one matrix's.
std::optional<GroupFormat> groups_of_all(const Weights& weights, const std::vector<Source>& sources) {
  const auto groups = weights.groups_of(sources.front().name, sources.front().shape);
  const bool all = groups && std::ranges::all_of(sources, [&](const Source& source) {
    return weights.groups_of(source.name, source.shape) == groups &&
           source.shape[0] % kGroupTileRows == 0;
  });
  return all ? groups : std::nullopt;
}

// Of each; none where they are not all fp8 or cannot stay so.
std::vector<Fp8Scales> scales_of_all(Weights& weights, const std::vector<Source>& sources,
                                     int per_expert) {
  std::vector<Fp8Scales> scales;
  for (const Source& source : sources) {
    auto own = fp8_scales(weights, source.name, source.shape);
    if (!own) return {};
    // A block of scales must not reach from one matrix of an expert into the next.
    const bool apart = per_expert == 1 || source.shape[0] % kFp8Block == 0;
    if (own->format == WeightFormat::fp8_blocks && !apart) {
      weights.note("experts are kept as " + std::string(name_of(weights.dtype())) +
                   ": their inner size is not made of fp8 blocks");
      return {};
    }
    scales.push_back(std::move(*own));
  }
  return scales;
}

}  // namespace

ExpertMatrices::ExpertMatrices(Weights& weights, std::vector<Source> sources, int per_expert)
    : sources_(std::move(sources)) {
  if (const auto group = groups_of_all(weights, sources_)) {
    format_ = weights.packed_format();
    group_ = *group;
    return;
  }
  scales_ = scales_of_all(weights, sources_, per_expert);
  if (!scales_.empty()) format_ = scales_.front().format;
}

std::int64_t ExpertMatrices::unit() const {
  if (is_packed(format_)) return std::max<int>(kGroupTileColumns, group_.group);
  return format_ == WeightFormat::fp8_blocks ? kFp8Block : 1;
}

void ExpertMatrices::take_rows(const Range& rows) {
  for (Source& source : sources_) source.pick = rows_of(rows);
  for (Fp8Scales& scales : scales_) scales = *scales.of_rows(sources_.front().pick);
}

void ExpertMatrices::take_columns(const Range& columns) {
  for (Source& source : sources_) source.columns = columns;
  for (Fp8Scales& scales : scales_) scales = *scales.of_columns(columns);
}

Weight ExpertMatrices::load(Weights& weights, const Shape& shape) const {
  if (is_packed(format_)) return weights.load_groups(sources_, shape, group_);
  if (is_fp8(format_)) return load_fp8(weights, sources_, shape, scales_);
  return {.data = weights.load(sources_, shape, weights.dtype()), .scales = {}};
}

}  // namespace quire
