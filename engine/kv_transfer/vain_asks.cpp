#include "engine/kv_transfer/vain_asks.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire {

std::optional<KvLost> VainAsks::refusal(const std::string& peer, std::string_view engine,
                                        Clock::time_point now) const {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return std::nullopt;
  const Entry& entry = found->second;
  const bool has_one = entry.full_again - now <= (kMost - 1) * kOneComesAgain;
  const bool is_there = entry.last.reason() == KvLossReason::expired &&
                        std::ranges::find(entry.engines, engine) != entry.engines.end();
  if (has_one || is_there) return std::nullopt;
  return KvLost(
      entry.last.reason(),
      fmt::format("{} was asked in vain {} times a moment ago and is left alone; at last: {}", peer,
                  kMost, entry.last.what()));
}

void VainAsks::was_in_vain(const std::string& peer, const KvLost& because,
                           std::vector<std::string> engines, Clock::time_point now) {
  std::erase_if(peers_, [&](const auto& one) { return one.second.full_again <= now; });
  const auto [found, is_new] = peers_.try_emplace(peer, Entry{now, because});
  found->second.full_again += kOneComesAgain;
  found->second.last = because;
  found->second.engines = std::move(engines);
}

}  // namespace quire
