#pragma once
// BlockPages of a divided model: the pages of one rank behind those of the other, out of the caches
// of all. Engine thread only.

#include <vector>

#include "engine/kv_offload/block_pages.h"
#include "engine/kv_transfer/pages/other_ranks.h"

namespace quire {

// Another rank's part of what rank 0 asks for: a group and a block.
class RankBlocks {
 public:
  RankBlocks(Device& device, int rank, std::span<const LayerCache> layers)
      : pages_(device, layers), rank_(static_cast<std::size_t>(rank)) {}

  void read(std::span<const std::int64_t> words, std::span<std::byte> out);
  void write(std::span<const std::int64_t> words, std::span<const std::byte> bytes);

 private:
  BlockPages pages_;
  const std::size_t rank_;
  std::vector<std::byte> own_bytes_;  // a device reads them later
};

class DividedBlockPages final : public BlockPages {
 public:
  // The others outlive this.
  DividedBlockPages(Device& device, std::span<const LayerCache> layers, OtherRanks& others)
      : BlockPages(device, layers), others_(others) {}

  std::size_t bytes(int group) const override;
  void read(int group, BlockId block, std::byte* out) override;
  void write(int group, BlockId block, const std::byte* bytes) override;

 private:
  OtherRanks& others_;
};

}  // namespace quire
