#include <catch2/catch.hpp>
#include <map>

#include "base/error.h"
#include "engine/kv_cache/kv_cache_manager.h"
#include "tests/engine/kv_cache/runtime_vectors.h"
#include "tests/support/conformance.h"

namespace quire {
namespace {

using namespace quire::test;
using simdjson::dom::element;

KvCacheConfig config_of(element config) {
  KvCacheConfig result;
  result.num_blocks = int_or(config, "num_blocks", 0);
  result.groups = group_configs(config["groups"]);
  result.max_model_len = int_or(config, "max_model_len", 0);
  result.max_num_batched_tokens = int_or(config, "max_num_batched_tokens", 0);
  result.scheduler_block_size = int_or(config, "scheduler_block_size", 0);
  result.hash_block_size = int_or(config, "hash_block_size", 0);
  result.enable_caching = bool_or(config, "enable_caching", true);
  result.use_eagle = bool_or(config, "use_eagle", false);
  result.record_fresh_blocks = true;
  return result;
}

class Trace {
 public:
  explicit Trace(element vector_case)
      : manager_(config_of(vector_case["config"])),
        flagged_(has_defect(vector_case, "group_hit_lengths_differ")) {
    for (const GroupConfig& group : manager_.config().groups) {
      block_sizes_.push_back(group.spec.block_size);
    }
  }

  void run(element op) {
    const std::string_view name = op["op"];
    const std::string id = text_or(op, "id", "");
    if (name == "new_request") return add(op, id);
    if (name == "get_computed") return find_hit(op, id);
    if (name == "allocate") return allocate(op, id);
    if (name == "append") {
      for (const int token : ints(op["token_ids"])) requests_.at(id)->append(token);
    } else if (name == "set_computed") {
      requests_.at(id)->num_computed = int_or(op, "value", 0);
    } else if (name == "cache") {
      manager_.cache(*requests_.at(id), int_or(op, "num_computed_tokens", 0));
    } else if (name == "free") {
      manager_.free(*requests_.at(id));
    } else if (name == "forget") {
      requests_.erase(id);
    } else if (name == "new_step") {
      manager_.start_step();
    } else if (name == "reset") {
      expect_equal("reset", bool(op["result"]), manager_.reset_prefix_cache());
    } else if (name == "evict") {
      manager_.evict(ints(op["ids"]));
    } else if (name == "common_prefix") {
      common_prefix(op, id);
    } else if (name == "take_zero_ids") {
      std::vector<BlockId> fresh;
      manager_.take_fresh_blocks(fresh);
      expect_equal("take_zero_ids", text(ints(op["result"])), text(fresh));
    } else {
      throw std::runtime_error("unknown op " + std::string(name));
    }
  }

  void check_state(element state) {
    for (const auto [id, table] : state["tables"].get_object()) {
      expected_tables_[std::string(id)] = text(int_lists(table));
    }
    for (const auto& [id, expected] : expected_tables_) {
      const auto request = requests_.find(id);
      if (request == requests_.end()) continue;
      expect_equal("table of " + id, expected, text(tables(*request->second)));
    }
    const BlockPool& pool = manager_.pool();
    expect_equal("free_count", std::int64_t(state["free_count"]), pool.num_free());
    expect_close("usage", double(state["usage"]), pool.usage());
    expect_equal("free_order", text(ints(state["free_order"])), text(free_order(pool)));
    expect_equal("cached", text(ints(state["cached"])), text(cached_blocks(pool)));
  }

 private:
  void add(element op, const std::string& id) {
    RequestInit init;
    init.id = RequestId(requests_.size());
    init.prompt = ints(op["token_ids"]);
    init.cache_salt = text_or(op, "cache_salt", "");
    init.sampling.skip_reading_prefix_cache = bool_or(op, "skip_reading_prefix_cache", false);
    requests_[id] = std::make_unique<Request>(std::move(init));
    expected_tables_[id] = text(std::vector<std::vector<int>>(block_sizes_.size()));
  }

  void find_hit(element op, const std::string& id) {
    hit_ = manager_.find_prefix(*requests_.at(id));
    const auto expected = int_lists(op["result"]["blocks"]);
    const int num_tokens = int_or(op["result"], "num_tokens", 0);
    for (std::size_t g = 0; g < expected.size(); ++g) {
      const int own = static_cast<int>(hit_.blocks[g].size()) * block_sizes_[g];
      expect_equal("tokens hit in group " + std::to_string(g), hit_.num_tokens, own);
      const int theirs = static_cast<int>(expected[g].size()) * block_sizes_[g];
      // The reference's groups disagreed on this hit: what comes after it is not a model to follow.
      if (flagged_ && theirs != num_tokens) throw CutShort{};
    }
    expect_equal("num_tokens", num_tokens, hit_.num_tokens);
    expect_equal("blocks", text(expected), text(hit_.blocks));
  }

  void allocate(element op, const std::string& id) {
    Request& request = *requests_.at(id);
    SlotDemand demand;
    demand.num_new = int_or(op, "num_new_tokens", 0);
    demand.num_lookahead = int_or(op, "num_lookahead_tokens", 0);
    demand.num_external = int_or(op, "num_external_computed_tokens", 0);
    demand.delay_caching = bool_or(op, "delay_cache_blocks", false);
    demand.whole_prompt_must_fit = bool_or(op, "full_sequence_must_fit", false);
    if (bool_or(op, "use_computed", false)) demand.hit = &hit_;
    if (has(op, "error")) {
      if (text_or(op["error"], "code", "") == "internal") return allocate_freely(request, demand);
      REQUIRE_THROWS_AS(manager_.allocate(request, demand), Failure);
      return;
    }
    const bool done = manager_.allocate(request, demand);
    expect_equal("allocated", has(op, "result"), done);
    if (!done) return;
    std::vector<std::vector<int>> fresh;
    for (int g = 0; g < manager_.num_groups(); ++g) {
      const auto ids =
          manager_.any_new_blocks() ? manager_.new_blocks(request, g) : std::span<const BlockId>{};
      fresh.emplace_back(ids.begin(), ids.end());
    }
    expect_equal("new_blocks", text(int_lists(op["result"]["new_blocks"])), text(fresh));
    request.num_computed = int_or(op, "num_computed_after", 0);
  }

  // Where the reference runs into its own check, a request simply has what it needs.
  void allocate_freely(Request& request, const SlotDemand& demand) {
    if (!manager_.allocate(request, demand)) throw std::runtime_error("allocate failed");
    if (manager_.any_new_blocks()) throw std::runtime_error("allocate took blocks");
  }

  void common_prefix(element op, const std::string& id) {
    std::vector<int> counts;
    for (int g = 0; g < manager_.num_groups(); ++g) {
      counts.push_back(manager_.num_common_prefix_blocks(*requests_.at(id), g));
    }
    expect_equal("common_prefix", text(ints(op["result"])), text(counts));
  }

  std::vector<std::vector<int>> tables(const Request& request) const {
    std::vector<std::vector<int>> lists;
    for (int g = 0; g < manager_.num_groups(); ++g) {
      const auto ids = manager_.table(request, g);
      lists.emplace_back(ids.begin(), ids.end());
    }
    return lists;
  }

  KvCacheManager manager_;
  bool flagged_;
  std::vector<int> block_sizes_;
  std::map<std::string, std::unique_ptr<Request>> requests_;
  std::map<std::string, std::string> expected_tables_;
  PrefixHit hit_;
};

void check_case(element vector_case) {
  Trace trace(vector_case);
  trace.check_state(vector_case["initial"]);
  int step = 0;
  for (const element op : vector_case["ops"].get_array()) {
    try {
      trace.run(op);
      if (has(op, "state")) trace.check_state(op["state"]);
    } catch (const CutShort&) {
      throw;
    } catch (const std::exception& error) {
      throw std::runtime_error("op " + std::to_string(step) + " " +
                               std::string(std::string_view(op["op"])) + ": " + error.what());
    }
    ++step;
  }
}

}  // namespace

TEST_CASE("The KV cache manager follows every recorded trace", "[kv_cache][conformance]") {
  require_conformance("kv_manager/1", 78, check_case, 3);
}

}  // namespace quire
