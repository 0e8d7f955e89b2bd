// What others may make this server do over Mooncake is bounded.

#include <catch2/catch.hpp>

#include "engine/kv_transfer/mooncake/landing.h"
#include "engine/kv_transfer/mooncake/writer.h"

namespace quire::test {

TEST_CASE("nobody has others dialled", "[mooncake]") {
  const PeerList none, peers(std::vector<KvPeer>{{"10.0.0.9"}});
  const auto written_to = [](const PeerList& list, const std::string& asker, std::string host) {
    MooncakeAsk ask{.host = std::move(host), .port = 99};
    check_mooncake_host(list, asker, ask);
    return ask.host;
  };
  CHECK(written_to(none, "10.0.0.8", "10.0.0.8") == "10.0.0.8");
  CHECK(written_to(none, "127.0.0.1", "localhost") == "127.0.0.1");
  CHECK(written_to(none, "::1", "127.0.0.2") == "127.0.0.2");
  CHECK(written_to(peers, "10.0.0.8", "10.0.0.9") == "10.0.0.9");
  for (const char* host : {"10.0.0.9", "127.0.0.1", "localhost", "a.invalid", "", "0.0.0.0"})
    CHECK_THROWS_AS(written_to(none, "10.0.0.8", host), KvLost);
  CHECK_THROWS_AS(written_to(peers, "", ""), KvLost);
}

TEST_CASE("bytes that arrive one by one, far apart, are refused before long", "[mooncake]") {
  MooncakeSelf self;
  self.geometry.layers = {{.name = "model.layers.0.self_attn",
                           .kind = KvKind::full,
                           .dtype = "bfloat16",
                           .heads = 4,
                           .head_size = 16,
                           .planes = 2,
                           .row_bytes = 128,
                           .block_size = 16}};
  self.regions = block_regions(std::vector<int>{0});
  MooncakeLanding landing(self, 33, 0, 1);
  const auto arrive = [&] {
    for (std::int64_t at = 0; at < landing.bytes(); at += 2) landing.arrived(at, 1);
  };
  CHECK_THROWS_AS(arrive(), KvLost);
  CHECK(landing.arrived_bytes() < 1000);
}

}  // namespace quire::test
