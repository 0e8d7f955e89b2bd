// What Mooncake's and vLLM's servers send: messages, replies of bootstrap servers, handshakes,
// frames.

#include <cstring>

#include "engine/kv_mooncake/bootstrap.h"
#include "engine/kv_mooncake/segment.h"
#include "engine/kv_mooncake/write_frame.h"
#include "engine/kv_mooncake/xfer_messages.h"
#include "engine/kv_mooncake/zmtp.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {
namespace {

void messages(std::string_view bytes) {
  if (const auto ask = parse_ask(bytes)) {
    const std::string once = encode_ask(*ask);
    const auto again = parse_ask(once);
    promise(again && encode_ask(*again) == once, "an ask's second round is its first");
    promise(ask->tensor_rank < ask->tensor_ranks, "a rank is one of its ranks");
  }
  if (const auto answer = parse_answer(bytes)) {
    const std::string once = encode_answer(*answer);
    const auto again = parse_answer(once);
    promise(again && encode_answer(*again) == once, "an answer's second round is its first");
  }
}

void segments(std::string_view bytes) {
  const auto hello = parse_mooncake_hello(bytes);
  const auto segment = parse_segment(hello ? hello->json : bytes);
  if (!segment) return promise(!segment.error().detail.empty(), "a refusal says why");
  for (const auto& memory : segment->memory) {
    promise(segment->covers(memory.address, memory.bytes), "what is offered is covered");
    promise(!segment->covers(0, 1), "nothing is at 0");
  }
}

void frames(std::string_view bytes) {
  (void)check_zmtp_greeting(bytes);
  (void)command_of(bytes);
  promise(zmtp_socket_type(bytes).size() <= bytes.size(), "a name comes out of the bytes");
  promise(zmtp_pong(bytes).size() < 64, "a PONG is short");
  if (bytes.size() < kMooncakeHeaderBytes) return;
  std::array<std::byte, kMooncakeHeaderBytes> raw;
  std::memcpy(raw.data(), bytes.data(), raw.size());
  if (const auto write = parse_mooncake_write(raw))
    promise(parse_mooncake_write(encode(*write)) == write, "a header's second round is its first");
}

void replies(std::string_view bytes) {
  if (const auto body = http_body(bytes))
    promise(body->size() <= kMaxBootstrapBytes, "a reply is no longer than its limit");
  if (const auto workers = find_workers(bytes, "e"))
    promise(!workers->ranks.empty(), "an engine has ranks");
  (void)parse_bootstrap_address(bytes);
  promise(http_reply(bytes, "{}").starts_with("HTTP/1.1 "), "every question has an answer");
}

}  // namespace

void kv_mooncake(std::string_view bytes) {
  messages(bytes);
  segments(bytes);
  frames(bytes);
  replies(bytes);
}

}  // namespace quire::fuzz
