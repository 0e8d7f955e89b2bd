#include <catch2/catch.hpp>
#include <map>

#include "base/error.h"
#include "engine/kv_cache/block_pool.h"
#include "tests/engine/kv_cache/runtime_vectors.h"
#include "tests/support/conformance.h"

namespace quire {
namespace {

using namespace quire::test;
using simdjson::dom::element;

// The vectors name hashes; a name is at most 32 bytes, so it can stand in for the hash itself.
Sha256 event_hash_of(std::string_view name) {
  Sha256 hash{};
  if (name.size() > hash.size()) throw std::runtime_error("long name");
  std::copy(name.begin(), name.end(), hash.begin());
  return hash;
}

std::string name_of_hash(const Sha256& hash) {
  const auto end = std::find(hash.begin(), hash.end(), 0);
  return {hash.begin(), end};
}

using Names = std::vector<std::string>;

std::string text_of(const Names& names) {
  std::string line = "(";
  for (const std::string& name : names) line += (line.size() > 1 ? " " : "") + name;
  return line + ")";
}

Names names_of(element list) {
  Names names;
  for (const element name : list.get_array()) names.emplace_back(std::string_view(name));
  return names;
}

std::string text_of(const EventHash& hash) {
  Names names;
  for (const Sha256& part : hash) names.push_back(name_of_hash(part));
  return text_of(names);
}

// A coarse block's hash is a list of names. In the pool the last hash of a block stands for it.
BlockHash block_hash_of(const Names& names) {
  const std::string all = text_of(names);
  return {std::hash<std::string>{}(all), std::hash<std::string>{}(all + "'")};
}

class Trace {
 public:
  explicit Trace(element vector_case)
      : requests_(vector_case["requests"]),
        hash_block_size_(int_or(vector_case["config"], "hash_block_size", 0)),
        pool_(config(vector_case)) {}

  void run(element op) {
    const std::string_view name = op["op"];
    if (name == "allocate") return allocate(op);
    if (name == "touch") return pool_.touch(ints(op["ids"]));
    if (name == "free") return pool_.free(ints(op["ids"]));
    if (name == "cache") return cache(op);
    if (name == "lookup") return lookup(op);
    if (name == "evict") {
      return expect_equal("evict", has(op, "error") ? 0 : 1, pool_.evict(ints(op["ids"])));
    }
    if (name == "reset") return expect_equal("reset", bool(op["result"]), pool_.reset());
    throw std::runtime_error("unknown op " + std::string(name));
  }

  void check_state(element state) {
    expect_equal("free_count", int_or(state, "free_count", 0), pool_.num_free());
    expect_close("usage", double(state["usage"]), pool_.usage());
    expect_equal("free_order", text(ints(state["free_order"])), text(free_order(pool_)));
    std::vector<std::vector<int>> refs;
    for (BlockId id = 1; id <= pool_.num_usable(); ++id) {
      if (pool_.ref_count(id) != 0) refs.push_back({id, pool_.ref_count(id)});
    }
    expect_equal("refs", text(int_lists(state["refs"])), text(refs));
    std::string expected, actual;
    for (const element entry : state["cached"].get_array()) {
      const auto id = static_cast<BlockId>(std::int64_t(entry.at(0)));
      expected += entry_text(id, block_hash_of(names_of(entry.at(1))),
                             static_cast<int>(std::int64_t(entry.at(2))));
    }
    for (const BlockId id : cached_blocks(pool_)) {
      actual += entry_text(id, pool_.index().hash_of(id), pool_.index().group_of(id));
    }
    expect_equal("cached", expected, actual);
  }

  void check_events(element op) {
    std::string expected, actual;
    if (has(op, "events")) {
      for (const element event : op["events"].get_array()) expected += text_of_expected(event);
    }
    for (const KvEvent& event : pool_.take_events()) {
      actual += std::visit([](const auto& e) { return text_of_event(e); }, event);
    }
    expect_equal("events", expected, actual);
  }

 private:
  static BlockPoolConfig config(element vector_case) {
    const element config = vector_case["config"];
    BlockPoolConfig pool{int_or(config, "num_blocks", 0), bool_or(config, "enable_caching", true),
                         bool_or(config, "events", false), int_or(config, "hash_block_size", 0),
                         std::vector<int>(8, int_or(config, "hash_block_size", 0))};
    for (const element op : vector_case["ops"].get_array()) {
      if (has(op, "block_size"))
        pool.block_sizes[int_or(op, "group", 0)] = int_or(op, "block_size", 0);
    }
    return pool;
  }

  void allocate(element op) {
    std::vector<BlockId> ids(static_cast<std::size_t>(int_or(op, "n", 0)));
    expect_equal("allocated", has(op, "error") ? 0 : 1, pool_.allocate(ids));
    if (!has(op, "error")) expect_equal("ids", text(ints(op["result"])), text(ids));
  }

  void cache(element op) {
    const element source = requests_[std::string_view(op["request"])];
    RequestInit init;
    init.prompt = ints(source["token_ids"]);
    init.cache_salt = text_or(source, "cache_salt", "");
    if (has(source, "lora")) {
      init.lora_id = static_cast<int>(std::int64_t(source["lora"].at(0)));
      init.lora_name = std::string(std::string_view(source["lora"].at(1)));
    }
    Request request(std::move(init));
    const int per_block = int_or(op, "block_size", 0) / hash_block_size_;
    Names block;
    for (const std::string& name : names_of(source["hashes"])) {
      block.push_back(name);
      request.event_hashes.push_back(event_hash_of(name));
      request.block_hashes.push_back(block_hash_of(block));
      if (static_cast<int>(block.size()) == per_block) block.clear();
    }
    std::vector<std::uint8_t> mask;
    const int first = int_or(op, "num_cached", 0);
    if (has(op, "mask")) {
      for (const element keep : op["mask"].get_array()) mask.push_back(bool(keep));
    }
    const auto table = ints(op["blocks"]);
    pool_.cache(request, {table, first, int_or(op, "num_full", 0), int_or(op, "group", 0), mask});
  }

  void lookup(element op) {
    const BlockHash hash = block_hash_of(names_of(op["hash"]));
    std::vector<BlockId> found;
    for (const int group : ints(op["groups"])) {
      const BlockId id =
          pool_.enable_caching() ? pool_.index().find(group, hash) : PrefixIndex::kNoBlock;
      if (id == PrefixIndex::kNoBlock) return expect_equal("hit", has(op, "result"), false);
      found.push_back(id);
    }
    expect_equal("ids", has(op, "result") ? text(ints(op["result"])) : "none", text(found));
  }

  static std::string entry_text(BlockId id, const BlockHash& hash, int group) {
    return std::to_string(id) + ":" + std::to_string(hash.low) + ":" + std::to_string(group) + " ";
  }

  static std::vector<element> lists_of(element object, std::string_view field) {
    std::vector<element> lists;
    if (!has(object, field)) return lists;
    for (const element list : object[field].get_array()) lists.push_back(list);
    return lists;
  }

  static std::string text_of_expected(element event) {
    const std::string_view type = event["type"];
    if (type == "all_cleared") return text_of_event(AllBlocksCleared{});
    const int group = int_or(event, "group", 0);
    std::string hashes;
    if (type == "removed") {
      for (const element hash : event["hashes"].get_array()) {
        hashes += "removed " + text_of(names_of(hash)) + " " + std::to_string(group) + "\n";
      }
      return hashes;
    }
    for (const element hash : event["hashes"].get_array()) hashes += text_of(names_of(hash));
    std::string keys;
    for (const element list : lists_of(event, "extra_keys")) {
      keys += list.is_null() ? "null" : text_of(names_of(list));
    }
    return "stored " + hashes + " parent " +
           (has(event, "parent") ? text_of(names_of(event["parent"])) : "none") + " tokens " +
           text(ints(event["token_ids"])) + " size " +
           std::to_string(int_or(event, "block_size", 0)) + " lora " +
           std::to_string(int_or(event, "lora_id", -1)) + text_or(event, "lora_name", "") +
           " group " + std::to_string(group) + " keys " + keys + "\n";
  }

  static std::string text_of_event(const BlockStored& event) {
    std::string hashes, keys;
    for (const EventHash& hash : event.hashes) hashes += text_of(hash);
    for (const auto& list : event.extra_keys) {
      Names names;
      for (const ExtraKey& key : list) names.push_back(std::get<std::string>(key));
      keys += list.empty() ? "null" : text_of(names);
    }
    return "stored " + hashes + " parent " + (event.parent ? text_of(*event.parent) : "none") +
           " tokens " + text(event.token_ids) + " size " + std::to_string(event.block_size) +
           " lora " + std::to_string(event.lora_id.value_or(-1)) + event.lora_name + " group " +
           std::to_string(event.group) + " keys " + keys + "\n";
  }

  static std::string text_of_event(const BlockRemoved& event) {
    return "removed " + text_of(event.hash) + " " + std::to_string(event.group) + "\n";
  }

  static std::string text_of_event(const AllBlocksCleared&) { return "cleared\n"; }

  element requests_;
  int hash_block_size_;
  BlockPool pool_;
};

void check_case(element vector_case) {
  Trace trace(vector_case);
  trace.check_state(vector_case["initial"]);
  int step = 0;
  for (const element op : vector_case["ops"].get_array()) {
    try {
      trace.run(op);
      trace.check_events(op);
      trace.check_state(op["state"]);
    } catch (const Failure&) {  // a second free: the reference lets it pass
      if (has_defect(vector_case, "double_free_undetected")) return;
      throw;
    } catch (const std::exception& error) {
      throw std::runtime_error("op " + std::to_string(step) + " " +
                               std::string(std::string_view(op["op"])) + ": " + error.what());
    }
    ++step;
  }
  if (has_defect(vector_case, "double_free_undetected")) {
    throw std::runtime_error("the second free was not noticed");
  }
}

void check_queue(element vector_case) {
  FreeList list(int_or(vector_case, "num_blocks", 0));
  for (const element op : vector_case["ops"].get_array()) {
    const std::string_view name = op["op"];
    const auto many = [&] { return ints(op["arg"]); };
    if (name == "popleft") {
      const BlockId id = list.pop_front();
      expect_equal("popleft", has(op, "error") ? FreeList::kNoBlock : int_or(op, "result", 0), id);
    } else if (name == "popleft_n") {
      if (int_or(op, "arg", 0) > list.size()) {
        expect_equal("too few", 1, has(op, "error"));
        continue;
      }
      std::vector<BlockId> ids;
      for (int i = 0; i < int_or(op, "arg", 0); ++i) ids.push_back(list.pop_front());
      expect_equal("popleft_n", text(ints(op["result"])), text(ids));
    } else if (name == "remove") {
      expect_equal("remove", has(op, "error") ? 0 : 1, list.remove(int_or(op, "arg", 0)));
    } else if (name == "append") {
      list.push_back(int_or(op, "arg", 0));
    } else {
      for (const BlockId id : many()) list.push_back(id);
    }
    std::vector<BlockId> order;
    for (BlockId id = list.front(); id != FreeList::kNoBlock; id = list.after(id)) {
      order.push_back(id);
    }
    if (!has(op, "order")) continue;
    expect_equal("order", text(ints(op["order"])), text(order));
    expect_equal("count", int_or(op, "count", 0), list.size());
  }
}

}  // namespace

TEST_CASE("The block pool follows every recorded trace", "[kv_cache][conformance]") {
  require_conformance("block_pool/1", 38, check_case);
}

TEST_CASE("The free list follows every recorded trace", "[kv_cache][conformance]") {
  require_conformance("free_queue/1", 16, check_queue);
}

}  // namespace quire
