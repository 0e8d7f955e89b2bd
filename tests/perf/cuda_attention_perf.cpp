// The cases of attention over keys and values in cuda_ops_perf.

#include <cmath>
#include <numeric>
#include <random>

#include "tests/perf/cuda_bench.h"

namespace quire::perf {
namespace {

constexpr std::int64_t kBlockSize = 16;

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

// With the rows that the host knows, which args point to where they are to choose a kernel.
struct AttentionWork {
  std::vector<std::int32_t> starts, lens;
  AttentionArgs args = {};
};

// Every request's blocks lie anywhere in the cache.
AttentionWork attention_work(Bench& bench, const AttentionShape& s) {
  const std::int64_t context = s.cached + s.fresh,
                     columns = (context + kBlockSize - 1) / kBlockSize;
  const std::int64_t blocks = s.requests * columns;
  std::vector<std::int32_t> table(static_cast<std::size_t>(blocks));
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937(1));
  AttentionWork work;
  for (std::int64_t r = 0; r <= s.requests; ++r)
    work.starts.push_back(static_cast<std::int32_t>(r * s.fresh));
  work.lens.assign(static_cast<std::size_t>(s.requests), static_cast<std::int32_t>(context));
  const std::int64_t tokens = s.requests * s.fresh;
  AttentionArgs& args = work.args;
  args.out = bench.zeros(DType::bf16, {tokens, s.heads, s.dim});
  args.q = bench.random({tokens, s.heads, s.dim});
  args.k_cache = random_cache(bench, s.cache, blocks, kBlockSize, s.kv_heads, s.dim);
  args.v_cache = random_cache(bench, s.cache, blocks, kBlockSize, s.kv_heads, s.dim);
  args.block_table = bench.upload(table, {s.requests, columns});
  args.query_start = bench.upload(work.starts, {s.requests + 1});
  args.seq_lens = bench.upload(work.lens, {s.requests});
  args.scale = 1.f / std::sqrt(static_cast<float>(s.dim));
  args.max_query_len = static_cast<int>(s.fresh);
  args.max_seq_len = static_cast<int>(context);
  const std::size_t bytes = bench.ops().traits().attention_workspace_bytes(
      {s.kv_heads, s.dim, context, DType::bf16, s.cache});
  if (bytes > 0) args.workspace = bench.zeros(DType::u8, {static_cast<std::int64_t>(bytes)});
  return work;
}
AttentionArgs attention_args(Bench& bench, const AttentionShape& s) {
  return attention_work(bench, s).args;
}

std::string described(std::int64_t dim, DType cache) {
  return (dim == 128 ? "" : ", heads of " + std::to_string(dim)) +
         (cache == DType::bf16 ? "" : ", fp8 cache");
}

double cache_bytes(const AttentionShape& s) {
  return 2. * static_cast<double>(s.requests * (s.cached + s.fresh) * s.kv_heads * s.dim) *
         static_cast<double>(size_of(s.cache));
}

void decode_attention(Bench& bench, std::int64_t requests, std::int64_t context, double goal,
                      DType cache = DType::bf16, std::int64_t dim = 128) {
  const std::string name = "decode attention, batch " + std::to_string(requests) + ", context " +
                           std::to_string(context) + described(dim, cache);
  if (!bench.begin(name)) return;
  const AttentionShape s{
      bench.size(requests, 2), bench.size(context, 80) - 1, 1, 32, 8, dim, cache};
  const AttentionArgs args = attention_args(bench, s);
  bench.memory_bound(name, goal, cache_bytes(s),
                     [&] { bench.ops().paged_attention(args, bench.stream()); }, {.times = 8});
}

// One long request among short ones.
void uneven_decode(Bench& bench) {
  const std::string name = "decode attention, one of 100000 among 255 of 1024";
  if (!bench.begin(name)) return;
  const std::int64_t requests = bench.size(256, 3), longest = bench.size(100000, 600),
                     others = bench.size(1024, 48), all = longest + (requests - 1) * others;
  AttentionArgs args = attention_args(bench, {1, all - 1, 1, 32, 8, 128});
  std::vector<std::int32_t> pages(static_cast<std::size_t>(args.block_table.extent(1)));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937(1));
  const std::int64_t columns = (longest + kBlockSize - 1) / kBlockSize;
  std::vector<std::int32_t> table(static_cast<std::size_t>(requests * columns)), lens;
  auto page = pages.begin();
  for (std::int64_t r = 0; r < requests; ++r) {
    lens.push_back(static_cast<std::int32_t>(r == requests / 3 ? longest : others));
    for (std::int64_t c = 0; c * kBlockSize < lens.back(); ++c)
      table[static_cast<std::size_t>(r * columns + c)] = *page++;
  }
  args.block_table = bench.upload(table, {requests, columns});
  args.seq_lens = bench.upload(lens, {requests});
  args.query_start = bench.counted<std::int32_t>(requests + 1);
  args.q = bench.random({requests, 32, 128});
  args.out = bench.zeros(DType::bf16, {requests, 32, 128});
  args.max_seq_len = static_cast<int>(longest);
  bench.memory_bound(name, 0, static_cast<double>(all) * 8 * 128 * 4,
                     [&] { bench.ops().paged_attention(args, bench.stream()); });
}

// Requests with so many keys in common: read once for all of them beside once for each.
void shared_prefix(Bench& bench, std::int64_t requests, std::int64_t common, std::int64_t own) {
  const std::string name = "decode attention, " + std::to_string(requests) + " requests of " +
                           std::to_string(common) + " in common and " + std::to_string(own) +
                           " of their own";
  const bool compares = bench.begin_ways(name);
  if (!compares && !bench.begin(name)) return;
  const std::int64_t prefix = bench.size(common, kSharedKeys), rest = bench.size(own, 20),
                     count = bench.size(requests, 3);
  AttentionArgs alone = attention_args(bench, {count, prefix + rest - 1, 1, 32, 8, 128});
  const std::int64_t columns = alone.block_table.extent(1), pages = prefix / kBlockSize;
  std::vector<std::int32_t> table(static_cast<std::size_t>(count * columns));
  for (std::int64_t r = 0; r < count; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      table[static_cast<std::size_t>(r * columns + c)] =
          static_cast<std::int32_t>(c < pages ? c : r * columns + c);
  alone.block_table = bench.upload(table, {count, columns});
  AttentionArgs once = alone;
  const auto all = static_cast<std::int32_t>(count);
  once.shared = {.starts = bench.upload<std::int32_t>({0, all}, {2}),
                 .members = bench.counted<std::int32_t>(count),
                 .places = bench.counted<std::int32_t>(count),
                 .lengths = bench.each(count, static_cast<std::int32_t>(prefix)),
                 .longest = 1};
  const auto attend = [&](const AttentionArgs& args) {
    return [&] { bench.ops().paged_attention(args, bench.stream()); };
  };
  if (compares)
    return bench.compare(name,
                         {{"common keys once", attend(once)}, {"each for itself", attend(alone)}},
                         {.times = 8});
  bench.memory_bound(name, 0, static_cast<double>(prefix + count * rest) * 8 * 128 * 4,
                     attend(once), {.times = 8});
}

// A request that decodes in a step with another's prompt.
void decode_beside_prompt(Bench& bench, std::int64_t context) {
  const std::string name =
      "decode attention, context " + std::to_string(context) + ", beside a prompt";
  if (!bench.begin(name)) return;
  const std::int64_t prompt = bench.size(64, 40), length = bench.size(context, 80);
  AttentionArgs args = attention_args(bench, {2, length - prompt, prompt, 32, 8, 128});
  const auto fresh = static_cast<std::int32_t>(prompt), end = static_cast<std::int32_t>(length);
  args.query_start = bench.upload<std::int32_t>({0, 1, 1 + fresh}, {3});
  args.seq_lens = bench.upload<std::int32_t>({end, fresh}, {2});
  bench.memory_bound(name, 0.5, static_cast<double>(length) * 8 * 128 * 4,
                     [&] { bench.ops().paged_attention(args, bench.stream()); }, {.times = 4});
}

void prefill_attention(Bench& bench, std::int64_t tokens, DType cache = DType::bf16,
                       std::int64_t dim = 128) {
  const std::string name =
      "prefill attention, causal, tokens " + std::to_string(tokens) + described(dim, cache);
  if (!bench.begin(name)) return;
  const std::int64_t n = bench.size(tokens, 40), heads = 32 * 128 / dim;
  AttentionWork work = attention_work(bench, {1, 0, n, heads, heads / 4, dim, cache});
  work.args.host_rows = {work.starts, work.lens};
  bench.compute_bound(name,
                      2. * static_cast<double>(n) * static_cast<double>(n) * 32 * 128,  // causal
                      [&] { bench.ops().paged_attention(work.args, bench.stream()); });
}

// New tokens behind what is cached: bound by the cache where their rows are few.
void prompt_behind(Bench& bench, std::int64_t fresh, std::int64_t cached, std::int64_t requests = 1,
                   std::int64_t group = 4, DType cache = DType::bf16) {
  const std::string name =
      "attention of " + std::to_string(fresh) + " tokens behind " + std::to_string(cached) +
      (requests == 1 ? "" : ", " + std::to_string(requests) + " requests") +
      (group == 4 ? "" : ", " + std::to_string(group) + " heads a KV head") + described(128, cache);
  if (!bench.begin(name)) return;
  const std::int64_t n = bench.size(fresh, fresh < 16 ? 3 : 40), behind = bench.size(cached, 600),
                     count = bench.size(requests, 2);
  AttentionWork work = attention_work(bench, {count, behind, n, 8 * group, 8, 128, cache});
  work.args.host_rows = {work.starts, work.lens};
  const double keys = static_cast<double>(behind) + static_cast<double>(n) / 2;
  bench.compute_bound(
      name, 4. * static_cast<double>(count * n) * keys * static_cast<double>(8 * group) * 128,
      [&] { bench.ops().paged_attention(work.args, bench.stream()); }, {.times = 4});
}

// f32, which no tensor core takes.
void plain_decode(Bench& bench) {
  const std::string name = "decode attention in f32, batch 8, context 1024";
  if (!bench.begin(name)) return;
  const std::int64_t requests = bench.size(8, 1), context = bench.size(1024, 40);
  AttentionArgs args = attention_args(bench, {requests, context - 1, 1, 32, 8, 128});
  const std::int64_t blocks = args.k_cache.extent(0);
  args.out = bench.zeros(DType::f32, {requests, 32, 128});
  args.q = bench.zeros(DType::f32, {requests, 32, 128});
  args.k_cache = bench.zeros(DType::f32, {blocks, kBlockSize, 8, 128});
  args.v_cache = bench.zeros(DType::f32, {blocks, kBlockSize, 8, 128});
  bench.memory_bound(name, 0, static_cast<double>(requests * context) * 8 * 128 * 8,
                     [&] { bench.ops().paged_attention(args, bench.stream()); });
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
  for (const std::int64_t dim : {64, 256}) decode_attention(bench, 32, 4096, 0, DType::bf16, dim);
  uneven_decode(bench);
  shared_prefix(bench, 64, 4096, 512);
  shared_prefix(bench, 4, 512, 512);
  plain_decode(bench);
  for (const std::int64_t tokens : {4096, 8192, 16384}) prefill_attention(bench, tokens);
  prefill_attention(bench, 8192, DType::fp8_e4m3);
  for (const std::int64_t dim : {64, 256}) prefill_attention(bench, 8192, DType::bf16, dim);
  prompt_behind(bench, 64, 100000);
  prompt_behind(bench, 64, 8192, 4);
  prompt_behind(bench, 4, 16384, 8, 8);
  prompt_behind(bench, 512, 7680, 1, 4, DType::fp8_e4m3);
  prompt_behind(bench, 64, 100000, 1, 4, DType::fp8_e4m3);
}

}  // namespace quire::perf
