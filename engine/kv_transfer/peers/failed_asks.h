#pragma once
// Peers that were asked for engines that they are not. Whoever sends a request chooses the name, so
// each such answer uses up one of a few, which come again with time. A peer that has none left is
// asked for the engines only that it said it is. Pure; belongs to whoever asks.

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/kv_transfer/plane/data_plane.h"

namespace quire {

class FailedAsks {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kMost = 16;  // of a peer, at once
  static constexpr std::chrono::milliseconds kOneComesAgain{500};

  // Why the peer is not asked for that engine of so many ranks; empty: it may be.
  std::optional<KvLost> refusal(const std::string& peer, std::string_view engine,
                                Clock::time_point now, int ranks = 1) const;
  // Has the peer said that it is that engine, and not yet that so many ranks do not fit?
  bool knows(const std::string& peer, std::string_view engine, int ranks = 1) const;
  // Counts an ask in vain. `engines`: those that the peer said it is. A misfit counts for this
  // number of ranks alone, which a request may have wrong.
  void was_in_vain(const std::string& peer, const KvLost& because, std::vector<std::string> engines,
                   Clock::time_point now, int ranks = 1);
  std::size_t num_peers() const { return peers_.size(); }

 private:
  struct Entry {
    Clock::time_point full_again;  // when the peer has all its asks again
    KvLost last;
    std::vector<std::string> engines = {};
    std::unordered_set<int> misfits = {};  // ranks
  };
  std::unordered_map<std::string, Entry> peers_;  // those that lack some
};

}  // namespace quire
