#include <catch2/catch.hpp>

#include "engine/kv_cache/kv_cache_manager.h"

namespace quire {
namespace {

constexpr int kBlock = 4;

// Group 0 keeps states, group 1 is attention.
KvCacheConfig hybrid(StateCacheMode mode) {
  KvCacheConfig config;
  config.num_blocks = 40;
  config.groups.resize(2);
  config.groups[0].spec.kind = KvKind::mamba;
  config.groups[0].spec.state_cache_mode = mode;
  for (GroupConfig& group : config.groups) group.spec.block_size = kBlock;
  config.max_model_len = 64;
  config.max_num_batched_tokens = 64;
  config.scheduler_block_size = config.hash_block_size = kBlock;
  return config;
}

Request counting(int num_tokens) {
  RequestInit init;
  for (int i = 0; i < num_tokens; ++i) init.prompt.push_back(i + 1);
  return Request(std::move(init));
}

void compute(KvCacheManager& kv, Request& request, int num_tokens) {
  SlotDemand demand;
  demand.num_new = num_tokens;
  REQUIRE(kv.allocate(request, demand));
  request.num_computed += num_tokens;
}

// An answer of num_answer tokens, one by one, each the number after the one before.
void answer(KvCacheManager& kv, Request& request, int num_answer) {
  for (int i = 0; i < num_answer; ++i) {
    request.append(request.num_tokens() + 1);
    compute(kv, request, 1);
  }
}

int found(KvCacheManager& kv, int num_tokens) {
  Request again = counting(num_tokens + 1);
  return kv.find_prefix(again).num_tokens;
}

TEST_CASE("of the states within an answer the newest stays, and the prompt's", "[kv_cache]") {
  KvCacheManager kv(hybrid(StateCacheMode::adaptive));
  Request request = counting(8);
  compute(kv, request, 8);
  answer(kv, request, 14);
  CHECK(found(kv, 8) == 8);
  CHECK(found(kv, 12) == 8);
  CHECK(found(kv, 16) == 8);
  CHECK(found(kv, 20) == 20);
  kv.free(request);
  CHECK(found(kv, 22) == 20);
  CHECK(found(kv, 19) == 8);
}

TEST_CASE("in vLLM's mode every block of an answer leaves a state", "[kv_cache]") {
  KvCacheManager kv(hybrid(StateCacheMode::align));
  Request request = counting(8);
  compute(kv, request, 8);
  answer(kv, request, 14);
  for (const int boundary : {8, 12, 16, 20}) CHECK(found(kv, boundary) == boundary);
}

TEST_CASE("a superseded state that another request reads stays", "[kv_cache]") {
  KvCacheManager kv(hybrid(StateCacheMode::adaptive));
  Request request = counting(8);
  compute(kv, request, 8);
  answer(kv, request, 5);  // past 12
  kv.start_step();         // a state cannot be read in the step that makes it
  Request other = counting(13);
  const PrefixHit hit = kv.find_prefix(other);
  REQUIRE(hit.num_tokens == 12);
  SlotDemand demand;
  demand.hit = &hit;
  demand.num_new = 1;
  REQUIRE(kv.allocate(other, demand));
  const BlockId state = kv.table(other, 0)[2];
  answer(kv, request, 9);  // past 20
  CHECK(kv.pool().ref_count(state) == 1);
  CHECK(found(kv, 12) == 12);
  kv.free(request);
  kv.free(other);
  CHECK(kv.pool().num_free() == kv.pool().num_usable());
}

TEST_CASE("the prefix that attention has alone is told", "[kv_cache]") {
  KvCacheManager kv(hybrid(StateCacheMode::adaptive));
  Request request = counting(22);
  compute(kv, request, 22);  // in one step: a state at no boundary
  Request again = counting(23);
  const PrefixHit& hit = kv.find_prefix(again);
  CHECK(hit.num_tokens == 0);
  CHECK(hit.num_shared == 20);
}

}  // namespace
}  // namespace quire
