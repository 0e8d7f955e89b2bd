#pragma once
// Which engine was given a prompt's beginning last: where its blocks are likely to be cached. What
// it says is a guess about speed, never about answers. Any thread.
//
// Memory is fixed: a block of tokens is one place of a table, which a later block may take. What
// engines forget meanwhile (evictions, resets by others) is not known here and costs one prompt.

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace quire {

class PrefixMemory {
 public:
  // An engine in one of its lives: what a former life had cached is gone.
  struct Holder {
    EngineId engine;
    std::uint32_t life = 0;
    bool operator==(const Holder&) const = default;
  };
  struct Match {
    Holder holder;
    std::size_t tokens = 0;  // of the prompt's beginning
  };

  // The holder of the longest beginning that is remembered, in whole blocks of so many tokens.
  std::optional<Match> find(std::span<const TokenId> prompt, std::string_view salt, int block_size) const;
  void remember(std::span<const TokenId> prompt, std::string_view salt, int block_size, Holder holder);
  void forget();  // all of it

 private:
  struct Place {
    std::uint64_t name = 0;  // of the block and all before it; 0: free
    Holder holder;
  };
  static constexpr std::size_t kPlaces = 1 << 16;  // a MiB, of blocks of 16 a million tokens

  mutable std::mutex mutex_;
  std::vector<Place> places_;  // none before the first prompt
};

}  // namespace quire
