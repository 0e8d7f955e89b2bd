// How long a prompt the memory of transfers holds, against what takes the room.

#include "engine/kv_transfer/transfer_reach.h"

#include <catch2/catch.hpp>

#include "cpu/cpu_backend.h"
#include "engine/kv_transfer/content/content.h"
#include "engine/kv_transfer/memory/staging.h"
#include "engine/kv_transfer/mooncake/landing.h"
#include "engine/kv_transfer/nixl/exports.h"
#include "engine/kv_transfer/nixl/push_landing.h"

namespace quire::test {
namespace {

constexpr int kLongest = 131072;

// Llama 8B's: 131,072 bytes a token.
KvGeometry llama() {
  KvGeometry geometry;
  for (int i = 0; i < 32; ++i)
    geometry.layers.push_back({.name = "model.layers." + std::to_string(i) + ".self_attn",
                               .dtype = "bfloat16",
                               .heads = 8,
                               .head_size = 128,
                               .planes = 2,
                               .row_bytes = 2048,
                               .block_size = 16});
  return geometry;
}

// Its last four layers with keys and values, the others with Mamba 2 states of 2 MiB each.
KvGeometry hybrid() {
  KvGeometry geometry = llama();
  for (std::size_t i = 0; i < 28; ++i) {
    KvLayerGeometry& layer = geometry.layers[i];
    layer = {.name = "model.layers." + std::to_string(i) + ".mixer", .kind = KvKind::mamba};
    layer.state = {.form = StateForm::mamba2,
                   .conv_rows = 3,
                   .conv_channels = 10240,
                   .conv_element_bytes = 2,
                   .heads = 128,
                   .head_rows = 64,
                   .head_columns = 64,
                   .element_bytes = 4};
    layer.row_bytes = layer.state.conv_bytes() + (std::int64_t{128} * 64 * 64 * 4);
  }
  return geometry;
}

// As vLLM has them: equally many layers each.
std::vector<int> hybrid_groups() {
  std::vector<int> groups;
  for (int i = 0; i < 32; ++i) groups.push_back(i / 4);
  return groups;
}

std::vector<std::string> notes(const KvTransferConfig& config, int longest = kLongest) {
  const auto sizes = transfer_sizes(config, std::int64_t{131072} * longest);
  return transfer_notes(config, llama(), std::vector<int>(32, 0), sizes, longest);
}

int reach_in(const std::string& note) { return std::stoi(note.substr(sizeof("prompts above"))); }

std::int64_t advised_in(const std::string& note) {
  const std::string flag = "KvTransferConfig::buffer_bytes ";
  return std::stoll(note.substr(note.find(flag) + flag.size())) << 20;
}

Buffer memory_of(std::int64_t bytes) {
  static const auto device = make_cpu_device();  // buffers count in it until they go
  return device->allocate_zeroed(static_cast<std::size_t>(bytes), MemoryPurpose::kv_transfer);
}

}  // namespace

TEST_CASE("the plan says what the default buffer does not hold", "[kv_transfer][reach]") {
  const auto kept = notes({.role = KvRole::prefill});
  REQUIRE(kept.size() == 1);
  CHECK(kept[0] ==
        "prompts above 8192 tokens are not kept for whoever continues, who computes them again; "
        "KvTransferConfig::buffer_bytes 16384MiB would hold the longest");
  const auto both = notes({.role = KvRole::both});
  REQUIRE(both.size() == 2);
  CHECK(both[1].find("are not fetched, but computed here again") != std::string::npos);
  CHECK(notes({.role = KvRole::none}).empty());
  CHECK(notes({.role = KvRole::both}, 4000).empty());
}

TEST_CASE("what is advised holds the longest prompt, and a mebibyte less does not",
          "[kv_transfer][reach]") {
  for (const KvPlane plane : {KvPlane::local, KvPlane::nixl, KvPlane::mooncake})
    for (const KvRole role : {KvRole::prefill, KvRole::decode}) {
      KvTransferConfig config{.role = role, .plane = plane, .buffer_bytes = 1 << 30};
      const auto before = notes(config);
      REQUIRE(before.size() == 1);
      config.buffer_bytes = advised_in(before[0]);
      CHECK(notes(config).empty());
      config.buffer_bytes -= 1 << 20;
      CHECK(notes(config).size() == 1);
    }
}

TEST_CASE("where NIXL's prefills are written, what is advised holds the longest prompt",
          "[kv_transfer][reach]") {
  for (const KvRole role : {KvRole::prefill, KvRole::decode}) {
    KvTransferConfig config{.role = role, .plane = KvPlane::nixl, .buffer_bytes = 1 << 26};
    config.nixl.pushes = true;
    const auto before = notes(config, 4000);
    REQUIRE(before.size() == 1);
    CHECK(reach_in(before[0]) > 100);
    config.buffer_bytes = advised_in(before[0]);
    CHECK(notes(config, 4000).empty());
    config.buffer_bytes -= 1 << 20;
    CHECK(notes(config, 4000).size() == 1);
  }
}

TEST_CASE("beside recurrent states what is advised holds the longest prompt",
          "[kv_transfer][reach]") {
  const KvGeometry geometry = hybrid();
  const std::vector<int> groups = hybrid_groups();
  for (const bool pushes : {false, true})
    for (const KvPlane plane : {KvPlane::local, KvPlane::nixl, KvPlane::mooncake})
      for (const KvRole role : {KvRole::prefill, KvRole::decode}) {
        if (pushes && plane != KvPlane::nixl) continue;
        CAPTURE(pushes, static_cast<int>(plane), static_cast<int>(role));
        KvTransferConfig config{
            .role = role, .plane = plane, .buffer_bytes = std::int64_t{640} << 20};
        config.nixl.pushes = pushes;
        const auto notes_of = [&] {
          return transfer_notes(config, geometry, groups, transfer_sizes(config, 0), kLongest);
        };
        const auto before = notes_of();
        REQUIRE(before.size() == 1);
        config.buffer_bytes = advised_in(before[0]);
        CHECK(notes_of().empty());
        config.buffer_bytes -= 1 << 20;
        CHECK(notes_of().size() == 1);
      }
}

TEST_CASE("states that are written over NIXL find room up to that length", "[kv_transfer][reach]") {
  KvTransferConfig config{
      .role = KvRole::decode, .plane = KvPlane::nixl, .buffer_bytes = std::int64_t{384} << 20};
  config.nixl.pushes = true;
  const NixlSelf self{.geometry = hybrid(),
                      .regions = block_regions(hybrid_groups()),
                      .profile = {},
                      .factors = {}};
  const auto said =
      transfer_notes(config, self.geometry, hybrid_groups(), transfer_sizes(config, 0), 20000);
  REQUIRE(said.size() == 1);
  const int reach = reach_in(said[0]);
  // As NixlPushReceiver takes it.
  const auto fits = [&](int tokens) {
    StagingBuffer staging(memory_of(config.buffer_bytes));
    const auto memory = staging.take(staging.size() / 2);
    NixlSlots slots(memory->bytes(), self.geometry, self.regions, 16);
    const NixlPushLanding landing(self, 16, tokens, 0);
    return slots.take(landing.counts()).has_value() &&
           staging.take(landing.content().bytes) != nullptr;
  };
  CHECK(reach > 1000);
  CHECK(fits(reach));
  CHECK_FALSE(fits(reach + 1));
}

TEST_CASE("over Mooncake a buffer that was asked for holds half as long a prompt",
          "[kv_transfer][reach]") {
  const KvTransferConfig config{
      .role = KvRole::decode, .plane = KvPlane::mooncake, .buffer_bytes = 1 << 26};
  const auto said = notes(config);
  REQUIRE(said.size() == 1);
  const int reach = reach_in(said[0]);
  CHECK(reach == 256);
  // As MooncakePuller takes it.
  const MooncakeSelf self{.geometry = llama(), .regions = block_regions(std::vector<int>(32, 0))};
  for (const int tokens : {reach, reach + 1}) {
    StagingBuffer staging(memory_of(config.buffer_bytes));
    const MooncakeLanding landing(self, tokens, 0, 1);
    const auto blocks = staging.take(landing.bytes());
    const auto rows = staging.take(landing.content().bytes);
    CHECK((blocks != nullptr && rows != nullptr) == (tokens == reach));
  }
}

TEST_CASE("over NIXL a prompt is kept exactly up to that length", "[kv_transfer][reach]") {
  KvTransferConfig config{.role = KvRole::prefill, .plane = KvPlane::nixl, .buffer_bytes = 1 << 26};
  const int longest = 2000;
  const auto said = notes(config, longest);
  REQUIRE(said.size() == 1);
  const int reach = reach_in(said[0]);
  const KvGeometry geometry = llama();
  const auto kept = [&](int tokens) {
    NixlExports exports(memory_of(config.buffer_bytes), geometry,
                        block_regions(std::vector<int>(32, 0)), BlockOrder::packed,
                        nixl_scratch_bytes(geometry, longest), std::chrono::seconds(60));
    const auto read = [](const KvContent&, std::span<std::byte>) { return true; };
    return exports.keep("a", 0, tokens, read).has_value();
  };
  CHECK(reach > 400);
  CHECK(kept(reach));
  CHECK_FALSE(kept(reach + 1));
}

}  // namespace quire::test
