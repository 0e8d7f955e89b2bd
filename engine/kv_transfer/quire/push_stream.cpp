#include "engine/kv_transfer/quire/push_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <string>
#include <utility>
#include <vector>

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void broken(const std::string& what) { throw KvLost(KvLossReason::corrupt, what); }

KvRefused refusal_of(const KvRead& read, const KeptPrefill* prefill) {
  if (prefill == nullptr || prefill->range == nullptr) return refusal_of(prefill);
  if (read.num_tokens != prefill->content.num_tokens)
    return {KvLossReason::prompt,
            fmt::format("it has {} tokens, not {}", prefill->content.num_tokens, read.num_tokens)};
  if (read.prompt_hash != prefill->prompt_hash)
    return {KvLossReason::prompt, "it is of another prompt"};
  if (read.from < 0 || read.from > read.num_tokens)
    return {KvLossReason::refused, fmt::format("{} is not one of its tokens", read.from)};
  return {};
}

std::chrono::milliseconds rhythm_of(const KvRead& read) {
  return std::chrono::milliseconds(std::clamp(read.alive_ms, 5, 10'000));
}

awaitable<void> say_alive(const PushSending& sending) {
  const std::string nothing;
  co_await sending.link.send(KvFrameType::alive, sending.stream, nothing);
}

template <class Message>
awaitable<void> say(const PushSending& sending, KvFrameType type, const Message& message) {
  const std::string text = encode_kv(message);
  co_await sending.link.send(type, sending.stream, text);
}

}  // namespace

KvRefused refusal_of(const KeptPrefill* prefill) {
  if (prefill == nullptr) return {KvLossReason::expired, "nobody computes it"};
  const KvProgress& progress = *prefill->progress;
  const char* why = progress.elsewhere.empty() ? "its prefill came to nothing there"
                                               : "another engine computes it";
  return {progress.why, why, progress.elsewhere};
}

std::exception_ptr loss_of(const std::string& refused) {
  const auto why = decode_kv<KvRefused>(refused);
  if (!why) return std::make_exception_ptr(KvLost(KvLossReason::corrupt, "refused is broken"));
  if (why->elsewhere.empty()) return std::make_exception_ptr(KvLost(why->reason, why->detail));
  return std::make_exception_ptr(KvElsewhere(why->reason, why->detail, why->elsewhere));
}

awaitable<std::int64_t> send_pushed(const PushSending& sending) {
  const KvRead& read = sending.read;
  const auto prefill = sending.kept.find(read.prefill.key, read.prefill.generation);
  const KvRefused refusal = refusal_of(read, prefill.get());
  if (!refusal.detail.empty()) {
    co_await say(sending, KvFrameType::refused, refusal);
    co_return 0;
  }
  const KvContent wanted = kv_content(sending.geometry, read.num_tokens, read.from);
  const bool in_place = read.in_place && sending.kept.shared_descriptor() >= 0;
  KvBegin begin;
  begin.bytes = wanted.bytes;
  co_await say(sending, KvFrameType::begin, begin);
  const std::span<const std::byte> bytes = prefill->range->bytes();
  std::uint64_t sequence = 0;
  for (int sent = 0; sent < read.num_tokens;) {
    // It is the engine's until it is whole, and then the lease's: nobody reads what has ended.
    const bool failed = prefill->progress && prefill->progress->failed;
    if (failed || sending.kept.find(prefill->key, prefill->generation) == nullptr) {
      const KvRefused ended = {failed ? prefill->progress->why : KvLossReason::expired,
                               "its prefill came to nothing there"};
      co_await say(sending, KvFrameType::refused, ended);
      co_return 0;
    }
    const int ready = prefill->num_ready();
    if (ready <= sent) {
      co_await sending.wait(Clock::now() + rhythm_of(read));
      if (prefill->num_ready() <= sent) co_await say_alive(sending);
      continue;
    }
    const KvChunk chunk = {ready};
    co_await say(sending, KvFrameType::chunk, chunk);
    const auto pieces = kv_pieces(prefill->content, wanted, {sent, ready}, piece_bytes(in_place));
    for (const KvPiece& piece : pieces) {
      const auto part = bytes.subspan(static_cast<std::size_t>(piece.source),
                                      static_cast<std::size_t>(piece.bytes));
      if (in_place) {
        const std::int64_t at = sending.kept.offset_of(*prefill->range) + piece.source;
        co_await sending.link.send_placed(sending.stream, sequence++, at, part);
      } else {
        co_await sending.link.send_piece(sending.stream, sequence++, part);
      }
    }
    sent = ready;
  }
  if (in_place && sequence > 0) {
    const KvFrameHeader header = co_await sending.link.read_header(rhythm_of(read) * 8);
    const std::string body = co_await sending.link.read_message(header);
    if (header.type != KvFrameType::copied || header.stream != sending.stream)
      broken("what was placed was not said to be copied");
  }
  co_return wanted.bytes;
}

namespace {

// The next frame that says more than that the owner is there.
awaitable<std::pair<KvFrameHeader, std::string>> next_message(const KvReading& reading,
                                                              Clock::time_point deadline) {
  while (true) {
    const KvFrameHeader header = co_await reading.link.read_header(reading.silence);
    if (header.stream != reading.stream) broken("a frame of another read");
    reading.begun = true;
    if (header.type == KvFrameType::piece) broken("a piece is out of turn");
    std::string body = co_await reading.link.read_message(header);
    if (header.type == KvFrameType::refused) std::rethrow_exception(loss_of(body));
    if (header.type != KvFrameType::alive) co_return std::pair(header, std::move(body));
    if (Clock::now() > deadline)
      throw KvLost(KvLossReason::expired, "its prefill takes longer than is waited for");
  }
}

}  // namespace

awaitable<void> read_pushed(const KvReading& reading) {
  const auto deadline = Clock::now() + reading.patience;
  const auto [first, text] = co_await next_message(reading, deadline);
  const auto begin = decode_kv<KvBegin>(text);
  if (first.type != KvFrameType::begin || !begin) broken("no answer to a read");
  if (begin->bytes != reading.content.bytes) broken("the peer would send another number of bytes");
  std::uint64_t sequence = 0;
  for (int have = 0; have < reading.content.num_tokens;) {
    const auto [header, body] = co_await next_message(reading, deadline);
    const auto chunk = decode_kv<KvChunk>(body);
    if (header.type != KvFrameType::chunk || !chunk) broken("no chunk where one was due");
    if (chunk->until <= have || chunk->until > reading.content.num_tokens)
      broken(fmt::format("a chunk ends at token {} of {}, behind {}", chunk->until,
                         reading.content.num_tokens, have));
    const auto pieces = pieces_of(reading, {have, chunk->until});
    co_await read_pieces(reading, pieces, sequence);
    have = chunk->until;
  }
  co_await say_copied(reading, sequence);
}

}  // namespace quire
