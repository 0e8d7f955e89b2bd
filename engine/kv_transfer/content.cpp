#include "engine/kv_transfer/content.h"

#include <algorithm>

namespace quire {

int first_kept_token(const KvLayerGeometry& layer, int num_tokens) {
  if (layer.is_state()) return num_tokens - 1;
  int first = 0;
  // The last token may be computed again, and then looks back one further than the next.
  if (layer.window > 0) first = std::max(0, num_tokens - layer.window);
  if (layer.chunk > 0) first = std::max(0, num_tokens - 1) / layer.chunk * layer.chunk;
  return first / layer.block_size * layer.block_size;
}

KvContent kv_content(const KvGeometry& owner, int num_tokens, int from) {
  KvContent content{.num_tokens = num_tokens};
  for (std::size_t i = 0; i < owner.layers.size(); ++i) {
    const KvLayerGeometry& layer = owner.layers[i];
    int first = first_kept_token(layer, num_tokens);
    if (!layer.is_state()) first = std::min(std::max(first, from), num_tokens);
    for (int plane = 0; plane < layer.planes; ++plane) {
      const KvStrip& strip =
          content.strips.emplace_back(KvStrip{.layer = static_cast<int>(i),
                                              .plane = plane,
                                              .first = first,
                                              .rows = layer.is_state() ? 1 : num_tokens - first,
                                              .row_bytes = layer.row_bytes,
                                              .offset = content.bytes});
      content.bytes += strip.bytes();
    }
  }
  return content;
}

std::vector<KvContent> kv_parts(const KvContent& content, std::int64_t bytes) {
  std::vector<KvContent> parts;
  for (KvStrip strip : content.strips) {
    for (int left = strip.rows; left > 0;) {
      const auto has_room = [&](const KvContent& part) {
        return part.bytes + strip.row_bytes <= bytes;
      };
      if (parts.empty() || !has_room(parts.back())) parts.push_back({content.num_tokens});
      KvContent& part = parts.back();
      const std::int64_t room = (bytes - part.bytes) / strip.row_bytes;
      strip.rows = static_cast<int>(std::clamp<std::int64_t>(room, 1, left));
      part.strips.push_back(strip);
      part.bytes += strip.bytes();
      left -= strip.rows;
      strip.first += strip.rows;
      strip.offset += strip.bytes();
    }
  }
  return parts;
}

std::vector<KvPiece> kv_pieces(const KvContent& kept, const KvContent& wanted) {
  std::vector<KvPiece> pieces;
  for (std::size_t i = 0; i < wanted.strips.size(); ++i) {
    const KvStrip& from = kept.strips[i];
    const KvStrip& to = wanted.strips[i];
    const std::int64_t source = from.offset + (to.first - from.first) * from.row_bytes;
    for (std::int64_t at = 0; at < to.bytes(); at += kPieceBytes)
      pieces.push_back({.source = source + at,
                        .target = to.offset + at,
                        .bytes = std::min(kPieceBytes, to.bytes() - at)});
  }
  return pieces;
}

}  // namespace quire
