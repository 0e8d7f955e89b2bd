// The cases of attention in cuda_ops_perf.

#include <cmath>
#include <numeric>
#include <random>

#include "tests/perf/cuda_bench.h"

namespace quire::perf {
namespace {

struct AttentionShape {
  std::int64_t requests, cached, fresh, heads, kv_heads, dim;
  DType cache = DType::bf16;
};

// [blocks, block_size, heads, dim], random.
TensorView random_cache(Bench& bench, DType dtype, std::int64_t blocks, std::int64_t block_size,
                        std::int64_t heads, std::int64_t dim) {
  if (dtype == DType::bf16) return bench.random({blocks, block_size, heads, dim});
  const TensorView cache = bench.zeros(dtype, {blocks, block_size, heads, dim});
  std::vector<std::int64_t> slots(static_cast<std::size_t>(blocks * block_size));
  std::iota(slots.begin(), slots.end(), 0);
  const std::int64_t tokens = blocks * block_size;
  bench.ops().kv_write(cache, {}, bench.random({tokens, heads, dim}), {},
                       bench.upload(slots, {tokens}), {}, bench.stream());
  return cache;
}

// Every request's blocks lie anywhere in the cache.
AttentionArgs attention_args(Bench& bench, const AttentionShape& s) {
  constexpr std::int64_t kBlockSize = 16;
  const std::int64_t context = s.cached + s.fresh,
                     columns = (context + kBlockSize - 1) / kBlockSize;
  const std::int64_t blocks = s.requests * columns;
  std::vector<std::int32_t> table(static_cast<std::size_t>(blocks)), starts, lens;
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937(1));
  for (std::int64_t r = 0; r <= s.requests; ++r)
    starts.push_back(static_cast<std::int32_t>(r * s.fresh));
  lens.assign(static_cast<std::size_t>(s.requests), static_cast<std::int32_t>(context));
  const std::int64_t tokens = s.requests * s.fresh;
  AttentionArgs args;
  args.out = bench.zeros(DType::bf16, {tokens, s.heads, s.dim});
  args.q = bench.random({tokens, s.heads, s.dim});
  args.k_cache = random_cache(bench, s.cache, blocks, kBlockSize, s.kv_heads, s.dim);
  args.v_cache = random_cache(bench, s.cache, blocks, kBlockSize, s.kv_heads, s.dim);
  args.block_table = bench.upload(table, {s.requests, columns});
  args.query_start = bench.upload(starts, {s.requests + 1});
  args.seq_lens = bench.upload(lens, {s.requests});
  args.scale = 1.f / std::sqrt(static_cast<float>(s.dim));
  args.max_query_len = static_cast<int>(s.fresh);
  args.max_seq_len = static_cast<int>(context);
  return args;
}

void decode_attention(Bench& bench, std::int64_t requests, std::int64_t context, double goal,
                      DType cache = DType::bf16) {
  const AttentionShape s{
      bench.size(requests, 2), bench.size(context, 80) - 1, 1, 32, 8, 128, cache};
  const AttentionArgs args = attention_args(bench, s);
  const double seconds = device_seconds(
      bench.stream(), [&] { bench.ops().paged_attention(args, bench.stream()); }, 9,
      bench.tiny() ? 1 : 8);
  const double bytes = 2. * static_cast<double>(s.requests * (s.cached + 1) * s.kv_heads * s.dim) *
                       static_cast<double>(size_of(cache));
  const std::string over = cache == DType::bf16 ? "" : ", fp8 cache";
  bench.memory_bound("decode attention, batch " + std::to_string(requests) + ", context " +
                         std::to_string(context) + over,
                     goal, bytes, seconds);
  bench.forget_tensors();
}

// A request that decodes in a step with another's prompt.
void decode_beside_prompt(Bench& bench, std::int64_t context) {
  const std::int64_t prompt = bench.size(64, 40), length = bench.size(context, 80);
  AttentionArgs args = attention_args(bench, {2, length - prompt, prompt, 32, 8, 128});
  const auto fresh = static_cast<std::int32_t>(prompt), end = static_cast<std::int32_t>(length);
  args.query_start = bench.upload<std::int32_t>({0, 1, 1 + fresh}, {3});
  args.seq_lens = bench.upload<std::int32_t>({end, fresh}, {2});
  const double seconds =
      device_seconds(bench.stream(), [&] { bench.ops().paged_attention(args, bench.stream()); });
  bench.memory_bound("decode attention, context " + std::to_string(context) + ", beside a prompt",
                     0.5, static_cast<double>(length) * 8 * 128 * 4, seconds);
  bench.forget_tensors();
}

// Latent attention of requests of these lengths, `fresh` tokens each, in a layer of DeepSeek-V3's.
void latent_decode(Bench& bench, const std::string& name, std::vector<std::int64_t> lengths,
                   std::int64_t heads, std::int64_t fresh, DType cache = DType::bf16) {
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
                                    : bench.zeros(cache, {blocks, kBlockSize, kRow});
  args.block_table = bench.upload(table, {requests, columns});
  args.query_start = bench.upload(starts, {requests + 1});
  args.seq_lens = bench.upload(ends, {requests});
  args.scale = .1f;
  args.max_query_len = static_cast<int>(fresh);
  args.max_seq_len = static_cast<int>(longest);
  const double seconds =
      device_seconds(bench.stream(), [&] { bench.ops().mla_attention(args, bench.stream()); });
  if (heads * fresh <= 64) {
    bench.memory_bound(name, cache == DType::bf16 ? 0.75 : 0.35,
                       static_cast<double>(keys * kRow) * static_cast<double>(size_of(cache)),
                       seconds);
  } else {
    const auto rows = static_cast<double>(heads * fresh);
    bench.compute_bound(name, 2. * rows * static_cast<double>(keys * (kRow + kLatent)), seconds);
  }
  bench.forget_tensors();
}

// New tokens of one request behind what is cached, in a layer of DeepSeek-V3's: from rotated
// queries to values, expanded and absorbed.
void latent_prompt(Bench& bench, std::int64_t fresh, std::int64_t cached, std::int64_t all_heads) {
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
  MlaArgs absorbed;
  absorbed.out = bench.zeros(DType::bf16, {n, heads, s.latent});
  absorbed.q = bench.zeros(DType::bf16, {n, heads, row});
  absorbed.cache = args.cache;
  absorbed.block_table = args.block_table;
  absorbed.query_start = args.query_start;
  absorbed.seq_lens = args.seq_lens;
  absorbed.scale = args.scale;
  absorbed.max_query_len = count;
  absorbed.max_seq_len = count + before;
  const TensorView key_up = bench.random({heads, s.latent, s.nope}, .04f);
  const auto absorb = [&] {
    Ops& ops = bench.ops();
    ops.head_linear(absorbed.q.narrow(2, 0, s.latent), args.q.narrow(2, 0, s.nope), key_up,
                    bench.stream());
    ops.copy(absorbed.q.narrow(2, s.latent, row), args.q.narrow(2, s.nope, dim), bench.stream());
    ops.mla_attention(absorbed, bench.stream());
    ops.head_linear(args.out, absorbed.out, args.up.narrow(1, s.nope, s.nope + s.value),
                    bench.stream());
  };
  const double now = device_seconds(
      bench.stream(), [&] { bench.ops().mla_prompt_attention(args, bench.stream()); });
  const double then = device_seconds(bench.stream(), absorb);
  const double pairs = static_cast<double>(n) *
                       (static_cast<double>(behind) + static_cast<double>(n + 1) / 2),
               width = static_cast<double>(dim + s.value),
               expansion = static_cast<double>((n + behind) * s.latent * (s.nope + s.value)),
               flops = 2. * static_cast<double>(heads) * (pairs * width + expansion);
  const std::string name = "latent prompt, " + std::to_string(fresh) + " tokens behind " +
                           std::to_string(cached) + ", " + std::to_string(all_heads) + " heads";
  bench.compute_bound(name, flops, now);
  bench.compute_bound(name + ", absorbed", flops, then);  // of the fewer multiplications
  bench.forget_tensors();
}

void prefill_attention(Bench& bench, std::int64_t tokens, DType cache = DType::bf16,
                       std::int64_t dim = 128) {
  const std::int64_t n = bench.size(tokens, 40), heads = 32 * 128 / dim;
  const AttentionArgs args = attention_args(bench, {1, 0, n, heads, heads / 4, dim, cache});
  const double seconds =
      device_seconds(bench.stream(), [&] { bench.ops().paged_attention(args, bench.stream()); });
  const double flops = 2. * static_cast<double>(n) * static_cast<double>(n) * 32 * 128;  // causal
  const std::string over = cache == DType::bf16 ? "" : ", fp8 cache",
                    of = dim == 128 ? "" : ", heads of " + std::to_string(dim);
  bench.compute_bound("prefill attention, causal, tokens " + std::to_string(tokens) + over + of,
                      flops, seconds);
  bench.forget_tensors();
}

// New tokens behind what is cached: bound by the cache where their rows are few.
void prompt_behind(Bench& bench, std::int64_t fresh, std::int64_t cached) {
  const std::int64_t n = bench.size(fresh, 40), behind = bench.size(cached, 600);
  const AttentionArgs args = attention_args(bench, {1, behind, n, 32, 8, 128});
  const double seconds =
      device_seconds(bench.stream(), [&] { bench.ops().paged_attention(args, bench.stream()); });
  const double keys = static_cast<double>(behind) + static_cast<double>(n) / 2;
  bench.compute_bound(
      "attention of " + std::to_string(fresh) + " tokens behind " + std::to_string(cached),
      4. * static_cast<double>(n) * keys * 32 * 128, seconds);
  bench.forget_tensors();
}

}  // namespace

void attention_cases(Bench& bench) {
  decode_attention(bench, 32, 4096, 0.88);
  decode_attention(bench, 128, 1024, 0.88);
  decode_attention(bench, 1, 65536, 0.55);
  decode_attention(bench, 1, 1024, 0);
  decode_beside_prompt(bench, 65536);
  decode_attention(bench, 32, 4096, 0.85, DType::fp8_e4m3);
  decode_attention(bench, 128, 1024, 0.85, DType::fp8_e4m3);
  latent_decode(bench, "latent decode, 32 of 4096, 16 heads", std::vector<std::int64_t>(32, 4096),
                16, 1);
  latent_decode(bench, "latent decode, 32 of 4096, 128 heads", std::vector<std::int64_t>(32, 4096),
                128, 1);
  for (const std::int64_t heads : {16, 128})
    latent_decode(bench,
                  "latent decode, 32 of 4096, " + std::to_string(heads) + " heads, fp8 cache",
                  std::vector<std::int64_t>(32, 4096), heads, 1, DType::fp8_e4m3);
  latent_decode(bench, "latent decode, 8 of 4096, 128 heads, 4 rows each",
                std::vector<std::int64_t>(8, 4096), 128, 4);
  std::vector<std::int64_t> uneven(256, 1024);
  uneven[100] = 100000;
  latent_decode(bench, "latent decode, one of 100000 among 255 of 1024, 16 heads", uneven, 16, 1);
  latent_prompt(bench, 4096, 0, 128);
  for (const std::int64_t heads : {16, 128}) latent_prompt(bench, 512, 7680, heads);
  latent_prompt(bench, 256, 7680, 16);
  for (const std::int64_t tokens : {4096, 8192, 16384}) prefill_attention(bench, tokens);
  prefill_attention(bench, 8192, DType::fp8_e4m3);
  prefill_attention(bench, 8192, DType::bf16, 256);
  prompt_behind(bench, 64, 100000);
}

}  // namespace quire::perf
