#include "tests/engine/scheduler/invariants.h"

#include <set>
#include <stdexcept>
#include <string>

namespace quire::test {
namespace {

void demand(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// Every holder counted once; no request holds a block twice, no two groups share one.
void check_references(const KvCacheManager& kv, const std::vector<const Request*>& requests) {
  const BlockPool& pool = kv.pool();
  std::vector<int> holders(static_cast<std::size_t>(pool.num_usable()) + 1);
  std::vector<int> group_of(holders.size(), -1);
  for (const Request* request : requests) {
    std::set<BlockId> own;
    for (int group = 0; group < kv.num_groups(); ++group) {
      for (const BlockId id : kv.table(*request, group)) {
        if (id == kNullBlock) continue;
        demand(own.insert(id).second, "a request holds block " + std::to_string(id) + " twice");
        demand(group_of[id] < 0 || group_of[id] == group,
               "block " + std::to_string(id) + " is in two groups");
        group_of[id] = group;
        ++holders[id];
      }
    }
  }
  for (BlockId id = 1; id <= pool.num_usable(); ++id) {
    const std::string block = "block " + std::to_string(id);
    demand(pool.ref_count(id) == holders[id], block + " counts " +
                                                  std::to_string(pool.ref_count(id)) +
                                                  " holders of " + std::to_string(holders[id]));
    demand(pool.is_free(id) == (holders[id] == 0), block + " is free and held, or neither");
    if (kv.config().enable_caching && pool.index().holds(id) && group_of[id] >= 0) {
      demand(pool.index().group_of(id) == group_of[id], block + " is cached for another group");
    }
  }
}

void check_free_list(const BlockPool& pool) {
  const FreeList& list = pool.free_list();
  int count = 0;
  for (BlockId id = list.front(); id != FreeList::kNoBlock; id = list.after(id)) {
    demand(id != kNullBlock, "the null block is free");
    demand(++count <= list.size(), "the free list is longer than it says");
  }
  demand(count == list.size(), "the free list is shorter than it says");
}

// A cached block of a request is found under the request's own hash, with its own tokens.
void check_hashes(const KvCacheManager& kv, const Request& request) {
  const PrefixIndex& index = kv.pool().index();
  for (int group = 0; group < kv.num_groups(); ++group) {
    const int block_size = kv.config().groups[group].spec.block_size;
    const int per_block = block_size / kv.config().hash_block_size;
    const auto table = kv.table(request, group);
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (table[i] == kNullBlock || !index.holds(table[i])) continue;
      const std::size_t last = (i + 1) * per_block - 1;
      demand(last < request.block_hashes.size(), "a block is cached before its hash is known");
      const BlockHash& hash = request.block_hashes[last];
      demand(index.hash_of(table[i]) == hash, "a cached block has another hash");
      const auto tokens = request.tokens().subspan(i * block_size, block_size);
      demand(index.find(group, hash, tokens) != PrefixIndex::kNoBlock,
             "a cached block is not found");
    }
  }
}

}  // namespace

void check_invariants(const Scheduler& scheduler, const KvCacheManager& kv,
                      const std::vector<RequestId>& ids) {
  std::vector<const Request*> requests;
  for (const RequestId id : ids) {
    if (const Request* request = scheduler.find(id)) requests.push_back(request);
  }
  check_references(kv, requests);
  check_free_list(kv.pool());
  std::set<int> slots;
  for (const Request* request : requests) {
    if (kv.config().enable_caching) check_hashes(kv, *request);
    const bool runs = request->state == RequestState::running;
    demand(runs == (request->slot >= 0), "a slot without running, or the other way round");
    if (runs) demand(slots.insert(request->slot).second, "two requests have one slot");
    demand(request->num_placeholders >= 0 && request->num_computed >= 0, "a count is negative");
    demand(request->queue.owner == nullptr || (!runs && request->state != RequestState::finished),
           "a request is in a queue and is not waiting");
  }
  demand(scheduler.running().size() == slots.size(), "someone runs who is not there");
}

void check_plan(const BatchPlan& plan, const SchedulerOptions& options) {
  int num_tokens = 0;
  std::set<int> slots;
  for (const BatchRow& row : plan.rows) {
    num_tokens += row.num_tokens;
    demand(row.num_tokens > 0, "a row without tokens");
    demand(row.slot >= 0 && row.slot < options.max_num_seqs, "a slot out of range");
    demand(slots.insert(row.slot).second, "a slot twice in a plan");
    demand(
        row.num_computed + row.num_tokens < options.max_model_len + options.num_speculative_tokens,
        "a row beyond the context");
    const std::int64_t most = std::min<std::int64_t>(row.request->max_total_tokens(),
                                                     options.max_model_len);
    demand(options.num_speculative_tokens > 0 || row.num_computed + row.num_tokens < most,
           "a row has slots that admission did not count");
  }
  demand(num_tokens == plan.num_tokens, "the plan's tokens are not its rows'");
  demand(num_tokens <= options.max_num_batched_tokens, "the plan is over its budget");
  demand(static_cast<int>(plan.rows.size()) <= options.max_num_seqs, "the plan has too many rows");
}

void check_chunks(const BatchPlan& plan, const StateSteps& states) {
  int num_within = 0;
  for (const BatchRow& row : plan.rows) {
    const int end = row.num_computed + row.num_tokens;
    const int chunks = row.request->num_tokens() / states.chunk * states.chunk;
    if (row.samples || end >= chunks || end % states.chunk == 0) continue;
    ++num_within;
    demand(row.num_tokens < states.chunk, "a step has whole chunks and ends within one");
  }
  demand(num_within <= 1, "steps end within chunks, though not alone in a small cache");
}

}  // namespace quire::test
