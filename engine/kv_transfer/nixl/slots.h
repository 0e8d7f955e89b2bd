#pragma once
// Memory into which other servers write prefills over NIXL: a region of equal blocks per tensor,
// and a sum for each block that other Quire servers write. Only this is named to others, never the
// cache. A block is lent to one request; what somebody may still write into is not given back. The
// blocks that are lent and named are several of the kernel's where a state needs them. Belongs to
// the plane's thread.

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "engine/kv_transfer/blocks/layout.h"
#include "engine/kv_transfer/blocks/regions.h"

namespace quire {

class NixlSlots {
 public:
  using Blocks = std::vector<std::vector<std::int64_t>>;  // by group

  // The memory outlives it. Throws Failure where it is too small.
  NixlSlots(std::span<std::byte> memory, const KvGeometry& geometry, const BlockRegions& regions,
            int block_size);

  // Empty: not so many are free now.
  std::optional<Blocks> take(std::span<const int> counts);
  void give_back(const Blocks& blocks);

  int block_size() const { return block_size_; }  // of the kernel's blocks
  int ratio() const { return ratio_; }            // of them in one that is named
  std::int64_t num_blocks() const { return num_kernel_blocks_ / ratio_; }
  std::int64_t num_kernel_blocks() const { return num_kernel_blocks_; }
  std::int64_t num_free() const { return static_cast<std::int64_t>(free_.size()); }
  std::span<std::byte> memory() const { return memory_; }
  struct Region {
    std::span<std::byte> bytes;
    std::int64_t block_bytes = 0;
  };
  std::span<const Region> regions() const { return regions_; }
  // By the kernel's blocks. A state begins with the first of one that is named, whose sum it has.
  std::span<const std::byte> block(std::size_t region, std::int64_t id) const;
  std::span<const std::byte> state(std::size_t region, std::int64_t id, std::int64_t bytes) const;
  std::uint64_t sum(std::int64_t id) const { return sums_[static_cast<std::size_t>(id)]; }
  std::uint64_t sums_address() const { return reinterpret_cast<std::uint64_t>(sums_.data()); }

 private:
  const std::span<std::byte> memory_;
  const int block_size_;
  int ratio_ = 1;
  std::vector<Region> regions_;
  std::span<std::uint64_t> sums_;
  std::int64_t num_kernel_blocks_ = 0;
  std::deque<std::int64_t> free_;  // the one that was given back first is lent first
};

}  // namespace quire
