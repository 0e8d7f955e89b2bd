#pragma once
// Which blocks of this server's a pushed prefill fills, and how they become the rows that were
// asked for. Pure.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/kv_transfer/nixl/peer.h"
#include "engine/kv_transfer/nixl/slots.h"

namespace quire {

class NixlPushLanding {
 public:
  // `self` outlives it. The block size is the kernel's.
  NixlPushLanding(const NixlSelf& self, int block_size, int num_tokens, int from);

  const KvContent& content() const { return content_; }
  // Blocks that are named and each group needs: the last of the prompt. A state has one.
  std::span<const int> counts() const { return counts_; }
  int num_blocks() const;

  // As another Quire server made them: over the layers of a group, seeded with the registration's
  // name. Throws KvLost.
  void check_sums(const NixlSlots& slots, const NixlSlots::Blocks& blocks,
                  std::string_view request) const;
  void fill(const NixlSlots& slots, const NixlSlots::Blocks& blocks,
            std::span<std::byte> bytes) const;

 private:
  // The kernel's blocks of a group; of a state its first.
  std::vector<std::int64_t> blocks_of(std::size_t group, std::span<const std::int64_t> ids) const;
  // The layer's, or its state.
  std::span<const std::byte> bytes_at(const NixlSlots& slots, std::size_t layer,
                                      std::int64_t id) const;

  const NixlSelf& self_;
  const int block_size_, ratio_;
  KvContent content_;
  std::vector<int> first_block_, counts_;  // by group
};

}  // namespace quire
