// The cases of mixtures of experts in cuda_ops_perf.

#include "tests/perf/cuda_bench.h"

namespace quire::perf {
namespace {

// As published: Qwen3-30B-A3B, DeepSeek-V3, gpt-oss-20b.
struct Experts {
  const char* name;
  WeightFormat format;
  std::int64_t count, top_k, inner, hidden;
};
constexpr Experts kModels[] = {{"bf16", WeightFormat::plain, 128, 8, 768, 2048},
                               {"fp8", WeightFormat::fp8_blocks, 256, 8, 2048, 7168},
                               {"MXFP4", WeightFormat::mxfp4, 32, 4, 2880, 2880}};

Weight weight_of(Bench& bench, const Experts& m, std::int64_t count, std::int64_t rows,
                 std::int64_t columns) {
  if (m.format == WeightFormat::plain)
    return {bench.random({count, rows, columns}, 0.02f), {}, m.format};
  if (m.format == WeightFormat::fp8_blocks)
    return {bench.codes(DType::fp8_e4m3, {count, rows, columns}),
            bench.filled(.02f, {count, rows / kFp8Block, columns / kFp8Block}), m.format};
  const auto groups = static_cast<std::size_t>(count * rows * columns / 32);
  return {bench.codes(DType::u8, {count, rows, columns / 2}),
          bench.upload(std::vector<std::uint8_t>(groups, 121), {count, rows, columns / 32}),
          m.format};
}

// Every expert has as many tokens as the others, give or take one.
MoeExpertsArgs args_of(Bench& bench, const Experts& m, std::int64_t tokens) {
  const bool fp8 = m.format == WeightFormat::fp8_blocks;
  const std::int64_t least = fp8 ? 128 : 64, count = bench.size(m.count, 8),
                     inner = bench.size(m.inner, least), hidden = bench.size(m.hidden, least);
  const MoeShape shape{.experts = static_cast<int>(count),
                       .top_k = static_cast<int>(m.top_k),
                       .hidden = static_cast<int>(hidden),
                       .intermediate = static_cast<int>(inner),
                       .gated = true,
                       .dtype = DType::bf16,
                       .fp8 = fp8};
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens * m.top_k));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(count));
  MoeExpertsArgs args;
  args.out = bench.zeros(DType::bf16, {tokens, hidden});
  args.x = bench.random({tokens, hidden});
  args.ids = bench.upload(ids, {tokens, m.top_k});
  args.weights = bench.filled(1.f / static_cast<float>(m.top_k), {tokens, m.top_k});
  args.gate_up = weight_of(bench, m, count, 2 * inner, hidden);
  args.down = weight_of(bench, m, count, hidden, inner);
  args.activation = m.format == WeightFormat::mxfp4 ? Activation::clamped_swiglu : Activation::silu;
  args.workspace =
      bench.zeros(DType::u8, {static_cast<std::int64_t>(bench.ops().traits().moe_workspace_bytes(
                                 static_cast<int>(tokens), shape))});
  return args;
}

double weight_bytes(const MoeExpertsArgs& args) {
  const auto bytes = [](const Weight& weight) {
    return static_cast<double>(weight.data.bytes() + weight.scales.bytes());
  };
  return bytes(args.gate_up) + bytes(args.down);
}

// All experts are in use, with a few tokens each.
void decode_experts(Bench& bench, const Experts& m, std::int64_t tokens) {
  const std::string name =
      std::string("experts ") + m.name + ", decode of " + std::to_string(tokens);
  if (!bench.begin(name)) return;
  const MoeExpertsArgs args = args_of(bench, m, bench.size(tokens, 3));
  bench.memory_bound(name, 0, weight_bytes(args),
                     [&] { bench.ops().moe_experts(args, bench.stream()); });
}

void prompt_experts(Bench& bench, const Experts& m, std::int64_t tokens) {
  const std::string name =
      std::string("experts ") + m.name + ", a prompt of " + std::to_string(tokens);
  if (!bench.begin(name)) return;
  const MoeExpertsArgs args = args_of(bench, m, bench.size(tokens, 300 / m.top_k));
  bench.compute_bound(name,
                      2. * 3 * static_cast<double>(args.ids.numel() * args.x.extent(1)) *
                          static_cast<double>(args.gate_up.data.extent(1) / 2),
                      [&] { bench.ops().moe_experts(args, bench.stream()); });
}

void route(Bench& bench, std::int64_t tokens) {
  const std::string name = "route to 8 of 128 experts, rows " + std::to_string(tokens);
  if (!bench.begin(name)) return;
  const std::int64_t rows = bench.size(tokens, 3);
  MoeRouteArgs args;
  args.ids = bench.zeros(DType::i32, {rows, 8});
  args.weights = bench.zeros(DType::f32, {rows, 8});
  args.logits = bench.random({rows, 128});
  args.renormalize = true;
  bench.memory_bound(name, 0, static_cast<double>(args.logits.bytes()),
                     [&] { bench.ops().moe_route(args, bench.stream()); }, {.times = 8});
}

}  // namespace

void expert_cases(Bench& bench) {
  for (const std::int64_t tokens : {32, 8192}) route(bench, tokens);
  for (const Experts& m : kModels) {
    // As many as bring every expert two tokens.
    decode_experts(bench, m, 2 * m.count / m.top_k);
    prompt_experts(bench, m, 8192);
  }
  prompt_experts(bench, kModels[2], 512);
}

}  // namespace quire::perf
