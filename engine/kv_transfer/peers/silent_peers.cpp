#include "engine/kv_transfer/peers/silent_peers.h"

#include <algorithm>

namespace quire {
namespace {

using namespace std::chrono_literals;
constexpr SilentPeers::Clock::duration kFirstRest = 1s, kLongestRest = 16s;

}  // namespace

bool SilentPeers::may_ask(const std::string& peer, Clock::time_point now) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return true;
  Rest& rest = found->second;
  if (now < rest.end) return false;
  rest.end = now + rest.length;
  return true;
}

void SilentPeers::was_silent(const std::string& peer, Clock::time_point asked,
                             Clock::time_point now) {
  const auto [found, is_new] = peers_.try_emplace(peer);
  Rest& rest = found->second;
  if (!is_new && asked < rest.begin)
    return;  // of several that waited side by side the first counts
  rest.length = is_new ? kFirstRest : std::min(rest.length * 2, kLongestRest);
  rest.begin = now;
  rest.end = now + rest.length;
}

}  // namespace quire
