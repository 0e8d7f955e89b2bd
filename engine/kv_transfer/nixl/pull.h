#pragma once
// One fetch over NIXL: which bytes of which rank's blocks are read, where they land, and how they
// become the content that was asked for. Blocks land in a buffer of this server's own. Pure.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/kv_nixl/block_ids.h"
#include "engine/kv_nixl/nixl_agent.h"
#include "engine/kv_nixl/source_ranks.h"
#include "engine/kv_transfer/nixl/peer.h"

namespace quire {

class NixlPull {
 public:
  // The source names blocks by group; ranks are all of its. Throws KvLost where they do not hold
  // what is wanted.
  using Ranks = std::shared_ptr<const std::vector<NixlPeerRank>>;
  NixlPull(const NixlSelf& self, Ranks ranks, const KvFetch& fetch);

  const KvContent& content() const { return content_; }
  std::int64_t landing_bytes() const { return landing_bytes_; }
  // Copies from one rank, contiguous ones joined. Empty: nothing of it is needed.
  std::vector<NixlCopy> copies(int rank, std::span<std::byte> landing) const;
  // Compares the sums, where the other side has any, and fills the content. Throws KvLost.
  void finish(std::span<const std::byte> landing, std::span<std::byte> bytes) const;

 private:
  // A layer's blocks in the landing, one behind the other, with all heads; or its state.
  struct Landing {
    std::size_t layer = 0;
    int first_token = 0;
    std::int64_t at = 0;
    std::int64_t block_bytes = 0;
    PairedBlocks blocks = {};  // here counted from 0
    SourceRanks sources = {};
    int parts = 1;  // see attention_copies
  };
  struct Sum {
    std::size_t group = 0;
    std::int64_t block = 0, landing = 0;
  };
  PairedBlocks paired_blocks(std::size_t layer, const KvStrip& strip, const KvFetch& fetch) const;
  void check_ids(std::size_t layer, std::span<const std::int64_t> ids) const;
  void add_layer(std::size_t layer, const KvFetch& fetch);
  void add_state(std::size_t layer, const KvFetch& fetch);
  std::vector<BlockCopy> parts_of(const Landing& layer, int rank, std::uint64_t block_len) const;
  void add_sums();
  void check_sums(std::span<const std::byte> landing) const;
  // Of a layer the blocks that have landed, in their order.
  template <class Visit>
  void for_each_block(const Landing& layer, std::span<const std::byte> landing, Visit visit) const;
  // The kernel block whose sum is that of a block; a state's is its first.
  std::int64_t sum_of(const Landing& layer, std::int64_t block) const;
  bool is_state(const Landing& layer) const {
    return self_.geometry.layers[layer.layer].is_state();
  }
  std::size_t group_of(const Landing& layer) const {
    return static_cast<std::size_t>(self_.regions.group_of_layer[layer.layer]);
  }

  const NixlSelf& self_;
  const Ranks ranks_;
  const std::string key_;
  const std::uint64_t prompt_hash_;
  KvContent content_;
  std::vector<Landing> layers_;
  std::vector<Sum> sums_;
  std::int64_t landing_bytes_ = 0;
};

}  // namespace quire
