#pragma once
// CachePages of a divided model: contents are those of the whole one, of which each rank copies
// what it has. Engine thread only.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/kv_transfer/content/rank_rows.h"
#include "engine/kv_transfer/pages/cache_pages.h"
#include "engine/kv_transfer/pages/other_ranks.h"

namespace quire {

// One rank's part of what is read and written.
class RankPages {
 public:
  // One cache and one row per layer of the geometry.
  RankPages(Device& device, std::vector<LayerCache> layers, std::vector<RankRow> rows);

  // As CachePages'; done when they return.
  bool read(const KvContent& content, const BlockTable& blocks, std::span<std::byte> out);
  bool write(const KvContent& content, const BlockTable& blocks, std::span<const std::byte> bytes);

  // The same as rank 0 asks for it.
  void read(std::span<const std::int64_t> words, std::span<std::byte> out);
  void write(std::span<const std::int64_t> words, std::span<const std::byte> bytes);

  const CachePages& pages() const { return pages_; }

 private:
  KvContent own(const KvContent& content, bool reads) const;

  CachePages pages_;
  const std::vector<RankRow> rows_;
  std::vector<std::byte> own_bytes_;
};

// Rank 0's, for all.
class DividedPages final : public CachePages {
 public:
  // `rows` are rank 0's. The others outlive this.
  DividedPages(Device& device, const std::vector<LayerCache>& layers, std::vector<RankRow> rows,
               OtherRanks& others);

  bool read(const KvContent& content, const BlockTable& blocks, std::span<std::byte> out) override;
  bool write(const KvContent& content, const BlockTable& blocks,
             std::span<const std::byte> bytes) override;

 private:
  RankPages own_;
  OtherRanks& others_;
};

}  // namespace quire
