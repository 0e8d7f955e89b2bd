#include "engine/kv_transfer/peers/failed_asks.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire {

bool FailedAsks::knows(const std::string& peer, std::string_view engine, int ranks) const {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return false;
  const Entry& entry = found->second;
  return std::ranges::find(entry.engines, engine) != entry.engines.end() &&
         !entry.misfits.contains(ranks);
}

std::optional<KvLost> FailedAsks::refusal(const std::string& peer, std::string_view engine,
                                          Clock::time_point now, int ranks) const {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return std::nullopt;
  const Entry& entry = found->second;
  const bool has_one = entry.full_again - now <= (kMost - 1) * kOneComesAgain;
  if (has_one || knows(peer, engine, ranks)) return std::nullopt;
  return KvLost(
      entry.last.reason(),
      fmt::format("{} was asked in vain {} times a moment ago and is left alone; at last: {}", peer,
                  kMost, entry.last.what()));
}

void FailedAsks::was_in_vain(const std::string& peer, const KvLost& because,
                             std::vector<std::string> engines, Clock::time_point now, int ranks) {
  std::erase_if(peers_, [&](const auto& one) { return one.second.full_again <= now; });
  const auto [found, is_new] = peers_.try_emplace(peer, Entry{now, because});
  Entry& entry = found->second;
  entry.full_again = std::min(entry.full_again + kOneComesAgain, now + kMost * kOneComesAgain);
  entry.last = because;
  const bool is_other = because.reason() == KvLossReason::expired;
  if (entry.engines != engines && !engines.empty()) {
    entry.engines = std::move(engines);
    entry.misfits.clear();
  }
  if (!is_other) entry.misfits.insert(ranks);
}

}  // namespace quire
