// Expert weights in every published layout, to one matrix per expert.

#include <algorithm>

#include "model/layers/expert_matrices.h"
#include "model/layers/moe.h"

namespace quire {

namespace {

// Gates, then ups, of the rank's share of the inner size: gates begin at row 0, and neighbours are
// `step` apart.
std::vector<std::int64_t> rows_of_both(const Range& share, std::int64_t first_up,
                                       std::int64_t step) {
  std::vector<std::int64_t> rows;
  for (const std::int64_t start : {std::int64_t{0}, first_up}) {
    for (std::int64_t i = share.begin; i < share.end; ++i) rows.push_back(start + i * step);
  }
  return rows;
}

Range share_of_inner(const Weights& weights, const std::string& name, std::int64_t inner,
                     std::int64_t unit) {
  return share_of_units(weights.shard(), "the inner size of " + name + ".experts", inner, unit);
}

Experts of_share(const Weights& weights, const Range& share) {
  Experts experts;
  experts.inner = share.size();
  experts.adds_up = !weights.shard().whole();
  return experts;
}

Experts one_by_one(Weights& weights, const std::string& name, const ModelConfig& config,
                   const ExpertNames& names) {
  const std::int64_t count = config.moe.num_experts, inner = config.moe.intermediate_size;
  const std::int64_t hidden =
      config.moe.latent_size > 0 ? config.moe.latent_size : config.hidden_size;
  const bool gated = !names.gate.empty();
  std::vector<Source> up_sources, down_sources;
  for (std::int64_t e = 0; e < count; ++e) {
    const std::string expert = name + ".experts." + std::to_string(e) + ".";
    if (gated)
      up_sources.push_back({.name = expert + names.gate + ".weight", .shape = {inner, hidden}});
    up_sources.push_back({.name = expert + names.up + ".weight", .shape = {inner, hidden}});
    down_sources.push_back({.name = expert + names.down + ".weight", .shape = {hidden, inner}});
  }
  ExpertMatrices up(weights, std::move(up_sources), gated ? 2 : 1);
  ExpertMatrices down(weights, std::move(down_sources), 1);
  const Range share =
      share_of_inner(weights, name, inner, std::max(up.unit(), down.unit()));
  if (!weights.shard().whole()) {
    up.take_rows(share);
    down.take_columns(share);
  }
  Experts experts = of_share(weights, share);
  experts.gated = gated;
  experts.gate_up = up.load(weights, {count, (gated ? 2 : 1) * share.size(), hidden});
  experts.down = down.load(weights, {count, hidden, share.size()});
  return experts;
}

constexpr std::int64_t kMxfp4Block = 32;

// Blocks of 32 e2m1 values with a power of two: [E, rows, columns / 32, 16] and [E, rows, columns /
// 32]. Of them, the picked rows and these columns, whole blocks; empty: all.
Weight load_mxfp4(Weights& weights, const std::string& name, const Shape& shape,
                  const std::vector<std::int64_t>& pick, const Range& columns) {
  const std::int64_t experts = shape[0], blocks = shape[2] / kMxfp4Block;
  const std::int64_t rows = pick.empty() ? shape[1] : static_cast<std::int64_t>(pick.size());
  const Range some{columns.begin / kMxfp4Block, columns.end / kMxfp4Block};
  const std::int64_t across = some.size() > 0 ? some.size() : blocks;
  constexpr std::int64_t kBytes = kMxfp4Block / 2;
  const Source data{.name = name + "_blocks",
                    .shape = {experts, shape[1], blocks, kBytes},
                    .batch = experts,
                    .row_width = blocks * kBytes,
                    .pick = pick,
                    .columns = {some.begin * kBytes, some.end * kBytes}};
  const Source scales{.name = name + "_scales",
                      .shape = {experts, shape[1], blocks},
                      .batch = experts,
                      .pick = pick,
                      .columns = some};
  return {.data = weights.load({data}, {experts, rows, across * kBytes}, DType::u8),
          .scales = weights.load({scales}, {experts, rows, across}, DType::u8),
          .format = WeightFormat::mxfp4};
}

}  // namespace

Experts load_experts(Weights& weights, const std::string& name, const ModelConfig& config,
                     const ExpertNames& names) {
  const std::string all = name + ".experts.";
  if (!weights.has(all + "gate_up_proj")) return one_by_one(weights, name, config, names);
  return load_fused_experts(weights, all + "gate_up_proj", all + "down_proj", config);
}

Experts load_fused_experts(Weights& weights, const std::string& gate_up, const std::string& down,
                           const ModelConfig& config) {
  const std::int64_t count = config.moe.num_experts, hidden = config.hidden_size;
  const std::int64_t inner = config.moe.intermediate_size;
  Source up_rows{.name = gate_up, .shape = {count, 2 * inner, hidden}, .batch = count};
  Source down_columns{.name = down, .shape = {count, hidden, inner}, .batch = count};
  const Range share = share_of_inner(weights, gate_up, inner, 1);
  if (!weights.shard().whole()) {
    up_rows.pick = rows_of_both(share, inner, 1);
    down_columns.columns = share;
  }
  Experts experts = of_share(weights, share);
  experts.gate_up.data =
      weights.load({up_rows}, {count, 2 * share.size(), hidden}, weights.dtype());
  experts.down.data = weights.load({down_columns}, {count, hidden, share.size()}, weights.dtype());
  return experts;
}

Experts load_gpt_oss_experts(Weights& weights, const std::string& name, const ModelConfig& config) {
  const std::int64_t count = config.moe.num_experts, hidden = config.hidden_size;
  const std::int64_t inner = config.moe.intermediate_size;
  const std::string gate_up = name + ".experts.gate_up_proj", down = name + ".experts.down_proj";
  const bool packed = config.quant.method == "mxfp4";
  const Range share = share_of_inner(weights, name, inner, packed ? kMxfp4Block : 1);
  const Range own = weights.shard().whole() ? Range{} : share;
  const std::vector<std::int64_t> order = rows_of_both(share, 1, 2);
  Experts experts = of_share(weights, share);
  if (packed) {
    experts.gate_up = load_mxfp4(weights, gate_up, {count, 2 * inner, hidden}, order, {});
    experts.down = load_mxfp4(weights, down, {count, hidden, inner}, {}, own);
  } else {
    experts.gate_up.data = weights.load({{.name = gate_up,
                                          .shape = {count, hidden, 2 * inner},
                                          .batch = count,
                                          .transposed = true,
                                          .pick = order}},
                                        {count, 2 * share.size(), hidden}, weights.dtype());
    experts.down.data = weights.load({{.name = down,
                                       .shape = {count, inner, hidden},
                                       .batch = count,
                                       .transposed = true,
                                       .depth = own}},
                                     {count, hidden, share.size()}, weights.dtype());
  }
  experts.gate_up_bias = weights.load({{.name = gate_up + "_bias",
                                        .shape = {count, 2 * inner},
                                        .batch = count,
                                        .transposed = true,
                                        .pick = order}},
                                      {count, 2 * share.size()}, weights.dtype());
  if (adds_bias(weights.shard()))
    experts.down_bias = weights.load(down + "_bias", {count, hidden});
  return experts;
}

}  // namespace quire
