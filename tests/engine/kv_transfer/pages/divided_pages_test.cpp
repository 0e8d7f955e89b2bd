// Caches of ranks beside the cache of the whole model: what is read is the same, and what is
// written arrives in both.

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <numeric>

#include "cpu/cpu_backend.h"
#include "engine/kv_transfer/pages/divided_pages.h"

namespace quire {
namespace {

constexpr int kBlocks = 8, kTokens = 40;

KvSpec attention(int heads) {
  KvSpec spec;
  spec.num_kv_heads = heads;
  spec.head_size = 8;
  spec.dtype = DType::bf16;
  return spec;
}

KvSpec latent() {
  KvSpec spec = attention(1);
  spec.kind = KvKind::mla;
  return spec;
}

// Three rows of 10 columns, and 4 heads of 6 numbers; ranks of two have channels as of a delta net:
// its own queries, keys and values.
KvSpec state(const Shard& shard) {
  KvSpec spec;
  spec.kind = KvKind::mamba;
  if (shard.whole()) {
    spec.states = {{{3, 10}, DType::bf16}, {{4, 2, 3}, DType::f32}};
    return spec;
  }
  const auto channels = shard.rank == 0 ? std::vector<Range>{{0, 1}, {2, 3}, {4, 7}}
                                        : std::vector<Range>{{1, 2}, {3, 4}, {7, 10}};
  spec.states = {{{3, 5}, DType::bf16, channels}, {{2, 2, 3}, DType::f32}};
  return spec;
}

KvSpec own_of(const KvSpec& whole, const Shard& shard) {
  if (whole.kind == KvKind::mamba) return state(shard);
  KvSpec own = whole;
  if (whole.kind == KvKind::full) own.num_kv_heads = std::max(1, whole.num_kv_heads / shard.size);
  return own;
}

struct Cache {
  Cache(Device& device, const std::vector<KvSpec>& specs, int block_size) {
    for (KvSpec spec : specs) {
      spec.block_size = spec.kind == KvKind::mamba ? 64 : block_size;
      LayerCache layer{.num_blocks = kBlocks,
                       .page_bytes = unpadded_page_bytes(spec),
                       .block_size = spec.block_size,
                       .kernel_block_size = spec.kind == KvKind::mamba ? 1 : 8,
                       .spec = spec};
      memory.push_back(device.allocate_zeroed(layer.page_bytes * kBlocks, MemoryPurpose::kv_cache));
      layer.base = memory.back().data();
      layers.push_back(layer);
      const KvLayerGeometry one = layer_geometry({.layer = "layer", .spec = spec}, spec.block_size);
      geometry.layers.push_back(one);
    }
  }
  std::vector<Buffer> memory;
  std::vector<LayerCache> layers;
  KvGeometry geometry;
};

// The others as they are in processes of their own, one after the other.
struct Others final : OtherRanks {
  int size() const override { return static_cast<int>(ranks.size()) + 1; }
  std::span<std::byte> read(RankBytes kind, std::span<const std::int64_t> words,
                            std::size_t num_bytes) override {
    CHECK(kind == RankBytes::rows);
    area.assign(num_bytes, std::byte{0xee});
    for (auto& rank : ranks) rank->read(words, area);
    return area;
  }
  void write(RankBytes, std::span<const std::int64_t> words,
             std::span<const std::byte> bytes) override {
    for (auto& rank : ranks) rank->write(words, bytes);
  }
  std::vector<std::unique_ptr<RankPages>> ranks;
  std::vector<std::byte> area;
};

void compare(const std::vector<KvSpec>& specs, int size, int block_size) {
  const auto device = make_cpu_device();
  Cache whole(*device, specs, 16);
  std::vector<std::unique_ptr<Cache>> caches;
  std::vector<std::vector<RankRow>> rows;
  for (int rank = 0; rank < size; ++rank) {
    const Shard shard{.rank = rank, .size = size};
    std::vector<KvSpec> own;
    auto& of_rank = rows.emplace_back();
    for (const KvSpec& spec : specs) {
      own.push_back(own_of(spec, shard));
      of_rank.push_back(rank_row(spec, own.back(), shard));
    }
    caches.push_back(std::make_unique<Cache>(*device, own, block_size));
  }
  Others others;
  for (int rank = 1; rank < size; ++rank)
    others.ranks.push_back(std::make_unique<RankPages>(*device, caches[rank]->layers, rows[rank]));
  DividedPages divided(*device, caches[0]->layers, rows[0], others);
  CachePages undivided(*device, whole.layers);

  const BlockTable blocks{{5, 2, 7, 1}};
  const KvContent content = kv_content(whole.geometry, kTokens, 3);
  std::vector<std::byte> bytes(static_cast<std::size_t>(content.bytes));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 131 + i / 251);
  REQUIRE(undivided.write(content, blocks, bytes));
  REQUIRE(divided.write(content, blocks, bytes));
  std::vector<std::byte> from_whole(bytes.size()), from_ranks(bytes.size());
  REQUIRE(undivided.read(content, blocks, from_whole));
  REQUIRE(divided.read(content, blocks, from_ranks));
  CHECK(from_whole == bytes);
  CHECK(from_ranks == bytes);

  // A block that is not there any more is seen before anybody copies.
  CHECK_FALSE(divided.read(content, {{5, 0, 7, 1}}, from_ranks));
}

TEST_CASE("Ranks read and write what the whole cache would") {
  for (const int size : {2, 4}) {
    compare({attention(4), attention(2), latent()}, size, 16);
    compare({attention(4), latent(), attention(1)}, size, 32);
  }
  compare({state({.size = 1}), attention(2)}, 2, 16);
}

TEST_CASE("A rank's heads and channels lie where the whole model has them") {
  const RankRow heads = rank_row(attention(2), attention(1), {.rank = 3, .size = 4});
  CHECK(heads.whole_bytes == 32);
  CHECK(heads.parts == std::vector<RankRow::Part>{{16, 0, 16}});
  CHECK(heads.is_copy);
  CHECK_FALSE(rank_row(attention(2), attention(1), {.rank = 2, .size = 4}).is_copy);

  const RankRow states =
      rank_row(state({.size = 1}), state({.rank = 1, .size = 2}), {.rank = 1, .size = 2});
  CHECK(states.whole_bytes == 60 + 96);
  CHECK(states.own_bytes == 30 + 48);
  REQUIRE(states.parts.size() == 10);
  CHECK(states.parts[0] == RankRow::Part{2, 0, 2});
  CHECK(states.parts[2] == RankRow::Part{14, 4, 6});
  CHECK(states.parts[3] == RankRow::Part{22, 10, 2});
  CHECK(states.parts[9] == RankRow::Part{60 + 48, 30, 48});
}

}  // namespace
}  // namespace quire
