#include "engine/client/prefix_memory.h"

#include <functional>

namespace quire {

namespace {

// David Stafford's variant 13 of MurmurHash3's finalizer.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Names a prompt's whole blocks one after the other, each with all that stand before it.
class BlockNames {
 public:
  BlockNames(std::span<const TokenId> prompt, std::string_view salt, int block_size)
      : left_(prompt),
        block_size_(static_cast<std::size_t>(block_size)),
        name_(mixed(std::hash<std::string_view>()(salt))) {}

  // 0: no whole block is left.
  std::uint64_t next() {
    if (block_size_ == 0 || left_.size() < block_size_) return 0;
    for (const TokenId token : left_.first(block_size_)) {
      name_ = mixed(name_ + static_cast<std::uint32_t>(token) + 1);
    }
    left_ = left_.subspan(block_size_);
    return name_ | 1;
  }

 private:
  std::span<const TokenId> left_;
  std::size_t block_size_;
  std::uint64_t name_;
};

}  // namespace

std::optional<PrefixMemory::Match> PrefixMemory::find(std::span<const TokenId> prompt,
                                                      std::string_view salt, int block_size) const {
  const std::lock_guard lock(mutex_);
  if (places_.empty()) return std::nullopt;
  BlockNames names(prompt, salt, block_size);
  std::optional<Match> match;
  std::size_t tokens = 0;
  while (const std::uint64_t name = names.next()) {
    const Place& place = places_[(name >> 1) % kPlaces];
    if (place.name != name) break;
    tokens += static_cast<std::size_t>(block_size);
    match = Match{place.holder, tokens};
  }
  return match;
}

void PrefixMemory::remember(std::span<const TokenId> prompt, std::string_view salt, int block_size,
                            Holder holder) {
  const std::lock_guard lock(mutex_);
  places_.resize(kPlaces);
  BlockNames names(prompt, salt, block_size);
  while (const std::uint64_t name = names.next()) {
    places_[(name >> 1) % kPlaces] = {name, holder};
  }
}

void PrefixMemory::forget() {
  const std::lock_guard lock(mutex_);
  places_.clear();
}

}  // namespace quire
