#include "engine/kv_transfer/pages/cache_pages.h"

#include <algorithm>
#include <cstddef>

namespace quire {

// Rows that lie side by side in the cache and in the content.
struct CachePages::Run {
  std::byte* page = nullptr;  // null: there is no block
  std::int64_t offset = 0;    // in the content
  std::int64_t bytes = 0;
};

// visit(strip, run); the end of the walk where it is false.
template <class Visit>
bool CachePages::for_each_run(const KvContent& content, const BlockTable& blocks,
                              Visit visit) const {
  for (const KvStrip& strip : content.strips) {
    const LayerCache& cache = layers_[static_cast<std::size_t>(strip.layer)];
    const auto& table = blocks[static_cast<std::size_t>(cache.group)];
    const bool is_state = cache.spec.kind == KvKind::mamba;
    const int kernel = is_state ? 1 : cache.kernel_block_size;
    const int ratio = is_state ? 1 : cache.block_size / cache.kernel_block_size;
    const std::size_t part_bytes = cache.page_bytes / static_cast<std::size_t>(ratio);
    for (int row = 0; row < strip.rows;) {
      const int token = strip.first + row;
      const auto index = static_cast<std::size_t>(token / cache.block_size);
      const int in_block = is_state ? 0 : token % cache.block_size;
      const int count = is_state ? 1 : std::min(strip.rows - row, kernel - in_block % kernel);
      Run run{.page = nullptr,
              .offset = strip.offset + row * strip.row_bytes,
              .bytes = count * strip.row_bytes};
      const BlockId block = index < table.size() ? table[index] : 0;
      if (block != 0) {
        const std::int64_t in_part =
            (std::int64_t{strip.plane} * kernel + in_block % kernel) * strip.row_bytes;
        run.page = static_cast<std::byte*>(cache.base) +
                   static_cast<std::size_t>(block) * cache.page_bytes +
                   static_cast<std::size_t>(in_block / kernel) * part_bytes + in_part;
      }
      if (!visit(strip, run)) return false;
      row += count;
    }
  }
  return true;
}

bool CachePages::has_all(const KvContent& content, const BlockTable& blocks) const {
  return for_each_run(content, blocks,
                      [](const KvStrip&, const Run& run) { return run.page != nullptr; });
}

bool CachePages::read(const KvContent& content, const BlockTable& blocks,
                      std::span<std::byte> out) {
  if (!has_all(content, blocks)) return false;
  return for_each_run(content, blocks, [&](const KvStrip&, const Run& run) {
    device_.copy(out.data() + run.offset, run.page, static_cast<std::size_t>(run.bytes),
                 device_.stream());
    return true;
  });
}

bool CachePages::write(const KvContent& content, const BlockTable& blocks,
                       std::span<const std::byte> bytes) {
  return for_each_run(content, blocks, [&](const KvStrip& strip, const Run& run) {
    if (run.page != nullptr)
      device_.copy(run.page, bytes.data() + run.offset, static_cast<std::size_t>(run.bytes),
                   device_.stream());
    const bool is_state = layers_[static_cast<std::size_t>(strip.layer)].spec.kind == KvKind::mamba;
    return run.page != nullptr || !is_state;
  });
}

std::vector<BlockId> CachePages::partly_filled(const KvContent& content, const BlockTable& blocks,
                                               int from) const {
  std::vector<BlockId> partly;
  for (const KvStrip& strip : content.strips) {
    const LayerCache& cache = layers_[static_cast<std::size_t>(strip.layer)];
    const bool begins_within = strip.first > from && strip.first % cache.block_size != 0;
    if (cache.spec.kind == KvKind::mamba || !begins_within) continue;
    const auto index = static_cast<std::size_t>(strip.first / cache.block_size);
    const auto& table = blocks[static_cast<std::size_t>(cache.group)];
    if (index >= table.size() || table[index] == 0) continue;
    if (std::ranges::find(partly, table[index]) == partly.end()) partly.push_back(table[index]);
  }
  return partly;
}

int CachePages::block_size(std::size_t group) const {
  const auto layer = std::ranges::find(layers_, static_cast<int>(group), &LayerCache::group);
  return layer == layers_.end() ? 1 : layer->block_size;
}

void CachePages::settle() { device_.synchronize(device_.stream()); }

}  // namespace quire
