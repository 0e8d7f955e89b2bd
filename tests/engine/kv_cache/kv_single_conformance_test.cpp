#include <catch2/catch.hpp>

#include "base/error.h"
#include "engine/kv_cache/prefix_cache.h"
#include "tests/engine/kv_cache/runtime_vectors.h"
#include "tests/support/conformance.h"

namespace quire {
namespace {

using namespace quire::test;
using simdjson::dom::element;

constexpr int kManyBlocks = 512;

// A pool in which a request's blocks are cached as the case's patterns say.
class Pattern {
 public:
  Pattern(const std::vector<GroupConfig>& groups, int hash_block_size,
          const std::vector<std::vector<int>>& cached)
      : pool_(pool_config(groups, hash_block_size)), request_(init(groups, cached)) {
    BlockHasher(hash_block_size, {1, 2}).extend(request_, request_.num_tokens());
    for (std::size_t g = 0; g < cached.size(); ++g) cache(static_cast<int>(g), cached[g]);
  }

  const BlockPool& pool() const { return pool_; }
  const Request& request() const { return request_; }

  // Block ids as indices into the request's blocks; −1: null.
  std::vector<int> indices(int group, const std::vector<BlockId>& ids) const {
    std::vector<int> result;
    for (const BlockId id : ids) {
      const auto at = std::find(rows_[group].begin(), rows_[group].end(), id);
      result.push_back(id == kNullBlock ? -1 : static_cast<int>(at - rows_[group].begin()));
    }
    return result;
  }

 private:
  static BlockPoolConfig pool_config(const std::vector<GroupConfig>& groups, int hash_block_size) {
    BlockPoolConfig config{kManyBlocks, true, false, hash_block_size, {}};
    for (const GroupConfig& group : groups) config.block_sizes.push_back(group.spec.block_size);
    return config;
  }

  static RequestInit init(const std::vector<GroupConfig>& groups,
                          const std::vector<std::vector<int>>& cached) {
    std::size_t num_tokens = 1;
    for (std::size_t g = 0; g < cached.size(); ++g) {
      num_tokens = std::max(num_tokens, cached[g].size() * groups[g].spec.block_size + 1);
    }
    RequestInit init;
    for (std::size_t i = 0; i < num_tokens; ++i) init.prompt.push_back(static_cast<TokenId>(i));
    return init;
  }

  void cache(int group, const std::vector<int>& cached) {
    auto& row = rows_.emplace_back(cached.size());
    if (!pool_.allocate(row)) throw std::runtime_error("the pattern is too long");
    const std::vector<std::uint8_t> mask(cached.begin(), cached.end());
    pool_.cache(request_, {row, 0, static_cast<int>(row.size()), group, mask});
  }

  BlockPool pool_;
  Request request_;
  std::vector<std::vector<BlockId>> rows_;
};

std::vector<int> indices_or_null(element list) {
  std::vector<int> result;
  for (const element item : list.get_array()) {
    result.push_back(item.is_null() ? -1 : static_cast<int>(std::int64_t(item)));
  }
  return result;
}

void check_single_hit(element vector_case, element expected) {
  const std::vector<GroupConfig> groups{group_config(vector_case["group"])};
  const Pattern pattern(groups, groups[0].spec.block_size, {ints(vector_case["cached"])});
  const PrefixCacheConfig config{groups, groups[0].spec.block_size,
                                 int_or(vector_case, "alignment_tokens", 0),
                                 bool_or(vector_case, "eagle", false)};
  if (has(expected, "error")) {
    REQUIRE_THROWS_AS(PrefixCache(config, pattern.pool()), Failure);
    return;
  }
  PrefixCache cache(config, pattern.pool());
  const PrefixHit& hit = cache.find(pattern.request(), int_or(vector_case, "max_length", 0));
  expect_equal("blocks", text(indices_or_null(expected["blocks"])),
               text(pattern.indices(0, hit.blocks[0])));
}

// Flagged cases: some group of the reference's has another length than the hit. Here all have the
// same, and no more than the shortest there.
void check_hybrid_hit(element vector_case, element expected) {
  const auto groups = group_configs(vector_case["groups"]);
  const int hash_block_size = int_or(vector_case, "hash_block_size", 0);
  const Pattern pattern(groups, hash_block_size, int_lists(vector_case["cached"]));
  PrefixCache cache({groups, hash_block_size, int_or(vector_case, "scheduler_block_size", 0),
                     bool_or(vector_case, "use_eagle", false)},
                    pattern.pool());
  const PrefixHit& hit = cache.find(pattern.request(), int_or(vector_case, "max_length", 0));
  const bool flagged = has_defect(vector_case, "group_hit_lengths_differ");
  int group = 0;
  for (const element blocks : expected["blocks"].get_array()) {
    const int block_size = groups[group].spec.block_size;
    expect_equal("tokens hit in group " + std::to_string(group), hit.num_tokens,
                 static_cast<int>(hit.blocks[group].size()) * block_size);
    const auto theirs = indices_or_null(blocks);
    if (!flagged) {
      expect_equal("blocks of group " + std::to_string(group), text(theirs),
                   text(pattern.indices(group, hit.blocks[group])));
    } else if (hit.num_tokens > static_cast<int>(theirs.size()) * block_size) {
      throw std::runtime_error("hit is longer than a group's blocks");
    }
    ++group;
  }
  if (!flagged) expect_equal("num_tokens", int_or(expected, "num_tokens", 0), hit.num_tokens);
}

// A group manager on its own pool.
struct Alone {
  Alone(element group, element input)
      : pool({kManyBlocks,
              true,
              false,
              group_config(group).spec.block_size,
              {group_config(group).spec.block_size}}),
        manager(make_group_manager(group_config(group), 0, limits(input), pool)) {}

  static KvLimits limits(element input) {
    KvLimits limits;
    limits.max_model_len = int_or(input, "max_model_len", 1 << 20);
    limits.max_num_batched_tokens = int_or(input, "max_num_batched_tokens", 1 << 20);
    return limits;
  }

  BlockPool pool;
  std::unique_ptr<GroupManager> manager;
};

void check_removal(element vector_case, element expected) {
  Alone alone(vector_case["group"], vector_case);
  GroupTable table;
  table.blocks.resize(static_cast<std::size_t>(int_or(vector_case, "row_blocks", 0)));
  REQUIRE(alone.pool.allocate(table.blocks));
  const std::size_t untouched = free_order(alone.pool).size();
  std::size_t freed = 0;
  for (const element step : expected.get_array()) {
    const int computed = int_or(step, "computed", 0);
    expect_equal("skipped_tokens", std::max(int_or(step, "skipped_tokens", 0), 0),
                 alone.manager->skipped_tokens(computed));
    alone.manager->remove_skipped(table, computed);
    expect_equal("row", text(ints(step["row"])), text(table.blocks));
    const auto order = free_order(alone.pool);
    expect_equal("freed", text(ints(step["freed"])),
                 text(std::span(order).subspan(untouched + freed)));
    freed = order.size() - untouched;
  }
}

void check_count(element vector_case, element expected) {
  const element input = vector_case["input"];
  Alone alone(vector_case["group"], input);
  GroupTable table;
  table.blocks.resize(static_cast<std::size_t>(int_or(input, "held", 0)));
  REQUIRE(alone.pool.allocate(table.blocks));
  table.admitted = bool_or(input, "running", false);
  std::vector<BlockId> hits;
  for (const char kind : std::string_view(input["hits"])) {
    std::vector<BlockId> id(1, kNullBlock);
    if (kind != 'n') REQUIRE(alone.pool.allocate(id));
    if (kind == 'f') alone.pool.free(id);
    hits.push_back(id[0]);
  }
  BlockNeed need;
  need.num_tokens = need.num_tokens_main = int_or(input, "num_tokens", 0);
  need.num_settled = int_or(input, "total_computed_tokens", 0);
  need.hits = hits;
  need.admission_cap = bool_or(input, "admission_cap", false);
  const int wanted = int_or(expected, "blocks", 0);  // flagged: negative, where 0 is right
  expect_equal("blocks", std::max(wanted, 0), alone.manager->blocks_to_allocate(table, need));
}

void check_case(element vector_case) {
  const std::string_view type = vector_case["type"];
  const element expected = vector_case["expected"];
  if (type == "single_hit") return check_single_hit(vector_case, expected);
  if (type == "hybrid_hit") return check_hybrid_hit(vector_case, expected);
  if (type == "skipped_removal") return check_removal(vector_case, expected);
  if (type == "blocks_to_allocate") return check_count(vector_case, expected);
  throw std::runtime_error("unknown type " + std::string(type));
}

}  // namespace

TEST_CASE("Single groups and their hits follow the recorded cases", "[kv_cache][conformance]") {
  require_conformance("kv_single/1", 309, check_case);
}

}  // namespace quire
