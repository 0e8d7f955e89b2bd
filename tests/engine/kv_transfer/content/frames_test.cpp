// Whatever bytes come over the line: a frame, or a refusal.

#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "engine/kv_transfer/plane/data_plane.h"
#include "engine/kv_transfer/content/frames.h"
#include "tests/support/mutate.h"

namespace quire::test {
namespace {

using Bytes = std::array<std::byte, kKvHeaderBytes>;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

KvFrameHeader some_header() {
  const std::string body = "body";
  return sealed({.type = KvFrameType::read, .stream = 7, .sequence = 9}, bytes_of(body));
}

// Everything that may come in a body.
void read_as_any(const std::string& body) {
  (void)decode_kv<KvHello>(body);
  (void)decode_kv<KvKey>(body);
  (void)decode_kv<KvRead>(body);
  (void)decode_kv<KvBegin>(body);
  (void)decode_kv<KvChunk>(body);
  (void)decode_kv<KvRefused>(body);
  if (const auto renew = decode_kv<KvRenew>(body)) CHECK(renew->prefills.size() <= body.size());
  if (const auto welcome = decode_kv<KvWelcome>(body))
    (void)geometry_difference(KvGeometry(), welcome->geometry);
}

std::string some_welcome() {
  KvWelcome welcome;
  welcome.protocol = kKvProtocol;
  welcome.engine = "an engine";
  welcome.geometry.model_fingerprint = "0123";
  for (int i = 0; i < 5; ++i)
    welcome.geometry.layers.push_back({.name = "model.layers." + std::to_string(i),
                                       .kind = KvKind::sliding_window,
                                       .dtype = "bfloat16",
                                       .heads = 4,
                                       .head_size = 64,
                                       .planes = 2,
                                       .row_bytes = 512,
                                       .window = 128,
                                       .chunk = 0,
                                       .block_size = 16});
  return encode_kv(welcome);
}

}  // namespace

TEST_CASE("a frame's header comes back as it was", "[kv_transfer]") {
  const KvFrameHeader header = some_header();
  const auto parsed = parse_kv_header(encode(header));
  REQUIRE(parsed.has_value());
  CHECK(parsed->type == header.type);
  CHECK(parsed->stream == 7);
  CHECK(parsed->sequence == 9);
  CHECK(is_intact(*parsed, bytes_of("body")));
  CHECK_FALSE(is_intact(*parsed, bytes_of("bode")));
  CHECK_FALSE(is_intact(*parsed, bytes_of("bod")));
}

TEST_CASE("a header that is damaged anywhere is refused, or its body is", "[kv_transfer]") {
  const Bytes good = encode(some_header());
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Bytes bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto parsed = parse_kv_header(bad);
    INFO("bit " << bit);
    CHECK((!parsed || !is_intact(*parsed, bytes_of("body"))));
  }
}

TEST_CASE("bodies larger than their kind may be are refused before they are read",
          "[kv_transfer]") {
  KvFrameHeader header = some_header();
  header.size = kMaxKvMessageBytes + 1;
  CHECK(parse_kv_header(encode(header)).has_error());
  header.type = KvFrameType::piece;
  header.size = std::uint64_t{1} << 60;
  CHECK(parse_kv_header(encode(header)).has_error());
  header.size = kPieceBytes;
  CHECK(parse_kv_header(encode(header)).has_value());
}

TEST_CASE("messages come back as they were", "[kv_transfer]") {
  const auto welcome = decode_kv<KvWelcome>(some_welcome());
  REQUIRE(welcome);
  REQUIRE(welcome->geometry.layers.size() == 5);
  CHECK(welcome->geometry.layers[4].name == "model.layers.4");
  CHECK(welcome->geometry.layers[4].row_bytes == 512);
  KvRead read;
  read.prefill = {"key", std::uint64_t{1} << 63};
  read.num_tokens = 9;
  read.prompt_hash = ~std::uint64_t{0};
  const auto again = decode_kv<KvRead>(encode_kv(read));
  REQUIRE(again);
  CHECK(again->prefill.generation == std::uint64_t{1} << 63);
  CHECK(again->prompt_hash == ~std::uint64_t{0});
}

TEST_CASE("no bytes lead a message's reader out of them", "[kv_transfer][fuzz]") {
  std::mt19937 random(11);
  const std::string good = some_welcome();
  for (int round = 0; round < 20'000; ++round) {
    std::string bad = good.substr(0, random() % (good.size() + 1));
    overwrite_bytes(bad, 4, random);
    read_as_any(bad);
    std::string noise(random() % 64, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    read_as_any(noise);
    Bytes header;
    for (std::byte& one : header) one = static_cast<std::byte>(random());
    if (round % 2 == 0) std::memcpy(header.data(), "QKV1", 4);
    if (const auto parsed = parse_kv_header(header))
      CHECK(parsed->size <= std::max<std::uint64_t>(kPieceBytes, kMaxKvMessageBytes));
  }
}

TEST_CASE("a prompt's hash tells prompts apart", "[kv_transfer]") {
  const std::vector<std::int32_t> a{1, 2, 3}, b{1, 2, 4}, c{1, 2}, d{1, 2, 3, 0};
  CHECK(prompt_hash(a) == prompt_hash(a));
  CHECK(prompt_hash(a) != prompt_hash(b));
  CHECK(prompt_hash(a) != prompt_hash(c));
  CHECK(prompt_hash(a) != prompt_hash(d));
}

TEST_CASE("of a peer's words the beginning is kept", "[kv_transfer]") {
  const std::string all(1 << 20, 'x');
  CHECK(std::string(KvLost(KvLossReason::refused, all).what()).size() == KvLost::kMostDetail);
  CHECK(std::string(KvElsewhere(KvLossReason::refused, all, "a").what()).size() ==
        KvLost::kMostDetail);
}

}  // namespace quire::test
