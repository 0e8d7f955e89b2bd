// Messages of vLLM's MooncakeConnector. The recorded ones were written by its own classes (0.33.0).

#include "engine/kv_mooncake/xfer_messages.h"

#include <catch2/catch.hpp>

#include "tests/engine/kv_mooncake/hex.h"

namespace quire::test {
namespace {

constexpr const char* kAsk =
    "8eaf72656d6f74655f686f73746e616d65a831302e302e302e39ab72656d6f74655f706f7274cd3e22ae72656d6f"
    "74655f74705f73697a6502ae72656d6f74655f74705f72616e6b01aa7265715f626c6f636b7382a6636d706c2d31"
    "92b5786665722d3030313132323333343435353636373792930506cd012c9107a6636d706c2d3292b5786665722d"
    "3838393961616262636364646565666690b36b765f6361636865735f626173655f6164647292cf00007f12000000"
    "00cf00007f1300000000aa626c6f636b5f6c656e7392cd0c00cd4000ad6b765f626c6f636b5f6c656e7392cd0c00"
    "cd4000b6726567697374657265645f6c617965725f6e616d657392bd6d6f64656c2e6c61796572732e302e73656c"
    "665f6174746e2e6174746ebd6d6f64656c2e6c61796572732e312e73656c665f6174746e2e6174746eb872656769"
    "7374657265645f6c617965725f696e6469636573920001b8726567697374657265645f67726f75705f696e646963"
    "6573920001bb726567697374657265645f7368617265645f67726f75705f6964739291009101b672656769737465"
    "7265645f726f775f6f6666736574739200ffa96c61796f75745f6964cf7000000000000001";

MooncakeAsk made_ask() {
  MooncakeAsk ask{.host = "127.0.0.1", .port = 15906};
  ask.wanted.push_back({"quire-1", "xfer-1", {{1, 2, 3}, {400000}}, 0xfedcba9876543210});
  ask.wanted.push_back({"quire-2", "xfer-2"});
  ask.regions.push_back({"model.layers.0.self_attn.attn", 0, 0, 1ull << 50, 4096, 4096});
  ask.regions.push_back({"model.layers.7.self_attn.attn", 7, 1, 1ull << 51, 512, 256});
  ask.geometry = std::string("\0\1geometry", 10);
  return ask;
}

}  // namespace

TEST_CASE("what vLLM's class asks is read", "[mooncake]") {
  const auto ask = parse_ask(from_hex(kAsk));
  REQUIRE(ask.has_value());
  CHECK(ask->host == "10.0.0.9");
  CHECK(ask->port == 15906);
  CHECK(ask->tensor_ranks == 2);
  CHECK(ask->tensor_rank == 1);
  CHECK(ask->pipeline_ranks == 1);
  CHECK(ask->layout == 0x7000000000000001);
  CHECK(ask->geometry.empty());
  REQUIRE(ask->wanted.size() == 2);
  CHECK(ask->wanted[0].id == "cmpl-1");
  CHECK(ask->wanted[0].transfer == "xfer-0011223344556677");
  CHECK(ask->wanted[0].blocks == std::vector<std::vector<std::int64_t>>{{5, 6, 300}, {7}});
  CHECK(ask->wanted[1].blocks.empty());
  REQUIRE(ask->regions.size() == 2);
  CHECK(ask->regions[1].layer == "model.layers.1.self_attn.attn");
  CHECK(ask->regions[1].layer_index == 1);
  CHECK(ask->regions[1].group == 1);
  CHECK(ask->regions[0].address == 0x7f1200000000);
  CHECK(ask->regions[0].stride == 3072);
  CHECK(ask->regions[1].payload == 16384);
}

TEST_CASE("what vLLM's class answers is read", "[mooncake]") {
  const auto done = parse_answer(
      from_hex("83a673746174757300a76f6b5f7265717391a6636d706c2d31a96c61796f75745f696407"));
  REQUIRE(done.has_value());
  CHECK(done->verdict == MooncakeVerdict::finish);
  CHECK(done->done == std::vector<std::string>{"cmpl-1"});
  const auto failed = parse_answer(from_hex(
      "83a673746174757301a86572725f7265717392a161a162a76572725f6d7367b850206e756d20626c6f636b7320"
      "6c657373207468616e2044"));
  REQUIRE(failed.has_value());
  CHECK(failed->verdict == MooncakeVerdict::go_on);
  CHECK(failed->failed == std::vector<std::string>{"a", "b"});
  CHECK(failed->why == "P num blocks less than D");
  const auto error = parse_answer(from_hex("82a673746174757302a76572725f6d7367a26e6f"));
  REQUIRE(error.has_value());
  CHECK(error->verdict == MooncakeVerdict::error);
  CHECK(error->why == "no");
}

TEST_CASE("what is written is read again", "[mooncake]") {
  const MooncakeAsk ask = made_ask();
  const std::string bytes = encode_ask(ask);
  const auto again = parse_ask(bytes);
  REQUIRE(again.has_value());
  CHECK(encode_ask(*again) == bytes);
  CHECK(again->wanted[0].prompt_hash == ask.wanted[0].prompt_hash);
  CHECK_FALSE(again->wanted[1].prompt_hash);
  CHECK(again->geometry == ask.geometry);
  MooncakeAnswer answer{.verdict = MooncakeVerdict::go_on};
  answer.done = {"a"};
  answer.failed = {"b"};
  answer.why = "because";
  answer.sums = {{"a", ~0ull}};
  answer.reason = 3;
  answer.first_rows = {0, 48};
  const std::string said = encode_answer(answer);
  const auto heard = parse_answer(said);
  REQUIRE(heard.has_value());
  CHECK(encode_answer(*heard) == said);
}

TEST_CASE("whatever is cut off or changed in a message is refused or harmless", "[mooncake]") {
  const std::string theirs = from_hex(kAsk), ours = encode_ask(made_ask());
  for (const std::string& whole : {theirs, ours}) {
    for (std::size_t size = 0; size < whole.size(); ++size)
      CHECK_FALSE(parse_ask(whole.substr(0, size)).has_value());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      for (const int bits : {0x01, 0x80, 0xff}) {
        std::string damaged = whole;
        damaged[i] = static_cast<char>(damaged[i] ^ bits);
        const auto ask = parse_ask(damaged);
        if (ask) CHECK(ask->tensor_rank < ask->tensor_ranks);
        if (!ask) CHECK_FALSE(ask.error().detail.empty());
        (void)parse_answer(damaged);
      }
    }
  }
}

TEST_CASE("an ask has a bounded number of blocks, and each transfer once", "[mooncake]") {
  MooncakeAsk ask = made_ask();
  ask.wanted[1].transfer = ask.wanted[0].transfer;
  CHECK_FALSE(parse_ask(encode_ask(ask)).has_value());
  ask = made_ask();
  for (MooncakeWanted& one : ask.wanted)
    one.blocks = {std::vector<std::int64_t>(kMostAskedBlocks / 2, 1)};
  CHECK(parse_ask(encode_ask(ask)).has_value());
  ask.wanted[1].blocks[0].push_back(1);
  CHECK_FALSE(parse_ask(encode_ask(ask)).has_value());
}

TEST_CASE("an ask registers at most 4096 regions, and the error names the list", "[mooncake]") {
  MooncakeAsk ask = made_ask();
  ask.regions.resize(4096, ask.regions[0]);
  CHECK(parse_ask(encode_ask(ask)).has_value());
  ask.regions.push_back(ask.regions[0]);
  const auto refused = parse_ask(encode_ask(ask));
  REQUIRE_FALSE(refused.has_value());
  CHECK_THAT(refused.error().detail,
             Catch::Contains("kv_caches_base_addr must be a list of at most 4096 items"));
}

TEST_CASE("lists of regions that differ in length are refused by name", "[mooncake]") {
  std::string bytes = encode_ask(made_ask());
  const auto at = bytes.find("block_lens");
  bytes[at + 10] = '\x91';  // one item, and the second is a stray value
  CHECK_FALSE(parse_ask(bytes).has_value());
  CHECK_FALSE(parse_ask("\x80").has_value());
  CHECK_FALSE(parse_ask("\xc0").has_value());
  CHECK_FALSE(parse_answer("\x80").has_value());
}

}  // namespace quire::test
