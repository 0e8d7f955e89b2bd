// Frames: ZeroMQ's, those of Mooncake's handshake and of its writes. The recorded ones are libzmq's
// (4.3.5) and Mooncake's own (0.3.13).

#include <catch2/catch.hpp>
#include <random>

#include "engine/kv_mooncake/segment.h"
#include "engine/kv_mooncake/write_frame.h"
#include "engine/kv_mooncake/zmtp.h"
#include "tests/engine/kv_mooncake/hex.h"

namespace quire::test {
namespace {

// A DEALER of libzmq: greeting, READY, one message.
std::string dealer() {
  return from_hex("ff00000000000000017f03014e554c4c") + std::string(48, '\0') +
         from_hex(
             "04290552454144590b536f636b65742d54797065000000064445414c4552084964656e746974790000"
             "0000000568656c6c6f");
}

constexpr const char* kSegment =
    R"({"buffers":[{"addr":94357628978560,"length":4096,"name":"127.0.0.1:15510"}],)"
    R"("name":"127.0.0.1:15510","protocol":"tcp","rdma_server_name":"",)"
    R"("tcp_data_host":"127.0.0.1","tcp_data_port":16445,"tcp_proto_version":2,)"
    R"("timestamp":"2026-11-23 14:59:44.692650"})"
    "\n";

}  // namespace

TEST_CASE("libzmq's greeting and READY are read", "[mooncake]") {
  const std::string bytes = dealer();
  CHECK(check_zmtp_greeting(bytes.substr(0, kZmtpGreetingBytes)).has_value());
  const std::string ready = bytes.substr(66, 0x29);
  const auto flags = parse_zmtp_flags(static_cast<std::byte>(bytes[64]));
  REQUIRE(flags.has_value());
  CHECK(flags->is_command);
  CHECK(command_of(ready) == ZmtpCommand::ready);
  CHECK(zmtp_socket_type(ready) == "DEALER");
  CHECK(zmtp_ready("DEALER") == bytes.substr(64, 2 + 0x29));
  CHECK(zmtp_message("hello") == bytes.substr(66 + 0x29));
}

TEST_CASE("greetings of others are refused with a word", "[mooncake]") {
  const std::string good = zmtp_greeting();
  CHECK(check_zmtp_greeting(good).has_value());
  for (const std::size_t at : {std::size_t{0}, std::size_t{9}, std::size_t{12}, std::size_t{16}}) {
    std::string bad = good;
    bad[at] = 'X';
    CHECK_FALSE(check_zmtp_greeting(bad).has_value());
  }
  std::string old = good;
  old[10] = 1;
  CHECK_FALSE(check_zmtp_greeting(old).has_value());
  CHECK_FALSE(check_zmtp_greeting(good.substr(1)).has_value());
  CHECK_FALSE(check_zmtp_greeting("").has_value());
}

TEST_CASE("frames beyond the limit and of unknown kinds are refused", "[mooncake]") {
  for (int flags = 0; flags < 256; ++flags)
    CHECK(parse_zmtp_flags(static_cast<std::byte>(flags)).has_value() ==
          (flags < 8 && (flags & 5) != 5));
  std::array<std::byte, 8> size{};
  size[5] = std::byte{0x80};
  CHECK(parse_zmtp_size(size).has_value());
  size[4] = std::byte{1};
  CHECK_FALSE(parse_zmtp_size(size).has_value());
  const std::string large(1000, 'x');
  CHECK(zmtp_message(large) == std::string("\x02\0\0\0\0\0\0\x03\xe8", 9) + large);
}

TEST_CASE("a PING comes back with what it carries", "[mooncake]") {
  CHECK(zmtp_pong("\x04PING" + std::string("\0\x14", 2) + "abc") == "\x04\x08\x04PONGabc");
  CHECK(zmtp_pong("\x04PING") == "\x04\x05\x04PONG");
  CHECK(command_of(zmtp_ping().substr(2)) == ZmtpCommand::ping);
  CHECK(command_of("") == ZmtpCommand::other);
}

TEST_CASE("commands of any bytes are read within bounds", "[mooncake]") {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    const bool is_ready = i % 2 == 0;
    std::string body = is_ready ? "\x05READY" : "";
    // No letters, so that nothing else has a name.
    for (auto left = random() % 40; left > 0; --left) body += static_cast<char>(random() % 24);
    CHECK(zmtp_socket_type(body).empty());
    CHECK(zmtp_pong(body) == "\x04\x05\x04PONG");
    CHECK(command_of(body) == (is_ready ? ZmtpCommand::ready : ZmtpCommand::other));
  }
}

TEST_CASE("Mooncake's own description of its memory is read", "[mooncake]") {
  const auto segment = parse_segment(kSegment);
  REQUIRE(segment.has_value());
  CHECK(segment->name == "127.0.0.1:15510");
  CHECK(segment->data_port == 16445);
  CHECK(segment->has_status);
  CHECK(segment->covers(94357628978560, 4096));
  CHECK(segment->covers(94357628978561, 4095));
  CHECK_FALSE(segment->covers(94357628978561, 4096));
  CHECK_FALSE(segment->covers(94357628978559, 1));
  CHECK_FALSE(segment->covers(94357628978560, ~0ull));
}

TEST_CASE("a description is written as it is read", "[mooncake]") {
  MooncakeSegment segment{.name = "10.0.0.7:8998", .data_port = 4711};
  segment.memory = {{1ull << 50, 1ull << 50}, {1ull << 51, 1ull << 50}};
  const auto again = parse_segment(segment_json(segment));
  REQUIRE(again.has_value());
  CHECK(segment_json(*again) == segment_json(segment));
  const std::string frame = mooncake_hello(MooncakeHello::metadata, "{}");
  CHECK(frame == std::string("\x03\0\0\0\0\0\0\0\x01{}", 11));
  const auto hello = parse_mooncake_hello(std::string_view(frame).substr(8));
  REQUIRE(hello.has_value());
  CHECK(hello->json == "{}");
  CHECK_FALSE(parse_mooncake_hello("").has_value());
  CHECK_FALSE(parse_mooncake_hello("{\"name\":1}").has_value());
}

TEST_CASE("descriptions that are no use are refused with a word", "[mooncake]") {
  for (const char* bad :
       {"", "{}", "[]", R"({"name":"a","protocol":"rdma","tcp_data_port":1,"buffers":[]})",
        R"({"name":"a","protocol":"tcp","tcp_data_port":0,"buffers":[]})",
        R"({"name":"a","protocol":"tcp","tcp_data_port":65536,"buffers":[]})",
        R"({"name":"a","protocol":"tcp","tcp_data_port":1})",
        R"({"name":"a","protocol":"tcp","tcp_data_port":1,"buffers":[{"addr":0,"length":1}]})",
        R"({"name":"a","protocol":"tcp","tcp_data_port":1,"buffers":[{"addr":1,"length":-1}]})"}) {
    const auto segment = parse_segment(bad);
    REQUIRE_FALSE(segment.has_value());
    CHECK_FALSE(segment.error().detail.empty());
  }
  const std::string whole = kSegment;
  for (std::size_t size = 0; size + 1 < whole.size(); ++size)
    CHECK_FALSE(parse_segment(whole.substr(0, size)).has_value());
}

TEST_CASE("headers of writes are as Mooncake's", "[mooncake]") {
  const MooncakeWrite write{.address = 0x0102030405060708, .bytes = 0x1112};
  const auto bytes = encode(write);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  CHECK(text == from_hex("1211000000000000080706050403020181") + std::string(7, '\0'));
  CHECK((parse_mooncake_write(bytes) == write));
  for (int operation = 0; operation < 256; ++operation) {
    auto other = bytes;
    other[16] = static_cast<std::byte>(operation);
    const auto parsed = parse_mooncake_write(other);
    CHECK(parsed.has_value() == ((operation & 0x7f) < 2));
    if (parsed) CHECK(parsed->is_read == ((operation & 1) == 0));
    if (parsed) CHECK(parsed->wants_status == (operation >= 0x80));
  }
  CHECK(is_taken(mooncake_status(true)));
  CHECK_FALSE(is_taken(mooncake_status(false)));
  CHECK_FALSE(is_taken({}));
}

}  // namespace quire::test
