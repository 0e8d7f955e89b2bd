// Where blocks land that a Mooncake peer writes: addresses, what has arrived, and which parts of a
// prefill the blocks of others hold.

#include "engine/kv_transfer/mooncake/landing.h"

#include <catch2/catch.hpp>
#include <random>

#include "engine/kv_transfer/blocks/state_layout.h"
#include "engine/kv_transfer/mooncake/writer.h"

namespace quire::test {
namespace {

KvLayerGeometry layer(const std::string& name, int heads, int head_size, int planes,
                      int window = 0) {
  return {.name = name,
          .kind = planes == 1 ? KvKind::mla : KvKind::full,
          .dtype = "bfloat16",
          .heads = heads,
          .head_size = head_size,
          .planes = planes,
          .row_bytes = std::int64_t{2} * heads * head_size,
          .window = window,
          .block_size = 16};
}

// Registration by bytes of mixed shapes: latents, and an Eagle draft's layer of whole heads.
MooncakeSelf mixed() {
  MooncakeSelf self;
  self.geometry.layers = {layer("model.layers.0.self_attn", 1, 96, 1),
                          layer("model.layers.1.self_attn", 1, 96, 1),
                          layer("draft.layers.0.self_attn", 8, 64, 2)};
  self.regions = block_regions(std::vector<int>{0, 0, 0});
  return self;
}

MooncakeSelf windowed() {
  MooncakeSelf self;
  self.geometry.layers = {layer("model.layers.0.self_attn", 4, 16, 2),
                          layer("model.layers.1.self_attn", 4, 16, 2, 40)};
  self.regions = block_regions(std::vector<int>{0, 1});
  return self;
}

// A delta net's state of 4,864 bytes, 19 tokens' worth of the other layers' keys and values.
MooncakeSelf hybrid() {
  MooncakeSelf self;
  KvLayerGeometry state{.name = "model.layers.0.linear_attn", .kind = KvKind::mamba};
  state.state = {.form = StateForm::delta_net,
                 .conv_rows = 3,
                 .conv_channels = 128,
                 .conv_element_bytes = 2,
                 .heads = 4,
                 .head_rows = 16,
                 .head_columns = 16,
                 .element_bytes = 4};
  state.row_bytes = 3 * 128 * 2 + 4 * 16 * 16 * 4;
  self.geometry.layers = {state, layer("model.layers.1.self_attn", 4, 16, 2),
                          layer("model.layers.2.self_attn", 4, 16, 2, 40)};
  self.regions = block_regions(std::vector<int>{0, 1, 2});
  return self;
}

MooncakeAsk ask_of(const MooncakeSelf& self, int ranks = 1, int rank = 0) {
  MooncakeAsk ask{.host = "a", .port = 1, .tensor_ranks = ranks, .tensor_rank = rank};
  ask.regions = mooncake_regions(self);
  return ask;
}

}  // namespace

TEST_CASE("regions are registered by their bytes, a draft's layers behind the target's",
          "[mooncake]") {
  const auto regions = mooncake_regions(mixed());
  REQUIRE(regions.size() == 3);
  CHECK(regions[0].layer == "model.layers.0.self_attn.attn");
  CHECK(regions[0].payload == 3072);  // as vLLM registers (2, 16, 96) of 16 bits
  CHECK(regions[2].layer == "model.layers.2.self_attn.attn");
  CHECK(regions[2].layer_index == 2);
  CHECK(regions[2].payload == 16 * 2 * 8 * 64 * 2);
  const auto shares = mooncake_shares(mixed(), ask_of(mixed()));
  REQUIRE(shares.size() == 3);
  for (const MooncakeShare& share : shares) CHECK(share.block_size == 16);
  CHECK(shares[2].num_heads == 8);
}

TEST_CASE("only whole bytes of expected blocks have a place", "[mooncake]") {
  const MooncakeSelf self = mixed();
  const MooncakeLanding landing(self, 40, 0, 1000);
  CHECK(landing.num_ids() == 3);
  CHECK(landing.blocks() == std::vector<std::vector<std::int64_t>>{{1000, 1001, 1002}});
  CHECK(landing.bytes() == 3 * (2 * 3072 + 32768));
  const std::uint64_t region = kMooncakeRegionBytes;
  CHECK(landing.place(region + 1000 * 3072, 3 * 3072) == 0);
  CHECK(landing.place(region + 1001 * 3072 + 5, 7) == 3072 + 5);
  CHECK(landing.place(2 * region + 1002 * 3072, 3072) == 3 * 3072 + 2 * 3072);
  CHECK(landing.place(3 * region + 1000 * 32768, 3 * 32768) == 6 * 3072);
  for (const auto& [address, bytes] :
       std::vector<std::pair<std::uint64_t, std::uint64_t>>{{region + 1000 * 3072 - 1, 1},
                                                            {region + 1003 * 3072, 1},
                                                            {region + 1002 * 3072, 3073},
                                                            {region + 1000 * 3072, 0},
                                                            {region + 1000 * 3072, ~0ull},
                                                            {region + 1002 * 3072, ~0ull - 3},
                                                            {1000 * 3072, 1},
                                                            {4 * region + 1000 * 3072, 1},
                                                            {~0ull, 1},
                                                            {0, 0}})
    CHECK_FALSE(landing.place(address, bytes));
}

TEST_CASE("what has arrived is counted once, in any order", "[mooncake]") {
  const MooncakeSelf self = windowed();
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    MooncakeLanding landing(self, 33, 0, 1);
    std::vector<bool> there(static_cast<std::size_t>(landing.bytes()), false);
    for (int i = 0; i < 40; ++i) {
      const auto at = static_cast<std::int64_t>(random() % there.size());
      const auto bytes =
          1 + static_cast<std::int64_t>(random() % (there.size() - static_cast<std::size_t>(at)));
      landing.arrived(at, bytes);
      std::fill_n(there.begin() + at, bytes, true);
      const auto expected = std::count(there.begin(), there.end(), true);
      REQUIRE(landing.arrived_bytes() == expected);
      REQUIRE(landing.is_complete() == (expected == landing.bytes()));
    }
    landing.arrived(0, landing.bytes());
    CHECK(landing.is_complete());
  }
}

TEST_CASE("a window asks for its last blocks, and what is here for none", "[mooncake]") {
  const MooncakeSelf self = windowed();
  const MooncakeLanding all(self, 100, 0, 1);
  CHECK(all.blocks()[0].size() == 7);
  CHECK(all.blocks()[1].size() == 4);  // 40 tokens from the 61st on
  CHECK(all.blocks()[0].front() == 1);
  CHECK(all.blocks()[1].front() == 8);
  const MooncakeLanding rest(self, 100, 96, 1);
  CHECK(rest.blocks()[0].size() == 1);
  CHECK(rest.blocks()[1].size() == 1);
}

TEST_CASE("rows beside a window that the other side did not keep are not taken", "[mooncake]") {
  MooncakeSelf self = windowed();
  const KvContent kept = kv_content(self.geometry, 100);  // in blocks of 16: from 48 on
  self.block_size = 64;
  const auto shares = mooncake_shares(self, ask_of(self));
  CHECK_THROWS_AS(mooncake_first_rows(kept, shares, false), KvLost);  // whoever does not read of it
  const auto first_rows = mooncake_first_rows(kept, shares, true);
  CHECK(first_rows == std::vector<std::uint64_t>{0, 48});
  MooncakeLanding landing(self, 100, 0, 1);
  CHECK(landing.content().strips[2].first == 0);
  const KvStrip before = landing.content().strips[3];
  landing.has_from(first_rows);
  CHECK(landing.content().strips[0].rows == 100);
  const KvStrip& strip = landing.content().strips[3];
  CHECK(strip.first == 48);
  CHECK(strip.rows == 52);
  CHECK(strip.offset == before.offset + 48 * strip.row_bytes);
  for (const std::vector<std::uint64_t>& wrong :
       std::vector<std::vector<std::uint64_t>>{{0}, {0, 61}, {1, 48}, {0, ~0ull}})
    CHECK_THROWS_AS(landing.has_from(wrong), KvLost);
  MooncakeLanding rest(self, 100, 96, 1);
  rest.has_from(first_rows);
  CHECK(rest.content().strips[0].rows == 4);
  self.block_size = 16;
  const auto equal = mooncake_shares(self, ask_of(self));
  CHECK(mooncake_first_rows(kept, equal, false) == first_rows);
}

TEST_CASE("ranks get their heads, of which several may have the same", "[mooncake]") {
  MooncakeSelf self = windowed();
  for (const int ranks : {1, 2, 4, 8}) {
    for (int rank = 0; rank < ranks; ++rank) {
      MooncakeAsk ask = ask_of(self, ranks, rank);
      const int heads = std::max(1, 4 / ranks);
      for (MooncakeRegion& region : ask.regions)
        region.stride = region.payload = static_cast<std::uint64_t>(64 * 2 * 2 * 16 * heads);
      const auto shares = mooncake_shares(self, ask);
      CHECK(shares[0].num_heads == heads);
      CHECK(shares[0].first_head == rank * 4 / ranks);
      CHECK(shares[0].block_size == 64);
    }
  }
  CHECK(mooncake_shares(mixed(), ask_of(mixed(), 1, 0))[0].first_head == 0);
}

TEST_CASE("a state has a block of its group, which is as many of the kernel's as it fills",
          "[mooncake][states]") {
  MooncakeSelf self = hybrid();
  CHECK(self.ratio() == 2);  // of 4,096 bytes
  const auto regions = mooncake_regions(self);
  CHECK(regions[0].layer == "model.layers.0.linear_attn");
  CHECK(regions[0].payload == 8192);
  CHECK(regions[1].layer == "model.layers.1.self_attn.attn");
  CHECK(regions[1].payload == 4096);
  const auto shares = mooncake_shares(self, ask_of(self));
  CHECK(shares[0].block_size == 0);
  CHECK(shares[1].block_size == 16);
  CHECK(shares[1].ratio == 2);
  const MooncakeLanding landing(self, 100, 0, 10);
  CHECK(landing.blocks() ==
        std::vector<std::vector<std::int64_t>>{{10}, {11, 12, 13, 14}, {15, 16, 17}});
  CHECK(landing.bytes() == 8192 + 8 * 4096 + 6 * 4096);
  CHECK(landing.place(kMooncakeRegionBytes + 10 * 8192, 8192) == 0);
  CHECK_FALSE(landing.place(kMooncakeRegionBytes + 11 * 8192, 1));
  CHECK(landing.place(2 * kMooncakeRegionBytes + 22 * 4096, 8 * 4096) == 8192);
  const MooncakeLanding rest(self, 100, 100, 10);  // of a state nothing is here
  CHECK(rest.blocks() == std::vector<std::vector<std::int64_t>>{{10}, {}, {}});
  self.block_size = 32;
  CHECK(self.ratio() == 1);
  CHECK(mooncake_regions(self)[0].payload == 8192);
}

TEST_CASE("a state comes after the same token, whole, and not from every server",
          "[mooncake][states]") {
  const MooncakeSelf self = hybrid();
  const KvContent kept = kv_content(self.geometry, 100);
  const auto first_rows = mooncake_first_rows(kept, mooncake_shares(self, ask_of(self)), true);
  CHECK(first_rows == std::vector<std::uint64_t>{99, 0, 48});
  for (const int from : {0, 64, 100}) {
    MooncakeLanding landing(self, 100, from, 1);
    landing.has_from(first_rows);
    CHECK(landing.content().strips[0].rows == 1);
  }
  for (const std::uint64_t token : {0, 98, 100}) {
    MooncakeLanding landing(self, 100, 100, 1);
    CHECK_THROWS_AS(landing.has_from(std::vector<std::uint64_t>{token, 0, 48}), KvLost);
  }
  CHECK_NOTHROW(check_mooncake_writers(self, 4, false));
  CHECK_THROWS_AS(check_mooncake_writers(self, 8, false), KvLost);  // of four heads
  MooncakeSelf drafts = self;
  drafts.geometry.draft_fingerprint = "d";
  CHECK_NOTHROW(check_mooncake_writers(drafts, 1, true));
  CHECK_THROWS_AS(check_mooncake_writers(drafts, 1, false), KvLost);
  CHECK_THROWS_AS(check_mooncake_ask(drafts, ask_of(drafts)), KvLost);
  CHECK_NOTHROW(check_mooncake_ask(self, ask_of(self)));
}

TEST_CASE("states' regions that do not fit are refused", "[mooncake][states]") {
  const MooncakeSelf self = hybrid();
  const auto is_refused = [&](auto change) {
    MooncakeAsk ask = ask_of(self);
    change(ask);
    try {
      mooncake_shares(self, ask);
    } catch (const KvLost& lost) {
      return lost.reason() == KvLossReason::incompatible;
    }
    return false;
  };
  CHECK_FALSE(is_refused([](MooncakeAsk&) {}));
  const auto paged = [](MooncakeAsk& ask, std::uint64_t bytes) {
    ask.regions[0].payload = ask.regions[0].stride = bytes;
  };
  CHECK_FALSE(is_refused([&](MooncakeAsk& ask) { paged(ask, 3 * 4096); }));  // larger blocks
  CHECK(is_refused([&](MooncakeAsk& ask) { paged(ask, 0); }));
  CHECK(is_refused([&](MooncakeAsk& ask) { paged(ask, 4096); }));  // no room for it
  CHECK(is_refused([&](MooncakeAsk& ask) { paged(ask, 4864); }));  // no whole blocks
  CHECK(is_refused([&](MooncakeAsk& ask) { paged(ask, std::uint64_t{1} << 40); }));
  CHECK(is_refused([](MooncakeAsk& ask) { ask.regions[0].stride = 4864; }));
  CHECK(is_refused([](MooncakeAsk& ask) { ask.tensor_ranks = 8; }));
}

TEST_CASE("blocks that would have more tokens than there are numbers are refused",
          "[mooncake][states]") {
  const MooncakeSelf self = hybrid();
  MooncakeAsk ask = ask_of(self);
  const std::uint64_t token = ask.regions[1].payload / 16;
  ask.regions[0].payload = ask.regions[0].stride = token << 14;  // a state, of blocks of one token
  ask.regions[1].payload = ask.regions[1].stride = token;
  ask.regions[2].payload = ask.regions[2].stride = token;
  CHECK(mooncake_shares(self, ask)[1].ratio == 1 << 14);
  ask.regions[2].payload = ask.regions[2].stride = token << 14;
  CHECK_THROWS_AS(mooncake_shares(self, ask), KvLost);
}

TEST_CASE("a Quire server of another protocol is refused over Mooncake by that name",
          "[mooncake]") {
  const MooncakeSelf self = windowed();
  const auto refusal = [&](int protocol) -> std::string {
    MooncakeAsk ask = ask_of(self);
    KvWelcome welcome;
    welcome.protocol = protocol;
    welcome.geometry = self.geometry;
    ask.geometry = encode_kv(welcome);
    try {
      check_mooncake_ask(self, ask);
    } catch (const KvLost& lost) {
      CHECK(lost.reason() == KvLossReason::incompatible);
      return lost.what();
    }
    return {};
  };
  CHECK(refusal(kKvProtocol).empty());
  CHECK_THAT(refusal(0), Catch::Contains("protocol is 3 here and 0 there"));
  CHECK_FALSE(refusal(kKvProtocol + 1).empty());
}

TEST_CASE("regions that do not fit this model are refused by name", "[mooncake]") {
  const MooncakeSelf self = windowed();
  const auto refused = [&](auto change) {
    MooncakeAsk ask = ask_of(self);
    change(ask);
    try {
      mooncake_shares(self, ask);
    } catch (const KvLost& lost) {
      CHECK(lost.reason() == KvLossReason::incompatible);
      return !std::string_view(lost.what()).empty();
    }
    return false;
  };
  CHECK(refused([](MooncakeAsk& ask) { ask.regions.pop_back(); }));
  CHECK(refused([](MooncakeAsk& ask) { ask.regions.clear(); }));
  CHECK(refused([](MooncakeAsk& ask) { ask.regions[1].layer_index = 0; }));
  CHECK(refused([](MooncakeAsk& ask) { ask.regions[1].layer_index = 2; }));
  CHECK(refused([](MooncakeAsk& ask) { ask.regions[1].group = 0; }));
  CHECK(refused([](MooncakeAsk& ask) { ask.regions[0].payload += 1; }));
  CHECK(refused([](MooncakeAsk& ask) { ask.regions[0].payload = 0; }));
  CHECK(refused([](MooncakeAsk& ask) { ask.regions[0].stride -= 1; }));
  CHECK(refused([](MooncakeAsk& ask) { ask.tensor_ranks = 3; }));
  CHECK(refused([](MooncakeAsk& ask) {
    ask.regions[0].payload = ask.regions[0].stride = std::uint64_t{1} << 60;
  }));
}

TEST_CASE("blocks that land become the rows that were kept", "[mooncake]") {
  std::mt19937 random(11);
  for (MooncakeSelf self : {mixed(), windowed()}) {
    for (const int size : {16, 32, 48}) {
      self.block_size = size;
      for (const auto& [tokens, from] : {std::pair(1, 0), {47, 0}, {96, 50}, {200, 64}}) {
        const KvContent kept = kv_content(self.geometry, tokens);
        std::vector<std::byte> rows(static_cast<std::size_t>(kept.bytes));
        for (std::byte& one : rows) one = static_cast<std::byte>(random());
        const MooncakeLanding landing(self, tokens, from, 77);
        std::vector<std::byte> landed(static_cast<std::size_t>(landing.bytes()));
        // As write_mooncake() cuts them.
        const auto regions = mooncake_regions(self);
        for (const MooncakeShare& share : mooncake_shares(self, ask_of(self))) {
          const MooncakeRegion& region = regions[share.layer];
          const auto& ids = landing.blocks()[static_cast<std::size_t>(region.group)];
          int block = (tokens + size - 1) / size - static_cast<int>(ids.size());
          for (const std::int64_t id : ids) {
            const auto at = landing.place(
                region.address + static_cast<std::uint64_t>(id) * region.stride, region.payload);
            REQUIRE(at);
            const BlockPlace place{.layer = share.layer,
                                   .first_token = block++ * size,
                                   .num_tokens = size,
                                   .first_head = 0,
                                   .num_heads = share.num_heads};
            content_to_block(
                self.geometry, place, kept, rows,
                std::span(landed).subspan(static_cast<std::size_t>(*at), region.payload));
          }
        }
        std::vector<std::byte> filled(static_cast<std::size_t>(landing.content().bytes));
        landing.fill(landed, 1, filled);
        for (const KvStrip& strip : landing.content().strips) {
          const auto whole = std::ranges::find_if(kept.strips, [&](const KvStrip& one) {
            return one.layer == strip.layer && one.plane == strip.plane;
          });
          const int first = std::max(strip.first, whole->first);
          const auto bytes = static_cast<std::size_t>((tokens - first) * strip.row_bytes);
          const auto* ours = filled.data() + strip.offset + (first - strip.first) * strip.row_bytes;
          const auto* theirs =
              rows.data() + whole->offset + (first - whole->first) * strip.row_bytes;
          CHECK(std::equal(ours, ours + bytes, theirs));
        }
        CHECK(landing.sum("a", landed) != landing.sum("b", landed));
      }
    }
  }
}

// As vLLM's ranks write: each its own page, one behind the other.
TEST_CASE("a state that several ranks have written is put together", "[mooncake][states]") {
  const MooncakeSelf self = hybrid();
  const KvLayerGeometry& state = self.geometry.layers[0];
  std::vector<std::byte> kept(static_cast<std::size_t>(state.row_bytes));
  std::mt19937 random(5);
  for (std::byte& one : kept) one = static_cast<std::byte>(random());
  for (const int ranks : {1, 2, 4}) {
    const MooncakeLanding landing(self, 20, 0, 1);
    std::vector<std::byte> landed(static_cast<std::size_t>(landing.bytes()));
    const std::size_t page = 8192 / static_cast<std::size_t>(ranks);
    for (int rank = 0; rank < ranks; ++rank)
      state_to_rank(state.state, kept, rank, ranks,
                    std::span(landed).subspan(static_cast<std::size_t>(rank) * page, page));
    std::vector<std::byte> filled(static_cast<std::size_t>(landing.content().bytes));
    landing.fill(landed, ranks, filled);
    CHECK(std::equal(kept.begin(), kept.end(), filled.begin()));
  }
}

}  // namespace quire::test
