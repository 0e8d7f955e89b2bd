#include "engine/kv_cache/prefix_index.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "base/error.h"
#include "engine/kv_cache/kv_cache_manager.h"

namespace quire {
namespace {

constexpr BlockId kNoBlock = PrefixIndex::kNoBlock;
using Tokens = std::vector<TokenId>;

KvCacheConfig config(int num_blocks) {
  KvCacheConfig config;
  config.num_blocks = num_blocks;
  config.groups.resize(1);
  config.groups[0].spec.block_size = 4;
  config.max_model_len = 64;
  config.max_num_batched_tokens = 64;
  config.scheduler_block_size = config.hash_block_size = 4;
  return config;
}

Request request(Tokens prompt, std::string salt = {}, std::string lora = {}) {
  RequestInit init;
  init.prompt = std::move(prompt);
  init.cache_salt = std::move(salt);
  init.lora_name = std::move(lora);
  return Request(std::move(init));
}

void compute(KvCacheManager& kv, Request& request) {
  SlotDemand demand;
  demand.num_new = request.num_tokens();
  REQUIRE(kv.allocate(request, demand));
  request.num_computed = request.num_tokens();
}

}  // namespace

TEST_CASE("positions that begin elsewhere share no blocks, whatever salt pretends so",
          "[kv_cache]") {
  KvCacheManager kv(config(20));
  const auto at = [](int offset, std::string salt) {
    RequestInit init;
    init.prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    init.cache_salt = std::move(salt);
    init.position_offset = offset;
    return Request(std::move(init));
  };
  Request computed = at(64, "");
  compute(kv, computed);
  for (const char* salt : {"", "64", "\x1fpositions+64", "\x40", "position_offset"}) {
    Request other = at(0, salt);
    CHECK(kv.find_prefix(other).num_tokens == 0);
  }
  Request same = at(64, "");
  CHECK(kv.find_prefix(same).num_tokens == 8);
  Request salted = at(64, "a");
  CHECK(kv.find_prefix(salted).num_tokens == 0);
  EventHasher hasher(4, root_hash("seed"));
  Request plain = at(0, "");
  hasher.extend(same, 8);
  hasher.extend(plain, 8);
  CHECK(same.event_hashes != plain.event_hashes);
}

TEST_CASE("Equal hashes of different tokens are no hit", "[kv_cache][prefix_index]") {
  PrefixIndex index(8, std::vector<int>{2});
  const BlockHash hash{42, 43};
  index.insert(3, 0, hash, Tokens{1, 2});
  CHECK(index.find(0, hash) == 3);
  CHECK(index.find(0, hash, Tokens{1, 2}) == 3);
  CHECK(index.find(0, hash, Tokens{1, 3}) == kNoBlock);
  CHECK(index.find(1, hash) == kNoBlock);
}

TEST_CASE("A run ends at the first block that is missing or holds other tokens",
          "[kv_cache][prefix_index]") {
  constexpr int kBlocks = 100;
  PrefixIndex index(kBlocks, std::vector<int>{1});
  std::vector<BlockHash> hashes;
  Tokens tokens;
  for (int i = 0; i < kBlocks; ++i) {
    hashes.push_back({static_cast<std::uint64_t>(i) * 77, 1});
    tokens.push_back(i);
    index.insert(i, 0, hashes.back(), {&tokens.back(), 1});
  }
  std::vector<BlockId> found(kBlocks);
  CHECK(index.match_run(0, hashes, 1, tokens, found) == kBlocks);
  CHECK(found[99] == 99);
  const int broken = GENERATE(0, 1, 31, 32, 33, 63, 64, 99);
  SECTION("missing") { index.erase(broken); }
  SECTION("other tokens") { tokens[broken] = -5; }
  CHECK(index.match_run(0, hashes, 1, tokens, found) == broken);
}

TEST_CASE("The table is what a map would be, whatever comes and goes", "[kv_cache][prefix_index]") {
  constexpr int kBlocks = 300;
  std::mt19937 random(7);
  PrefixIndex index(kBlocks, std::vector<int>{1});
  std::map<std::uint64_t, std::vector<BlockId>> reference;
  std::map<BlockId, std::uint64_t> key_of;
  for (int step = 0; step < 4000; ++step) {
    const auto id = static_cast<BlockId>(random() % kBlocks);
    // Keys whose low bits agree crowd the same slots.
    const std::uint64_t key = (random() % 80) << 40;
    const auto token = static_cast<TokenId>(key >> 40);
    if (index.holds(id)) {
      auto& ids = reference[key_of[id]];
      ids.erase(std::find(ids.begin(), ids.end(), id));
      key_of.erase(id);
      index.erase(id);
    } else {
      index.insert(id, 0, {key, 9}, {&token, 1});
      reference[key].push_back(id);
      key_of[id] = key;
    }
    for (const auto& [k, ids] : reference) {
      REQUIRE(index.find(0, {k, 9}) == (ids.empty() ? kNoBlock : ids.front()));
    }
    REQUIRE(index.size() == static_cast<int>(key_of.size()));
  }
  index.clear();
  for (const auto& [k, ids] : reference) REQUIRE(index.find(0, {k, 9}) == kNoBlock);
}

TEST_CASE("Prefixes are shared under one salt and one adapter only", "[kv_cache]") {
  KvCacheManager kv(config(20));
  const Tokens prompt{1, 2, 3, 4, 5, 6, 7, 8, 9};
  Request first = request(prompt, "mine", "adapter");
  compute(kv, first);
  Request same = request(prompt, "mine", "adapter");
  CHECK(kv.find_prefix(same).num_tokens == 8);
  Request other_salt = request(prompt, "yours", "adapter");
  CHECK(kv.find_prefix(other_salt).num_tokens == 0);
  Request other_adapter = request(prompt, "mine");
  CHECK(kv.find_prefix(other_adapter).num_tokens == 0);
  // The two texts must not run into each other.
  Request shifted = request(prompt, "radaptermine", "");
  CHECK(kv.find_prefix(shifted).num_tokens == 0);
  for (Request* r : {&first}) kv.free(*r);
}

TEST_CASE("Stored blocks are announced with the hashes that routers compute", "[kv_cache]") {
  KvCacheConfig own = config(3);
  own.events = true;
  own.event_seed = "0";
  KvCacheManager kv(own);
  Request first = request({1, 2, 3, 4, 5, 6, 7, 8});
  compute(kv, first);
  Request copy = request({1, 2, 3, 4, 5, 6, 7, 8});
  EventHasher(4, root_hash("0")).extend(copy, 8);
  auto events = kv.take_events();
  REQUIRE(events.size() == 1);
  const auto& stored = std::get<BlockStored>(events[0]);
  REQUIRE(stored.hashes.size() == 2);
  CHECK(stored.hashes[1] == EventHash{copy.event_hashes[1]});
  CHECK(stored.token_ids.size() == 8);
  CHECK(!stored.parent);

  kv.free(first);
  Request second = request({9, 9, 9, 9, 9});
  compute(kv, second);
  events = kv.take_events();
  REQUIRE(events.size() == 3);  // both old blocks go, one new comes
  CHECK(std::get<BlockRemoved>(events[0]).hash == EventHash{copy.event_hashes[1]});
  CHECK(std::get<BlockRemoved>(events[1]).hash == EventHash{copy.event_hashes[0]});
  CHECK(std::holds_alternative<BlockStored>(events[2]));

  CHECK(!kv.reset_prefix_cache());  // somebody holds blocks
  kv.free(second);
  CHECK(kv.reset_prefix_cache());
  events = kv.take_events();
  REQUIRE(events.size() == 1);
  CHECK(std::holds_alternative<AllBlocksCleared>(events[0]));
  CHECK(kv.pool().index().size() == 0);
}

}  // namespace quire
