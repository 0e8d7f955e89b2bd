#pragma once
// Keys and values as vLLM's blocks hold them for transfer, head by head: of each head its tokens,
// of each token the key and then the value (latents: token by token). Here they travel plane by
// plane and token by token (content/content.h); these are the copies between the two. Pure.

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/kv_transfer/content/content.h"

namespace quire {

enum class BlockOrder : std::uint8_t {
  packed,  // [head][token][key|value]
  halves,  // [head][token][key], and behind all of them the same of values
};

// Consecutive tokens of one layer, of some of its heads.
struct BlockPlace {
  std::size_t layer = 0;
  int first_token = 0;
  int num_tokens = 0;  // of the block, full or not
  int first_head = 0, num_heads = 0;
  BlockOrder order = BlockOrder::packed;
};

std::int64_t block_bytes(const KvLayerGeometry& layer, int num_tokens, int num_heads);

// Those of the block's tokens that the content has.
void block_to_content(const KvGeometry& geometry, const BlockPlace& place,
                      std::span<const std::byte> block, const KvContent& content,
                      std::span<std::byte> bytes);
// The rest of the block stays as it was.
void content_to_block(const KvGeometry& geometry, const BlockPlace& place, const KvContent& content,
                      std::span<const std::byte> bytes, std::span<std::byte> block);

}  // namespace quire
