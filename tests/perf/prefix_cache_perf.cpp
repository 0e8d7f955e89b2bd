// A prefix lookup of 32k tokens, all hit, in a table of a million blocks. Goal: 150 µs with every
// token compared.

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "engine/kv_cache/kv_cache_manager.h"
#include "tests/perf/memory_probe.h"

namespace quire::perf {
namespace {

constexpr int kBlockSize = 16;
constexpr int kTokens = 32'768;
constexpr int kBlocksPerPrompt = kTokens / kBlockSize;
constexpr int kPrompts = 488;  // fill the table: 999 424 blocks

RequestInit prompt(int index) {
  RequestInit init;
  init.id = RequestId(static_cast<std::uint64_t>(index));
  std::uint64_t x = static_cast<std::uint64_t>(index) * 0x9E3779B97F4A7C15u + 1;
  for (int i = 0; i <= kTokens; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    init.prompt.push_back(static_cast<TokenId>(x >> 48));
  }
  init.sampling.max_tokens = 1;
  return init;
}

KvCacheConfig config() {
  KvCacheConfig config;
  config.num_blocks = 1'000'000;
  config.groups.resize(1);
  config.groups[0].spec.block_size = kBlockSize;
  config.max_model_len = kTokens + 16;
  config.max_num_batched_tokens = kTokens + 16;
  config.scheduler_block_size = config.hash_block_size = kBlockSize;
  return config;
}

// Prompts interleave in the pool as prompts of a busy server do.
void fill(KvCacheManager& kv) {
  std::vector<std::unique_ptr<Request>> requests;
  for (int i = 0; i < kPrompts; ++i) requests.push_back(std::make_unique<Request>(prompt(i)));
  constexpr int kChunk = 2048;
  for (int done = 0; done < kTokens; done += kChunk) {
    for (auto& request : requests) {
      SlotDemand demand;
      demand.num_new = kChunk;
      if (!kv.allocate(*request, demand)) std::abort();
      request->num_computed += kChunk;
    }
  }
  for (auto& request : requests) kv.free(*request);
}

void expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("wrong: %s\n", what);
  std::exit(1);
}

void measure(KvCacheManager& kv) {
  double best_all = 1e9, best_lookup = 1e9, sum_all = 0, sum_lookup = 0;
  constexpr int kRounds = 60;
  for (int round = 0; round < kRounds; ++round) {
    Request request(prompt(round * 37 % kPrompts));  // not in the CPU's caches any more
    double start = thread_seconds();
    expect(kv.find_prefix(request).num_tokens == kTokens, "a prefix is not found");
    const double all = (thread_seconds() - start) * 1e6;
    Request other(prompt((round * 37 + 211) % kPrompts));
    BlockHasher hasher(kBlockSize, kv.config().hash_key.value());
    hasher.extend(other, kTokens);
    start = thread_seconds();
    expect(kv.find_prefix(other).num_tokens == kTokens, "a prefix is not found");
    const double lookup = (thread_seconds() - start) * 1e6;
    best_all = std::min(best_all, all);
    best_lookup = std::min(best_lookup, lookup);
    sum_all += all;
    sum_lookup += lookup;
  }
  std::printf(
      "%d tokens, all hit: hashing and lookup %.0f us (mean %.0f), lookup alone %.0f us (mean "
      "%.0f)\n",
      kTokens, best_all, sum_all / kRounds, best_lookup, sum_lookup / kRounds);
}

// A different token ends the hit where it stands.
void check_tokens(KvCacheManager& kv) {
  RequestInit init = prompt(3);
  init.prompt[20'000] += 1;
  Request request(std::move(init));
  expect(kv.find_prefix(request).num_tokens == 20'000 / kBlockSize * kBlockSize,
         "a hit goes past a different token");
}

}  // namespace
}  // namespace quire::perf

int main() {
  using namespace quire;
  using namespace quire::perf;
  std::printf("probe: %.0f ns per missing load, memcpy %.1f GB/s\n", missing_load_ns(),
              memcpy_gb_per_s());
  KvCacheConfig own = config();
  own.hash_key = BlockHasher::Key{1, 2};
  KvCacheManager kv(own);
  fill(kv);
  measure(kv);
  check_tokens(kv);
  std::printf("probe: %.0f ns per missing load, memcpy %.1f GB/s\n", missing_load_ns(),
              memcpy_gb_per_s());
}
