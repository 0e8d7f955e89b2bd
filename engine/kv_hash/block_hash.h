#pragma once
// What a full block of tokens is called: a chained hash of everything up to its end, and of what
// else decides its content (adapter, cache salt, images, where positions begin). Two of them:
// BlockHasher's, fast and keyed, for this process; EventHasher's (event_hash.h), which other
// processes can repeat.

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "engine/request/request.h"

namespace quire {

// An image that overlaps a block: its name, and where it starts as seen from the block's start.
struct ItemKey {
  std::string identifier;
  int offset = 0;
  friend bool operator==(const ItemKey&, const ItemKey&) = default;
};
using ExtraKey = std::variant<std::string, ItemKey>;

struct ExtraKeyInputs {
  std::string_view lora_name;  // empty: none
  std::string_view cache_salt;
  std::span<const PromptItem> items;  // ascending by offset
  int position_offset = 0;
};
ExtraKeyInputs extra_key_inputs(const Request& request);

// What besides tokens [start, end) decides a block: adapter, images, and in the first block the
// salt and the offset of the request's positions. next_item is where to go on looking: items before
// it end before this block.
std::vector<ExtraKey> extra_keys(const ExtraKeyInputs& inputs, int start, int end, int& next_item);

// SipHash-1-3 with 128 bits out: nobody without the key can prepare two prefixes that collide, and
// hits are compared token by token anyway.
class BlockHasher {
 public:
  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
  };
  static Key random_key();

  BlockHasher(int block_size, Key key) : block_size_(block_size), key_(key) {}

  int block_size() const { return block_size_; }
  // Appends the hashes of full blocks until num_tokens are covered.
  void extend(Request& request, int num_tokens) const;

 private:
  BlockHash root(const Request& request) const;
  BlockHash block(const BlockHash& parent, std::span<const TokenId> tokens,
                  const std::vector<ExtraKey>& extras) const;

  int block_size_;  // tokens
  Key key_;
};

}  // namespace quire
