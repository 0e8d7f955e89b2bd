// The cases of latent attention in cuda_ops_perf.

#include <algorithm>

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
}

}  // namespace quire::perf
