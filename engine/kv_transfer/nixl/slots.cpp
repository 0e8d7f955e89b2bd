#include "engine/kv_transfer/nixl/slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "engine/kv_transfer/blocks/shape.h"

namespace quire {
namespace {

constexpr std::int64_t kSumBytes = sizeof(std::uint64_t);
constexpr std::int64_t kLeastBlocks = 2;  // vLLM's null block, and one to lend

}  // namespace

NixlSlots::NixlSlots(std::span<std::byte> memory, const KvGeometry& geometry,
                     const BlockRegions& regions, int block_size)
    : memory_(memory), block_size_(block_size) {
  const BlockShape shape = block_shape(geometry, regions, block_size);
  ratio_ = shape.ratio;
  const std::int64_t per_block = (shape.kernel_bytes() + kSumBytes) * ratio_;
  num_kernel_blocks_ = static_cast<std::int64_t>(memory.size()) / per_block * ratio_;
  if (num_blocks() < kLeastBlocks)
    throw Failure(Error{ErrorCode::invalid_argument,
                        fmt::format("KvTransferConfig::buffer_bytes leaves {} bytes for blocks "
                                    "that others write; this model needs at least {}",
                                    memory.size(), kLeastBlocks * per_block),
                        "KvTransferConfig::buffer_bytes"});
  sums_ = {reinterpret_cast<std::uint64_t*>(memory.data()),
           static_cast<std::size_t>(num_kernel_blocks_)};
  std::size_t at = sums_.size_bytes();
  for (const std::int64_t one : shape.region_bytes) {
    const auto size = static_cast<std::size_t>(num_kernel_blocks_ * one);
    regions_.push_back({memory.subspan(at, size), one});
    at += size;
  }
  for (std::int64_t id = 1; id < num_blocks(); ++id) free_.push_back(id);
}

std::optional<NixlSlots::Blocks> NixlSlots::take(std::span<const int> counts) {
  if (std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) > num_free())
    return std::nullopt;
  Blocks blocks;
  for (const int count : counts) {
    blocks.emplace_back(free_.begin(), free_.begin() + count);
    free_.erase(free_.begin(), free_.begin() + count);
  }
  return blocks;
}

void NixlSlots::give_back(const Blocks& blocks) {
  for (const auto& group : blocks) free_.insert(free_.end(), group.begin(), group.end());
}

std::span<const std::byte> NixlSlots::block(std::size_t region, std::int64_t id) const {
  return state(region, id, regions_[region].block_bytes);
}

std::span<const std::byte> NixlSlots::state(std::size_t region, std::int64_t id,
                                            std::int64_t bytes) const {
  const Region& one = regions_[region];
  return one.bytes.subspan(static_cast<std::size_t>(id * one.block_bytes),
                           static_cast<std::size_t>(bytes));
}

}  // namespace quire
