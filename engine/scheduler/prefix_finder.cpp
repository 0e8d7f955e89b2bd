#include "engine/scheduler/prefix_finder.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "backend/ops.h"

namespace quire {
namespace {

bool is_whole(const KvCacheManager& kv, int group) {
  return keeps_all_tokens(kv.config().groups[static_cast<std::size_t>(group)].spec.kind);
}
int block_size_of(const KvCacheManager& kv, int group) {
  return kv.config().groups[static_cast<std::size_t>(group)].spec.block_size;
}

}  // namespace

int PrefixFinder::tokens_in_common(const KvCacheManager& kv, const Request& a,
                                   const Request& b) const {
  int tokens = std::numeric_limits<int>::max();
  for (int group = 0; group < kv.num_groups(); ++group) {
    if (!is_whole(kv, group)) continue;
    const auto of_a = kv.table(a, group), of_b = kv.table(b, group);
    std::size_t low = 0, high = std::min(of_a.size(), of_b.size());  // shared below low
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (of_a[middle] == of_b[middle]) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    tokens = std::min(tokens, static_cast<int>(low) * block_size_of(kv, group));
  }
  return tokens;
}

void PrefixFinder::begin_lives(const BatchPlan& plan) {
  for (const BatchRow& row : plan.rows) {
    const auto slot = static_cast<std::size_t>(row.slot);
    if (slot >= lives_.size()) {
      lives_.resize(slot + 1);
      memories_.resize((slot + 1) * kMemories);
    }
    if (row.is_new) ++lives_[slot];
  }
}

void PrefixFinder::compare(const KvCacheManager& kv, const BatchPlan& plan, std::int32_t leader,
                           int memory, std::span<Candidate> rows) {
  const BatchRow& first = plan.rows[static_cast<std::size_t>(leader)];
  for (Candidate& candidate : rows) {
    const BatchRow& row = plan.rows[static_cast<std::size_t>(candidate.row)];
    const int computed = std::min(first.num_computed, row.num_computed);
    const auto slot = static_cast<std::size_t>(row.slot);
    Memory& known = memories_[slot * kMemories + static_cast<std::size_t>(memory)];
    const std::uint32_t life = lives_[static_cast<std::size_t>(first.slot)];
    if (candidate.row == leader) {
      candidate.shared = computed;
    } else {
      if (known.slot != first.slot || known.life != life || known.own_life != lives_[slot])
        known = {first.slot, life, lives_[slot],
                 tokens_in_common(kv, *first.request, *row.request)};
      candidate.shared = std::min(computed, known.tokens);
    }
    candidate.shared -= candidate.shared % kSharedKeys;
  }
}

// Of the rows those of a group leave, and are the plan's; false: none is worth it.
bool PrefixFinder::take_best(const KvCacheManager& kv, BatchPlan& plan,
                             std::vector<Candidate>& rows, int round) {
  if (static_cast<int>(rows.size()) < kLeastRows) return false;
  Choice best;
  const std::int32_t leaders[] = {rows.front().row, rows.back().row};
  for (int i = 0; i < 2; ++i) {
    compare(kv, plan, leaders[i], (2 * round + i) % kMemories, rows);
    lengths_.clear();
    for (const Candidate& row : rows) lengths_.push_back(row.shared);
    std::ranges::sort(lengths_, std::greater());
    for (std::size_t n = kLeastRows; n <= lengths_.size(); ++n) {
      if (lengths_[n - 1] < kLeastTokens) break;
      const auto gain = static_cast<std::int64_t>(n - kRowsWorth) * lengths_[n - 1];
      if (gain > best.gain) best = {gain, leaders[i], lengths_[n - 1]};
    }
  }
  if (best.gain == 0) return false;
  if (best.leader != leaders[1]) compare(kv, plan, best.leader, 2 * round % kMemories, rows);
  SharedPrefix prefix{.num_tokens = best.tokens,
                      .first_row = static_cast<std::int32_t>(plan.shared_rows.size())};
  std::erase_if(rows, [&](const Candidate& row) {
    const bool taken = row.shared >= best.tokens;
    if (taken) plan.shared_rows.push_back(row.row);
    return taken;
  });
  prefix.num_rows = static_cast<std::int32_t>(plan.shared_rows.size()) - prefix.first_row;
  plan.shared_prefixes.push_back(prefix);
  return true;
}

void PrefixFinder::find(const KvCacheManager& kv, int most_tokens, BatchPlan& plan) {
  begin_lives(plan);
  int group = 0;
  while (group < kv.num_groups() && !is_whole(kv, group)) ++group;
  if (group == kv.num_groups()) return;
  const auto last = static_cast<std::size_t>((kLeastTokens - 1) / block_size_of(kv, group));
  candidates_.clear();
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const BatchRow& row = plan.rows[r];
    if (row.num_tokens > most_tokens || row.num_computed < kLeastTokens) continue;
    const BlockId block = kv.table(*row.request, group)[last];
    if (kv.pool().ref_count(block) >= kLeastRows)
      candidates_.push_back({block, static_cast<std::int32_t>(r), 0});
  }
  std::ranges::sort(candidates_, {}, [](const Candidate& c) { return std::pair(c.block, c.row); });
  for (std::size_t begin = 0, end = 0; begin < candidates_.size(); begin = end) {
    while (end < candidates_.size() && candidates_[end].block == candidates_[begin].block) ++end;
    rows_.assign(candidates_.begin() + static_cast<std::ptrdiff_t>(begin),
                 candidates_.begin() + static_cast<std::ptrdiff_t>(end));
    for (int round = 0; plan.shared_prefixes.size() < kMostPrefixes; ++round)
      if (!take_best(kv, plan, rows_, round)) break;
  }
}

}  // namespace quire
