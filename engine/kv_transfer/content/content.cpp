#include "engine/kv_transfer/content/content.h"

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

KvContent kv_rows(const KvContent& content, KvTokens tokens) {
  KvContent rows{.num_tokens = content.num_tokens};
  for (KvStrip strip : content.strips) {
    const int first = std::max(strip.first, tokens.begin);
    const int end = std::min(strip.first + strip.rows, tokens.end);
    if (first >= end) continue;
    strip.offset += std::int64_t{first - strip.first} * strip.row_bytes;
    strip.first = first;
    strip.rows = end - first;
    rows.strips.push_back(strip);
    rows.bytes += strip.bytes();
  }
  return rows;
}

std::vector<KvPiece> kv_pieces(const KvContent& kept, const KvContent& wanted, KvTokens tokens,
                               std::int64_t most_bytes) {
  std::vector<KvPiece> pieces;
  for (std::size_t i = 0; i < wanted.strips.size(); ++i) {
    const KvStrip& from = kept.strips[i];
    const KvStrip& to = wanted.strips[i];
    const int first = std::max(to.first, tokens.begin);
    const int end = std::min(to.first + to.rows, tokens.end);
    const std::int64_t source = from.offset + std::int64_t{first - from.first} * from.row_bytes;
    const std::int64_t target = to.offset + std::int64_t{first - to.first} * to.row_bytes;
    const std::int64_t bytes = std::int64_t{end - first} * to.row_bytes;
    for (std::int64_t at = 0; at < bytes; at += most_bytes)
      pieces.push_back({.source = source + at,
                        .target = target + at,
                        .bytes = std::min(most_bytes, bytes - at)});
  }
  return pieces;
}

std::span<const KvPiece> kv_part(std::span<const KvPiece> pieces, int part, int parts) {
  const auto edge = [&](int at) {
    return pieces.size() * static_cast<std::size_t>(at) / static_cast<std::size_t>(parts);
  };
  return pieces.subspan(edge(part), edge(part + 1) - edge(part));
}

std::vector<KvPiece> kv_pieces(const KvContent& kept, const KvContent& wanted,
                               std::int64_t most_bytes) {
  return kv_pieces(kept, wanted, {0, wanted.num_tokens}, most_bytes);
}

}  // namespace quire
