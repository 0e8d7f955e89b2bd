#include "engine/kv_transfer/quire/kept_stream.h"

#include <boost/asio/awaitable.hpp>
#include <string>
#include <vector>

namespace quire {

awaitable<void> read_kept(const KvReading& reading) {
  const KvFrameHeader header = co_await reading.link.read_header(reading.silence);
  if (header.stream != reading.stream)
    throw KvLost(KvLossReason::corrupt, "an answer to another read");
  reading.begun = true;
  const bool refused = header.type == KvFrameType::refused;
  if (!refused && header.type != KvFrameType::begin)
    throw KvLost(KvLossReason::corrupt, "no answer to a read");
  const std::string body = co_await reading.link.read_message(header);
  if (refused) {
    const auto why = decode_kv<KvRefused>(body);
    if (!why) throw KvLost(KvLossReason::corrupt, "refused is broken");
    throw KvLost(why->reason, why->detail);
  }
  const auto begin = decode_kv<KvBegin>(body);
  if (!begin || begin->bytes != reading.content.bytes)
    throw KvLost(KvLossReason::corrupt, "the peer would send another number of bytes");
  const std::vector<KvPiece> all = pieces_of(reading, {0, reading.content.num_tokens});
  const std::span<const KvPiece> pieces = kv_part(all, reading.part, reading.parts);
  std::uint64_t sequence = 0;
  co_await read_pieces(reading, pieces, sequence);
  co_await say_copied(reading, sequence);
}

std::vector<KvPiece> pieces_of(const KvReading& reading, KvTokens tokens) {
  return kv_pieces(reading.content, reading.content, tokens, piece_bytes(!reading.memory.empty()));
}

awaitable<void> read_pieces(const KvReading& reading, std::span<const KvPiece> pieces,
                            std::uint64_t& sequence) {
  const bool in_place = !reading.memory.empty();
  const KvFrameType wanted = in_place ? KvFrameType::placed : KvFrameType::piece;
  for (const KvPiece& piece : pieces) {
    const KvFrameHeader header = co_await reading.link.read_header(reading.silence);
    const bool is_next =
        header.type == wanted && header.stream == reading.stream && header.sequence == sequence++;
    if (!is_next) throw KvLost(KvLossReason::corrupt, "a piece is missing or out of turn");
    const auto into = reading.bytes.subspan(static_cast<std::size_t>(piece.target),
                                            static_cast<std::size_t>(piece.bytes));
    if (in_place) {
      co_await reading.link.read_placed(header, reading.memory, into);
    } else {
      co_await reading.link.read_piece(header, into);
    }
  }
}

awaitable<void> say_copied(const KvReading& reading, std::uint64_t pieces) {
  if (reading.memory.empty() || pieces == 0) co_return;
  KvCopied copied;
  copied.pieces = static_cast<int>(pieces);
  const std::string text = encode_kv(copied);
  co_await reading.link.send(KvFrameType::copied, reading.stream, text);
}

}  // namespace quire
