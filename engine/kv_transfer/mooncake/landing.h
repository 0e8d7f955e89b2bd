#pragma once
// Where blocks land that a Mooncake peer writes, and how they become what was asked for. Others are
// told addresses, of which none is one of this process: numbers of a region and of a block, never
// the same for two fetches, so that what is written late lands nowhere. Pure.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/kv_mooncake/xfer_messages.h"
#include "engine/kv_transfer/blocks/layout.h"
#include "engine/kv_transfer/blocks/regions.h"
#include "engine/kv_transfer/content/content.h"

namespace quire {

// This server, as far as others have to fit it.
struct MooncakeSelf {
  KvGeometry geometry;
  BlockRegions regions;
  int block_size = 16;  // of the kernels of the servers that prefill, in tokens

  // Kernel blocks in one block that is named: as many as a state fills.
  int ratio() const;
  // Bytes of a block of the kernel; for a state, of a block that is named, which is as large.
  std::int64_t block_bytes(std::size_t layer) const;
};

// By the number in the model, or of a draft model's behind the target's, as vLLM counts them.
std::vector<int> mooncake_layer_numbers(const KvGeometry& geometry);

// Throws KvLost where so many ranks do not divide what this model keeps: each rank of a server that
// says no geometry (vLLM's) writes a part of each block.
void check_mooncake_writers(const MooncakeSelf& self, int num_ranks, bool is_quire);

// What others are told of this server's memory: the same in every fetch.
std::vector<MooncakeRegion> mooncake_regions(const MooncakeSelf& self);
inline constexpr std::uint64_t kMooncakeRegionBytes = std::uint64_t{1} << 50;

// The seed of a sum over blocks.
std::uint64_t mooncake_sum_seed(std::string_view transfer,
                                std::span<const std::uint64_t> first_rows);

class MooncakeLanding {
 public:
  // Its blocks are numbered from `first` on.
  MooncakeLanding(const MooncakeSelf& self, int num_tokens, int from, std::int64_t first);

  const KvContent& content() const { return content_; }
  std::int64_t bytes() const { return bytes_; }
  std::int64_t first_id() const { return first_; }
  std::int64_t num_ids() const { return num_ids_; }
  const std::vector<std::vector<std::int64_t>>& blocks() const { return blocks_; }  // by group

  // Where in the landing; empty: not all of it is in blocks of one layer that are expected.
  std::optional<std::int64_t> place(std::uint64_t address, std::uint64_t bytes) const;
  // Throws KvLost where it comes in more separate parts than several ranks make of the blocks.
  void arrived(std::int64_t at, std::int64_t bytes);
  bool is_complete() const { return arrived_bytes_ == bytes_; }
  std::int64_t arrived_bytes() const { return arrived_bytes_; }

  // Says by layer the first row that the other side had; rows before it are no part of the content.
  // None: it had all that were asked for. Throws KvLost where rows are missing that are needed.
  void has_from(std::span<const std::uint64_t> first_rows);

  // Over where each layer begins, as has_from() was told, and all blocks, layer by layer; seeded
  // with their name.
  std::uint64_t sum(std::string_view transfer, std::span<const std::byte> landing) const;
  // Fills the content, where each of so many ranks has written its own part of every block.
  void fill(std::span<const std::byte> landing, int num_ranks, std::span<std::byte> content) const;

 private:
  // Blocks as they are written and summed: the kernel's, or states.
  struct Layer {
    std::int64_t at = 0, block_bytes = 0;
    int per_id = 1;
  };
  std::size_t num_blocks(std::size_t layer) const {
    return ids_of(layer).size() * static_cast<std::size_t>(layers_[layer].per_id);
  }
  std::span<const std::byte> block(std::span<const std::byte> landing, std::size_t layer,
                                   std::size_t index) const;
  const std::vector<std::int64_t>& ids_of(std::size_t layer) const {
    return blocks_[static_cast<std::size_t>(self_.regions.group_of_layer[layer])];
  }

  const MooncakeSelf& self_;
  const std::int64_t first_;
  const int from_, ratio_;
  KvContent content_;
  std::vector<std::vector<std::int64_t>> blocks_;
  std::vector<Layer> layers_;
  std::int64_t bytes_ = 0, num_ids_ = 0, arrived_bytes_ = 0;
  std::map<std::int64_t, std::int64_t> arrived_;  // first byte → end; no two touch
  std::vector<std::uint64_t> first_rows_;         // by layer; empty: it was not said
};

}  // namespace quire
