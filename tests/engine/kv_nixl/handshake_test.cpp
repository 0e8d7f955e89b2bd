// The messages of the side channel.

#include "engine/kv_nixl/handshake.h"

#include <catch2/catch.hpp>
#include <random>

#include "engine/kv_events/msgpack.h"
#include "tests/support/mutate.h"

namespace quire::test {
namespace {

NixlMetadata some_metadata() {
  NixlMetadata metadata;
  metadata.engine = "engine";
  metadata.agent = std::string("blob\0with a zero", 16);
  metadata.base_addresses = {1 << 20, std::uint64_t{1} << 46};
  metadata.num_blocks = 64;
  metadata.block_lens = {8192, 8192};
  metadata.block_strides = {8192, 16384};
  metadata.layout = "LBHNC";
  metadata.block_size = 16;
  metadata.attention_backend = "FLASH_ATTN";
  metadata.memories = {0, 0};
  return metadata;
}

}  // namespace

TEST_CASE("requests for metadata have the form of each release", "[nixl]") {
  for (const NixlProfile& profile : nixl_profiles()) {
    const auto rank = parse_metadata_request(encode_metadata_request({0, 3}, profile));
    REQUIRE(rank.has_value());
    CHECK(rank->tensor == 3);
    CHECK(rank->pipeline == 0);
  }
  const std::string newest = encode_metadata_request({0, 0}, nixl_profiles().front());
  CHECK(newest == std::string("\x93\xc4\x0cget_meta_msg\x00\x00", 17));
  for (const char* bad : {"", "\x90", "\x91\xc4\x01x", "\x92\xc4\x01x\x00", "get_meta_msg"})
    CHECK(parse_metadata_request(bad).has_error());
}

TEST_CASE("metadata is read as it was written, in the form of each release", "[nixl]") {
  for (const NixlProfile& profile : nixl_profiles()) {
    INFO(profile.name);
    NixlMetadata metadata = some_metadata();
    metadata.quire = QuireExtension{"geometry", 12345};
    const auto read = parse_metadata(encode_metadata(metadata, profile), profile);
    REQUIRE(read.has_value());
    CHECK(read->engine == metadata.engine);
    CHECK(read->agent == metadata.agent);
    CHECK(read->base_addresses == metadata.base_addresses);
    CHECK(read->num_blocks == 64);
    CHECK(read->block_lens == metadata.block_lens);
    CHECK(read->block_strides ==
          (profile.has_strides ? metadata.block_strides : metadata.block_lens));
    CHECK(read->layout == "LBHNC");
    CHECK(read->block_size == 16);
    REQUIRE(read->quire);
    CHECK(read->quire->geometry == "geometry");
    CHECK(read->quire->sums_address == 12345);
  }
}

TEST_CASE("a handshake carries a hash and metadata", "[nixl]") {
  const auto read = parse_handshake(encode_handshake({"abc", "inner"}));
  REQUIRE(read.has_value());
  CHECK(read->hash == "abc");
  CHECK(read->metadata == "inner");
  MsgpackWriter out;
  out.map(1);
  out.text("compatibility_hash");
  out.text("abc");
  CHECK(parse_handshake(out.take()).error().detail == "handshake has no agent_metadata_bytes");
}

TEST_CASE("metadata that says what cannot be is refused", "[nixl]") {
  const NixlProfile& profile = nixl_profiles().front();
  const auto refused = [&](auto change) {
    NixlMetadata metadata = some_metadata();
    change(metadata);
    return parse_metadata(encode_metadata(metadata, profile), profile).has_error();
  };
  CHECK_FALSE(refused([](NixlMetadata&) {}));
  CHECK(refused([](NixlMetadata& m) { m.base_addresses.clear(); }));
  CHECK(refused([](NixlMetadata& m) { m.block_lens.pop_back(); }));
  CHECK(refused([](NixlMetadata& m) { m.block_strides.push_back(8192); }));
  CHECK(refused([](NixlMetadata& m) { m.block_strides[0] = 8191; }));
  CHECK(refused([](NixlMetadata& m) { m.block_strides[0] = UINT64_MAX / 2; }));
  CHECK(refused([](NixlMetadata& m) { m.block_lens[1] = 0; }));
  CHECK(refused([](NixlMetadata& m) { m.base_addresses[0] = UINT64_MAX; }));
  CHECK(refused([](NixlMetadata& m) { m.num_blocks = 0; }));
  CHECK(refused([](NixlMetadata& m) { m.num_blocks = std::uint64_t{1} << 40; }));
  CHECK(refused([](NixlMetadata& m) { m.block_size = 0; }));
  CHECK(refused([](NixlMetadata& m) { m.kernel_blocks_per_block = 0; }));
  CHECK(refused([](NixlMetadata& m) { m.memories = {0}; }));
  CHECK(refused([](NixlMetadata& m) { m.engine.assign(10'000, 'x'); }));
}

TEST_CASE("mutated handshakes are read or refused", "[nixl]") {
  const NixlProfile& profile = nixl_profiles().front();
  const std::string whole = encode_metadata(some_metadata(), profile);
  std::mt19937 random(3);
  for (int i = 0; i < 50'000; ++i) {
    std::string text = whole;
    overwrite_bytes(text, 4, random);
    const auto read = parse_metadata(text, profile);
    if (read) REQUIRE(read->block_lens.size() == read->base_addresses.size());
    parse_handshake(text);
    parse_metadata_request(text);
  }
}

}  // namespace quire::test
