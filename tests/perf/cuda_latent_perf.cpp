// The cases of latent attention in cuda_ops_perf.

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/perf/cuda_bench.h"

namespace quire::perf {
namespace {

// Latent attention of requests of these lengths, `fresh` tokens each, in a layer of DeepSeek-V3's.
void latent_decode(Bench& bench, const std::string& name, std::vector<std::int64_t> lengths,
                   std::int64_t heads, std::int64_t fresh, DType cache = DType::bf16) {
  if (!bench.begin(name)) return;
  constexpr std::int64_t kBlockSize = 64, kLatent = 512, kRow = kLatent + 64;
  if (bench.tiny()) lengths = {80, 30};
  const auto requests = static_cast<std::int64_t>(lengths.size());
  const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const std::int64_t columns = (longest + kBlockSize - 1) / kBlockSize;
  std::vector<std::int32_t> table(static_cast<std::size_t>(requests * columns)), starts = {0}, ends;
  std::int64_t blocks = 0, keys = 0;
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    for (std::int64_t c = 0; c * kBlockSize < lengths[r]; ++c)
      table[r * static_cast<std::size_t>(columns) + static_cast<std::size_t>(c)] =
          static_cast<std::int32_t>(blocks++);
    starts.push_back(starts.back() + static_cast<std::int32_t>(fresh));
    ends.push_back(static_cast<std::int32_t>(lengths[r]));
    keys += lengths[r];
  }
  MlaArgs args;
  args.out = bench.zeros(DType::bf16, {requests * fresh, heads, kLatent});
  args.q = bench.random({requests * fresh, heads, kRow});
  args.cache = cache == DType::bf16 ? bench.random({blocks, kBlockSize, kRow})
                                    : bench.codes(cache, {blocks, kBlockSize, kRow});
  args.block_table = bench.upload(table, {requests, columns});
  args.query_start = bench.upload(starts, {requests + 1});
  args.seq_lens = bench.upload(ends, {requests});
  args.scale = .1f;
  args.max_query_len = static_cast<int>(fresh);
  args.max_seq_len = static_cast<int>(longest);
  const auto body = [&] { bench.ops().mla_attention(args, bench.stream()); };
  if (heads * fresh <= 64)
    return bench.memory_bound(
        name, cache == DType::bf16 ? 0.75 : 0.35,
        static_cast<double>(keys * kRow) * static_cast<double>(size_of(cache)), body, {.times = 4});
  const auto rows = static_cast<double>(heads * fresh);
  bench.compute_bound(name, 2. * rows * static_cast<double>(keys * (kRow + kLatent)), body,
                      {.times = 4});
}

// What absorbing does in place of expanding, by operators: queries into the latents' space,
// attention there, values out of it.
std::function<void()> absorbed_prompt(Bench& bench, const MlaPromptArgs& args, const LatentShape& s,
                                      int fresh, int behind) {
  MlaArgs absorbed;
  absorbed.out = bench.zeros(DType::bf16, {fresh, s.heads, s.latent});
  absorbed.q = bench.zeros(DType::bf16, {fresh, s.heads, s.latent + s.rope});
  absorbed.cache = args.cache;
  absorbed.block_table = args.block_table;
  absorbed.query_start = args.query_start;
  absorbed.seq_lens = args.seq_lens;
  absorbed.scale = args.scale;
  absorbed.max_query_len = fresh;
  absorbed.max_seq_len = fresh + behind;
  const TensorView key_up = bench.random({s.heads, s.latent, s.nope}, .04f);
  return [&bench, args, absorbed, key_up, s] {
    Ops& ops = bench.ops();
    const std::int64_t row = s.latent + s.rope, dim = s.nope + s.rope;
    ops.head_linear(absorbed.q.narrow(2, 0, s.latent), args.q.narrow(2, 0, s.nope), key_up,
                    bench.stream());
    ops.copy(absorbed.q.narrow(2, s.latent, row), args.q.narrow(2, s.nope, dim), bench.stream());
    ops.mla_attention(absorbed, bench.stream());
    ops.head_linear(args.out, absorbed.out, args.up.narrow(1, s.nope, s.nope + s.value),
                    bench.stream());
  };
}

// New tokens of one request behind what is cached, in a layer of DeepSeek-V3's: from rotated
// queries to values. Of either form the operations of the expanded one are reported.
void latent_prompt(Bench& bench, std::int64_t fresh, std::int64_t cached, std::int64_t all_heads,
                   bool is_absorbed) {
  const std::string name = "latent prompt, " + std::to_string(fresh) + " tokens behind " +
                           std::to_string(cached) + ", " + std::to_string(all_heads) + " heads" +
                           (is_absorbed ? ", absorbed" : "");
  if (!bench.begin(name)) return;
  constexpr std::int64_t kBlockSize = 64;
  const std::int64_t heads = bench.size(all_heads, 2);
  const LatentShape s{.heads = heads, .latent = 512, .rope = 64, .nope = 128, .value = 128};
  const std::int64_t n = bench.size(fresh, 40), behind = bench.size(cached, 60),
                     row = s.latent + s.rope, dim = s.nope + s.rope,
                     columns = (n + behind + kBlockSize - 1) / kBlockSize;
  std::vector<std::int32_t> table(static_cast<std::size_t>(columns));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937(1));
  const auto count = static_cast<std::int32_t>(n), before = static_cast<std::int32_t>(behind);
  const std::vector<LatentPrompt> prompts = {{0, 0, count, before}};
  const auto bytes = bench.ops().traits().latent_prompt_bytes(count, s);
  MlaPromptArgs args;
  args.out = bench.zeros(DType::bf16, {n, heads, s.value});
  args.q = bench.random({n, heads, dim});
  args.up = bench.random({heads, s.nope + s.value, s.latent}, .04f);
  args.cache = bench.random({columns, kBlockSize, row});
  args.block_table = bench.upload(table, {1, columns});
  args.query_start = bench.upload<std::int32_t>({0, count}, {2});
  args.seq_lens = bench.upload<std::int32_t>({before + count}, {1});
  args.prompts = prompts;
  args.workspace = bench.zeros(DType::u8, {static_cast<std::int64_t>(bytes)});
  args.scale = .07f;
  const double pairs = static_cast<double>(n) *
                       (static_cast<double>(behind) + static_cast<double>(n + 1) / 2),
               width = static_cast<double>(dim + s.value),
               expansion = static_cast<double>((n + behind) * s.latent * (s.nope + s.value)),
               flops = 2. * static_cast<double>(heads) * (pairs * width + expansion);
  if (is_absorbed)
    return bench.compute_bound(name, flops, absorbed_prompt(bench, args, s, count, before));
  bench.compute_bound(name, flops, [&] { bench.ops().mla_prompt_attention(args, bench.stream()); });
}

}  // namespace

void latent_cases(Bench& bench) {
  const std::vector<std::int64_t> even(32, 4096);
  for (const std::int64_t heads : {16, 128}) {
    const std::string name = "latent decode, 32 of 4096, " + std::to_string(heads) + " heads";
    latent_decode(bench, name, even, heads, 1);
    latent_decode(bench, name + ", fp8 cache", even, heads, 1, DType::fp8_e4m3);
  }
  latent_decode(bench, "latent decode, 8 of 4096, 128 heads, 4 rows each",
                std::vector<std::int64_t>(8, 4096), 128, 4);
  std::vector<std::int64_t> uneven(256, 1024);
  uneven[100] = 100000;
  latent_decode(bench, "latent decode, one of 100000 among 255 of 1024, 16 heads", uneven, 16, 1);
  for (const bool is_absorbed : {false, true}) {
    latent_prompt(bench, 4096, 0, 128, is_absorbed);
    for (const std::int64_t heads : {16, 128}) latent_prompt(bench, 512, 7680, heads, is_absorbed);
    latent_prompt(bench, 200, 7680, 16, is_absorbed);
  }
}

}  // namespace quire::perf
