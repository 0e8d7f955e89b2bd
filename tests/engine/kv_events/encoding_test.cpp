#include "engine/kv_events/encoding.h"

#include <catch2/catch.hpp>

#include "engine/kv_events/msgpack.h"

namespace quire {
namespace {

std::string hex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text += kDigits[static_cast<std::uint8_t>(c) >> 4];
    text += kDigits[static_cast<std::uint8_t>(c) & 15];
  }
  return text;
}

template <class Write>
std::string packed(Write write) {
  MsgpackWriter writer;
  write(writer);
  return hex(writer.take());
}

Sha256 hash_of(std::uint8_t fill) {
  Sha256 hash{};
  hash.fill(fill);
  return hash;
}

}  // namespace

TEST_CASE("Msgpack takes the smallest form") {
  const auto integer = [](std::int64_t v) {
    return packed([v](MsgpackWriter& w) { w.signed_integer(v); });
  };
  CHECK(integer(0) == "00");
  CHECK(integer(127) == "7f");
  CHECK(integer(128) == "cc80");
  CHECK(integer(256) == "cd0100");
  CHECK(integer(65'536) == "ce00010000");
  CHECK(integer(1ll << 32) == "cf0000000100000000");
  CHECK(integer(-1) == "ff");
  CHECK(integer(-32) == "e0");
  CHECK(integer(-33) == "d0df");
  CHECK(integer(-129) == "d1ff7f");
  CHECK(integer(-32'769) == "d2ffff7fff");
  CHECK(integer(-(1ll << 40)) == "d3ffffff0000000000");
  CHECK(packed([](MsgpackWriter& w) { w.real(1.5); }) == "cb3ff8000000000000");
  CHECK(packed([](MsgpackWriter& w) { w.nil(); }) == "c0");
  CHECK(packed([](MsgpackWriter& w) { w.text("abc"); }) == "a3616263");
  CHECK(packed([](MsgpackWriter& w) { w.text(std::string(32, 'x')); }).substr(0, 4) == "d920");
  CHECK(packed([](MsgpackWriter& w) { w.text(std::string(256, 'x')); }).substr(0, 6) == "da0100");
  CHECK(packed([](MsgpackWriter& w) { w.array(15); }) == "9f");
  CHECK(packed([](MsgpackWriter& w) { w.array(16); }) == "dc0010");
  CHECK(packed([](MsgpackWriter& w) { w.array(70'000); }) == "dd00011170");
  const std::uint8_t bytes[] = {1, 2};
  CHECK(packed([&](MsgpackWriter& w) { w.binary(bytes); }) == "c4020102");
}

// The expected bytes are what Python's msgpack makes of the arrays beside them.
TEST_CASE("Events have vLLM's fields in vLLM's order") {
  KvEventFormat format{.groups = {{"full_attention", 0}, {"sliding_window", 128}},
                       .data_parallel_rank = 1};
  const KvEvent stored = BlockStored{.hashes = {{hash_of(1)}},
                                     .parent = {},
                                     .token_ids = {1, 2, 300},
                                     .block_size = 16,
                                     .lora_id = {},
                                     .lora_name = "",
                                     .group = 1,
                                     .extra_keys = {{ExtraKey("salt")}}};
  CHECK(hex(encode_kv_events(1.5, std::span(&stored, 1), format)) ==
        "93cb3ff8000000000000"                  // [1.5,
        "919cab426c6f636b53746f726564"          // [["BlockStored",
        "91cf0101010101010101c0"                // [hash], null,
        "930102cd012c10c0"                      // [1, 2, 300], 16, null,
        "a3475055c0"                            // "GPU", null,
        "9191a473616c74"                        // [["salt"]],
        "01ae736c6964696e675f77696e646f77cc80"  // 1, "sliding_window", 128]],
        "01");                                  // 1]
  const KvEvent rest[] = {BlockRemoved{.hash = {hash_of(2)}, .group = 0}, AllBlocksCleared{}};
  format.int_hashes = false;
  CHECK(hex(encode_kv_events(0, rest, format)) ==
        "93cb0000000000000000"
        "9294ac426c6f636b52656d6f76656491c420" +
            std::string(64, '0').replace(0, 64,
                                         [] {
                                           std::string twos;
                                           for (int i = 0; i < 32; ++i) twos += "02";
                                           return twos;
                                         }()) +
            "a347505500"
            "91b0416c6c426c6f636b73436c656172656401");
}

TEST_CASE("Coarse hashes, parents, adapters and images") {
  const KvEvent stored = BlockStored{.hashes = {{hash_of(1), hash_of(2)}},
                                     .parent = EventHash{hash_of(3)},
                                     .token_ids = {},
                                     .block_size = 32,
                                     .lora_id = 7,
                                     .lora_name = "tuned",
                                     .group = 5,
                                     .extra_keys = {{}, {ExtraKey("tuned"), ItemKey{"image", -3}}}};
  CHECK(hex(encode_kv_events(0, std::span(&stored, 1), {})) ==
        "93cb0000000000000000919cab426c6f636b53746f726564"
        "91cf0202020202020202"  // the last fine hash decides
        "cf0303030303030303"
        "902007a3475055"  // [], 32, 7, "GPU",
        "a574756e6564"
        "92c092a574756e656492a5696d616765fd"  // [null, ["tuned", ["image", -3]]],
        "05c0c000");                          // 5, null, null]], 0]
}

}  // namespace quire
