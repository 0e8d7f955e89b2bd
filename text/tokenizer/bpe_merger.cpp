#include "text/tokenizer/bpe_merger.h"

#include <algorithm>
#include <functional>

namespace quire {
namespace {

// Up to here, looking through all ranks for each merge is faster than a queue.
constexpr std::size_t kShortWord = 48;  // units
constexpr std::uint32_t kNoRank = MergeRule{}.rank;
constexpr auto kLater = std::greater<std::uint64_t>();

std::uint64_t queue_entry(std::uint32_t rank, std::int32_t position) {
  return static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(position);
}

}  // namespace

void BpeMerger::merge(std::vector<TokenId>& units, const MergeMap& rules) {
  if (units.size() <= kShortWord) {
    merge_by_search(units, rules);
  } else {
    merge_by_queue(units, rules);
  }
}

void BpeMerger::merge_by_search(std::vector<TokenId>& units, const MergeMap& rules) {
  std::size_t count = units.size();
  const auto rule_behind = [&](std::size_t i) {
    return i + 1 < count ? rules.find(units[i], units[i + 1]) : MergeRule{};
  };
  found_.resize(count);
  for (std::size_t i = 0; i < count; ++i) found_[i] = rule_behind(i);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < count; ++i) {
      if (found_[i].rank < found_[best].rank) best = i;
    }
    if (found_[best].rank == kNoRank) break;
    units[best] = found_[best].id;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      units[i] = units[i + 1];
      found_[i] = found_[i + 1];
    }
    found_[best] = rule_behind(best);
    if (best > 0) found_[best - 1] = rule_behind(best - 1);
  }
  units.resize(count);
}

void BpeMerger::merge_by_queue(std::vector<TokenId>& units, const MergeMap& rules) {
  fill_queue(units, rules);
  while (!queue_.empty()) {
    const std::uint64_t first = queue_.front();
    std::pop_heap(queue_.begin(), queue_.end(), kLater);
    queue_.pop_back();
    const auto left = static_cast<std::int32_t>(first & UINT32_MAX);
    const MergeRule rule = rule_at(left, rules);
    if (rule.rank != first >> 32) continue;  // one of the two has merged since
    merge_at(left, rule.id);
    enqueue(symbols_[static_cast<std::size_t>(left)].previous, rules);
    enqueue(left, rules);
  }
  units.clear();
  for (const Symbol& symbol : symbols_) {
    if (symbol.id >= 0) units.push_back(symbol.id);
  }
}

void BpeMerger::fill_queue(const std::vector<TokenId>& units, const MergeMap& rules) {
  const auto count = static_cast<std::int32_t>(units.size());
  symbols_.clear();
  for (std::int32_t i = 0; i < count; ++i) {
    symbols_.push_back({units[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  queue_.clear();
  for (std::int32_t i = 0; i < count; ++i) {
    const MergeRule rule = rule_at(i, rules);
    if (rule.rank != kNoRank) queue_.push_back(queue_entry(rule.rank, i));
  }
  std::make_heap(queue_.begin(), queue_.end(), kLater);
}

void BpeMerger::enqueue(std::int32_t left, const MergeMap& rules) {
  const MergeRule rule = rule_at(left, rules);
  if (rule.rank == kNoRank) return;
  queue_.push_back(queue_entry(rule.rank, left));
  std::push_heap(queue_.begin(), queue_.end(), kLater);
}

MergeRule BpeMerger::rule_at(std::int32_t left, const MergeMap& rules) const {
  if (left < 0) return {};
  const Symbol& symbol = symbols_[static_cast<std::size_t>(left)];
  if (symbol.id < 0 || symbol.next < 0) return {};
  return rules.find(symbol.id, symbols_[static_cast<std::size_t>(symbol.next)].id);
}

void BpeMerger::merge_at(std::int32_t position, TokenId id) {
  Symbol& left = symbols_[static_cast<std::size_t>(position)];
  Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
  left.id = id;
  left.next = right.next;
  right.id = -1;
  if (left.next >= 0) symbols_[static_cast<std::size_t>(left.next)].previous = position;
}

}  // namespace quire
