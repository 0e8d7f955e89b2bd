#include "engine/kv_nixl/block_ids.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire {
namespace {

Error refuse(std::string_view code, std::size_t local, std::size_t remote) {
  return {ErrorCode::invalid_argument,
          fmt::format("{}: {} blocks here and {} there", code, local, remote), std::string(code)};
}

std::vector<std::int64_t> list(std::span<const std::int64_t> ids) {
  return {ids.begin(), ids.end()};
}

}  // namespace

std::vector<std::int64_t> kernel_blocks(std::span<const std::int64_t> ids, int ratio,
                                        bool is_state) {
  if (is_state) return list(ids);
  std::vector<std::int64_t> blocks;
  blocks.reserve(ids.size() * static_cast<std::size_t>(ratio));
  for (const std::int64_t id : ids)
    for (int i = 0; i < ratio; ++i) blocks.push_back(id * ratio + i);
  return blocks;
}

Result<PairedBlocks> pair_blocks(std::span<const std::int64_t> local,
                                 std::span<const std::int64_t> remote,
                                 const BlockAlignment& alignment) {
  const auto local_size = static_cast<std::int64_t>(local.size());
  const auto remote_size = static_cast<std::int64_t>(remote.size());
  std::int64_t first = std::min(alignment.local_first, remote_size);
  if (alignment.tail) {
    first = remote_size - local_size;
    if (first < 0) return refuse(kTooManyLocal, local.size(), remote.size());
  } else if (std::abs(alignment.local_first + local_size - remote_size) >=
             alignment.largest_ratio) {
    return refuse(kLengthsDiffer, local.size(), remote.size());
  }
  std::int64_t count = std::min(local_size, remote_size - first);
  if (alignment.end)
    count = std::clamp<std::int64_t>(*alignment.end - alignment.local_first, 0, count);
  return PairedBlocks{
      list(local.first(static_cast<std::size_t>(count))),
      list(remote.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)))};
}

Result<PairedBlocks> pair_states(std::span<const std::int64_t> local,
                                 std::span<const std::int64_t> remote) {
  if (local.size() != remote.size()) return refuse(kLengthsDiffer, local.size(), remote.size());
  return PairedBlocks{list(local), list(remote)};
}

std::vector<RegionCopy> region_copies(const PairedBlocks& blocks, RegionPlace local,
                                      RegionPlace remote, std::span<const BlockCopy> parts) {
  const auto at = [](RegionPlace place, std::int64_t block, std::int64_t offset) {
    return place.address + static_cast<std::uint64_t>(block) * place.stride +
           static_cast<std::uint64_t>(offset);
  };
  std::vector<RegionCopy> copies;
  for (const BlockCopy& part : parts)
    for (std::size_t i = 0; i < blocks.local.size(); ++i)
      copies.push_back({at(remote, blocks.remote[i], part.remote),
                        at(local, blocks.local[i], part.local), part.bytes});
  return copies;
}

}  // namespace quire
