// What one engine reads of another: headers, messages, kv_transfer_params.

#include <cstring>

#include "engine/kv_transfer/content/content.h"
#include "engine/kv_transfer/content/frames.h"
#include "engine/kv_transfer/transfer_params.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {

namespace {

template <class Message>
void round_trip(std::string_view body) {
  const auto message = decode_kv<Message>(body);
  if (!message) return;
  const std::string once = encode_kv(*message);
  const auto again = decode_kv<Message>(once);
  promise(again && encode_kv(*again) == once, "a message's second round is its first");
}

void header(std::string_view bytes) {
  if (bytes.size() < kKvHeaderBytes) return;
  std::array<std::byte, kKvHeaderBytes> raw;
  std::memcpy(raw.data(), bytes.data(), raw.size());
  const auto parsed = parse_kv_header(raw);
  if (!parsed) return promise(!parsed.error().detail.empty(), "a refusal says why");
  promise(parsed->size <= std::max<std::uint64_t>(kPieceBytes, kMaxKvMessageBytes),
          "no body is larger than its kind may be");
  promise(encode(*parsed) == raw, "a header that is read is written as it was");
}

}  // namespace

void kv_transfer(std::string_view bytes) {
  header(bytes);
  round_trip<KvHello>(bytes);
  round_trip<KvWelcome>(bytes);
  round_trip<KvRead>(bytes);
  round_trip<KvBegin>(bytes);
  round_trip<KvChunk>(bytes);
  round_trip<KvRefused>(bytes);
  round_trip<KvExpect>(bytes);
  round_trip<KvRenew>(bytes);
  const std::string text(bytes);
  if (const auto params = parse_transfer_params(text, {}); !params)
    promise(!params.error().detail.empty(), "a refusal says why");
}

}  // namespace quire::fuzz
