// Expert weights in every published layout, to one matrix per expert.

#include <algorithm>

#include "model/layers/fp8_matrix.h"
#include "model/layers/moe.h"

namespace quire {

namespace {

std::vector<std::int64_t> every_second(std::int64_t count, std::int64_t first) {
  std::vector<std::int64_t> at;
  for (std::int64_t i = 0; i < count; ++i) at.push_back(2 * i + first);
  return at;
}

// Gates first, then ups, where they are stored in turn.
std::vector<std::int64_t> gates_then_ups(std::int64_t intermediate) {
  std::vector<std::int64_t> at = every_second(intermediate, 0);
  const std::vector<std::int64_t> ups = every_second(intermediate, 1);
  at.insert(at.end(), ups.begin(), ups.end());
  return at;
}

// All matrices [rows, columns] as they are published: plain, or in fp8 with the scales of each.
Weight load_matrices(Weights& weights, const std::vector<Source>& sources, const Shape& shape) {
  const auto groups = weights.groups_of(sources.front().name);
  const bool packed = groups && std::ranges::all_of(sources, [&](const Source& source) {
    return weights.groups_of(source.name) == groups && source.shape[0] % kGroupTileRows == 0;
  });
  if (packed) return weights.load_groups(sources, shape, *groups);
  std::vector<Fp8Scales> scales;
  for (const Source& source : sources) {
    auto own = fp8_scales(weights, source.name, source.shape);
    if (!own) break;
    // A block of scales must not reach from one matrix of an expert into the next.
    const bool whole = shape[1] == source.shape[0] || source.shape[0] % kFp8Block == 0;
    if (own->format == WeightFormat::fp8_blocks && !whole) {
      weights.note("experts are kept as " + std::string(name_of(weights.dtype())) +
                   ": their inner size is not made of fp8 blocks");
      break;
    }
    scales.push_back(std::move(*own));
  }
  if (scales.size() == sources.size()) return load_fp8(weights, sources, shape, scales);
  return {.data = weights.load(sources, shape, weights.dtype()), .scales = {}};
}

Experts one_by_one(Weights& weights, const std::string& name, const ModelConfig& config,
                   const ExpertNames& names) {
  const std::int64_t count = config.moe.num_experts, inner = config.moe.intermediate_size;
  const std::int64_t hidden =
      config.moe.latent_size > 0 ? config.moe.latent_size : config.hidden_size;
  std::vector<Source> gate_up, down;
  for (std::int64_t e = 0; e < count; ++e) {
    const std::string expert = name + ".experts." + std::to_string(e) + ".";
    if (!names.gate.empty()) {
      gate_up.push_back({.name = expert + names.gate + ".weight", .shape = {inner, hidden}});
    }
    gate_up.push_back({.name = expert + names.up + ".weight", .shape = {inner, hidden}});
    down.push_back({.name = expert + names.down + ".weight", .shape = {hidden, inner}});
  }
  Experts experts;
  experts.gated = !names.gate.empty();
  const std::int64_t rows = experts.gated ? 2 * inner : inner;
  experts.gate_up = load_matrices(weights, gate_up, {count, rows, hidden});
  experts.down = load_matrices(weights, down, {count, hidden, inner});
  return experts;
}

// Blocks of 32 e2m1 values with a power of two: [E, rows, columns / 32, 16] and [E, rows, columns /
// 32].
Weight load_mxfp4(Weights& weights, const std::string& name, std::int64_t experts,
                  std::int64_t rows, std::int64_t columns, std::vector<std::int64_t> pick) {
  constexpr std::int64_t kBlock = 32;
  const std::int64_t blocks = columns / kBlock;
  Source data{.name = name + "_blocks",
              .shape = {experts, rows, blocks, kBlock / 2},
              .batch = experts,
              .row_width = blocks * kBlock / 2,
              .pick = pick};
  Source scales{.name = name + "_scales",
                .shape = {experts, rows, blocks},
                .batch = experts,
                .pick = std::move(pick)};
  return {.data = weights.load({data}, {experts, rows, columns / 2}, DType::u8),
          .scales = weights.load({scales}, {experts, rows, blocks}, DType::u8),
          .format = WeightFormat::mxfp4};
}

}  // namespace

Experts load_experts(Weights& weights, const std::string& name, const ModelConfig& config,
                     const ExpertNames& names) {
  refuse_shard(weights.shard(), name + ", a mixture of experts,");
  if (!weights.has(name + ".experts.gate_up_proj")) return one_by_one(weights, name, config, names);
  const std::int64_t count = config.moe.num_experts, hidden = config.hidden_size;
  const std::int64_t inner = config.moe.intermediate_size;
  Experts experts;
  experts.gate_up.data = weights.load(name + ".experts.gate_up_proj", {count, 2 * inner, hidden});
  experts.down.data = weights.load(name + ".experts.down_proj", {count, hidden, inner});
  return experts;
}

Experts load_gpt_oss_experts(Weights& weights, const std::string& name, const ModelConfig& config) {
  refuse_shard(weights.shard(), name + ", a mixture of experts,");
  const std::int64_t count = config.moe.num_experts, hidden = config.hidden_size;
  const std::int64_t inner = config.moe.intermediate_size;
  const std::string gate_up = name + ".experts.gate_up_proj", down = name + ".experts.down_proj";
  const std::vector<std::int64_t> order = gates_then_ups(inner);
  Experts experts;
  if (config.quant.method == "mxfp4") {
    experts.gate_up = load_mxfp4(weights, gate_up, count, 2 * inner, hidden, order);
    experts.down = load_mxfp4(weights, down, count, hidden, inner, {});
  } else {
    experts.gate_up.data = weights.load({{.name = gate_up,
                                          .shape = {count, hidden, 2 * inner},
                                          .batch = count,
                                          .transposed = true,
                                          .pick = order}},
                                        {count, 2 * inner, hidden}, weights.dtype());
    experts.down.data = weights.load(
        {{.name = down, .shape = {count, inner, hidden}, .batch = count, .transposed = true}},
        {count, hidden, inner}, weights.dtype());
  }
  experts.gate_up_bias = weights.load({{.name = gate_up + "_bias",
                                        .shape = {count, 2 * inner},
                                        .batch = count,
                                        .transposed = true,
                                        .pick = order}},
                                      {count, 2 * inner}, weights.dtype());
  experts.down_bias = weights.load(down + "_bias", {count, hidden});
  return experts;
}

}  // namespace quire
