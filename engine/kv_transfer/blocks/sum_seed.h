#pragma once
// What sums of blocks are seeded with: whose the block is. So a block that was used again for
// another prefill does not have the sum that is waited for. Pure.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace quire {

// The seed of a block's sum over all layers of its group: it says whose bytes they are.
std::uint64_t block_sum_seed(std::string_view key);

// Of what is read by numbers that a third party passes on: the block's place is of it.
struct BlockIdentity {
  std::uint64_t prompt_hash = 0;
  std::size_t group = 0;
  int first_token = 0;
};
std::uint64_t block_sum_seed(std::string_view key, const BlockIdentity& block);

}  // namespace quire
