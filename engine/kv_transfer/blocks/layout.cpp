#include "engine/kv_transfer/blocks/layout.h"

#include <algorithm>
#include <cstring>

namespace quire {
namespace {

// visit(offset in the block, offset in the content, bytes) for each run that is contiguous in both.
template <class Visit>
void for_each_run(const KvGeometry& geometry, const BlockPlace& place, const KvContent& content,
                  Visit visit) {
  const KvLayerGeometry& layer = geometry.layers[place.layer];
  const std::int64_t head_bytes = layer.row_bytes / layer.heads;
  const bool packed = place.order == BlockOrder::packed;
  for (const KvStrip& strip : content.strips) {
    if (strip.layer != static_cast<int>(place.layer)) continue;
    const int begin = std::max(strip.first, place.first_token);
    const int end = std::min(strip.first + strip.rows, place.first_token + place.num_tokens);
    const std::int64_t token_stride = packed ? layer.planes * head_bytes : head_bytes;
    const std::int64_t plane_offset =
        strip.plane * (packed ? head_bytes : place.num_heads * place.num_tokens * head_bytes);
    for (int head = 0; head < place.num_heads; ++head) {
      for (int token = begin; token < end; ++token) {
        const std::int64_t row = std::int64_t{head} * place.num_tokens + token - place.first_token;
        visit(plane_offset + row * token_stride,
              strip.offset + (token - strip.first) * strip.row_bytes +
                  (place.first_head + head) * head_bytes,
              head_bytes);
      }
    }
  }
}

}  // namespace

std::int64_t block_bytes(const KvLayerGeometry& layer, int num_tokens, int num_heads) {
  return layer.row_bytes / layer.heads * num_heads * layer.planes * num_tokens;
}

void block_to_content(const KvGeometry& geometry, const BlockPlace& place,
                      std::span<const std::byte> block, const KvContent& content,
                      std::span<std::byte> bytes) {
  for_each_run(geometry, place, content, [&](std::int64_t from, std::int64_t to, std::int64_t n) {
    std::memcpy(bytes.data() + to, block.data() + from, static_cast<std::size_t>(n));
  });
}

void content_to_block(const KvGeometry& geometry, const BlockPlace& place, const KvContent& content,
                      std::span<const std::byte> bytes, std::span<std::byte> block) {
  for_each_run(geometry, place, content, [&](std::int64_t to, std::int64_t from, std::int64_t n) {
    std::memcpy(block.data() + to, bytes.data() + from, static_cast<std::size_t>(n));
  });
}

}  // namespace quire
