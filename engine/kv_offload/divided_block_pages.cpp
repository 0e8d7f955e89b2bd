#include "engine/kv_offload/divided_block_pages.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace quire {

void RankBlocks::read(std::span<const std::int64_t> words, std::span<std::byte> out) {
  const int group = static_cast<int>(words[0]);
  own_bytes_.resize(pages_.bytes(group));
  pages_.read(group, static_cast<BlockId>(words[1]), own_bytes_.data());
  pages_.device().synchronize(pages_.device().stream());
  std::ranges::copy(own_bytes_,
                    out.begin() + static_cast<std::ptrdiff_t>(rank_ * own_bytes_.size()));
}

void RankBlocks::write(std::span<const std::int64_t> words, std::span<const std::byte> bytes) {
  const int group = static_cast<int>(words[0]);
  const auto own = bytes.subspan(rank_ * pages_.bytes(group), pages_.bytes(group));
  own_bytes_.assign(own.begin(), own.end());
  pages_.write(group, static_cast<BlockId>(words[1]), own_bytes_.data());
  pages_.device().synchronize(pages_.device().stream());
}

std::size_t DividedBlockPages::bytes(int group) const {
  return BlockPages::bytes(group) * static_cast<std::size_t>(others_.size());
}

void DividedBlockPages::read(int group, BlockId block, std::byte* out) {
  const auto all =
      others_.read(RankBytes::block, std::array<std::int64_t, 2>{group, block}, bytes(group));
  const std::size_t own = BlockPages::bytes(group);
  BlockPages::read(group, block, out);
  std::memcpy(out + own, all.data() + own, all.size() - own);
}

void DividedBlockPages::write(int group, BlockId block, const std::byte* bytes) {
  others_.write(RankBytes::block, std::array<std::int64_t, 2>{group, block},
                {bytes, this->bytes(group)});
  BlockPages::write(group, block, bytes);
}

}  // namespace quire
