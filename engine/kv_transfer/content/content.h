#pragma once
// The bytes of one prefill in the order in which they travel: layer by layer the rows of the keys'
// plane and of the values', token by token; of recurrent states the whole. No blocks in here, so
// that engines with any two block sizes agree. Both ends compute it from the owner's geometry.

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv_transfer/content/geometry.h"

namespace quire {

struct KvStrip {
  int layer = 0;  // of the geometry
  int plane = 0;
  int first = 0;  // token of its first row
  int rows = 0;   // of a state: 1
  std::int64_t row_bytes = 0;
  std::int64_t offset = 0;  // in the content
  std::int64_t bytes() const { return rows * row_bytes; }
};

struct KvContent {
  int num_tokens = 0;
  std::vector<KvStrip> strips = {};
  std::int64_t bytes = 0;
};

// The content of the first num_tokens of a prompt without those before `from`. States are those
// after the last token. A window keeps what the next token and the last one see, and what stands
// beside it in the owner's block.
KvContent kv_content(const KvGeometry& owner, int num_tokens, int from = 0);

// Cuts a content into parts of at most so many bytes, or of one row; offsets stay the same.
std::vector<KvContent> kv_parts(const KvContent& content, std::int64_t bytes);

// The first token whose row a layer keeps after num_tokens.
int first_kept_token(const KvLayerGeometry& layer, int num_tokens);

// The most bytes of a piece: as its owner has in the processor's cache from the sum to the copy;
// and where whoever reads copies it out of shared memory, so many that a frame costs little beside.
inline constexpr std::int64_t kPieceBytes = 128 << 10, kPlacedPieceBytes = 512 << 10;
constexpr std::int64_t piece_bytes(bool in_place) {
  return in_place ? kPlacedPieceBytes : kPieceBytes;
}
// A range that travels in one frame, contiguous on both sides.
struct KvPiece {
  std::int64_t source = 0;  // in the content that is kept
  std::int64_t target = 0;  // in the one that is asked for
  std::int64_t bytes = 0;
};

// Tokens of a prompt that were computed together. A state is that of the last.
struct KvTokens {
  int begin = 0, end = 0;
};

// The pieces of `wanted` that hold these tokens; its owner and length are those of `kept`.
std::vector<KvPiece> kv_pieces(const KvContent& kept, const KvContent& wanted, KvTokens tokens,
                               std::int64_t most_bytes = kPieceBytes);
// The pieces that hold all tokens. `wanted` leaves out at least what `kept` does.
std::vector<KvPiece> kv_pieces(const KvContent& kept, const KvContent& wanted,
                               std::int64_t most_bytes = kPieceBytes);

// The pieces that one of several connections carries which share them.
std::span<const KvPiece> kv_part(std::span<const KvPiece> pieces, int part, int parts);

// The rows of those tokens, at the same offsets.
KvContent kv_rows(const KvContent& content, KvTokens tokens);

}  // namespace quire
