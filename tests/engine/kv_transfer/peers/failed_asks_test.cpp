#include "engine/kv_transfer/peers/failed_asks.h"

#include <catch2/catch.hpp>

#include "tests/engine/kv_transfer/transfer_ends.h"

namespace quire::test {

TEST_CASE("a peer is asked in vain only so often, and for what it is at any time",
          "[kv_transfer]") {
  FailedAsks asks;
  const KvLost other(KvLossReason::expired, "now answers");
  auto now = FailedAsks::Clock::time_point(1h);
  for (int i = 0; i < FailedAsks::kMost; ++i) {
    CHECK_FALSE(asks.refusal("a", "made up", now));
    asks.was_in_vain("a", other, {"now"}, now);
  }
  const auto refusal = asks.refusal("a", "made up", now);
  REQUIRE(refusal);
  CHECK(refusal->reason() == KvLossReason::expired);
  CHECK_THAT(refusal->what(), Catch::Contains("16 times") && Catch::Contains("now answers"));
  CHECK_FALSE(asks.refusal("a", "now", now));
  CHECK_FALSE(asks.refusal("b", "made up", now));
  now += FailedAsks::kOneComesAgain;
  CHECK_FALSE(asks.refusal("a", "made up", now));
  asks.was_in_vain("a", KvLost(KvLossReason::incompatible, "heads"), {"now"}, now);
  CHECK(asks.refusal("a", "now", now));  // it is that one, and does not fit
  now += FailedAsks::kMost * FailedAsks::kOneComesAgain;
  asks.was_in_vain("b", other, {}, now);
  CHECK(asks.num_peers() == 1);  // what is full again is forgotten
}

TEST_CASE("many questions at once in vain are forgiven as soon as few", "[kv_transfer]") {
  FailedAsks asks;
  const auto now = FailedAsks::Clock::time_point(1h);
  for (int i = 0; i < 1000; ++i)
    asks.was_in_vain("a", KvLost(KvLossReason::expired, "now answers"), {"now"}, now);
  CHECK(asks.refusal("a", "made up", now));
  CHECK_FALSE(asks.refusal("a", "made up", now + FailedAsks::kOneComesAgain));
}

TEST_CASE("a wrong number of ranks takes nothing from the right one", "[kv_transfer]") {
  FailedAsks asks;
  const auto now = FailedAsks::Clock::time_point(1h);
  for (int i = 0; i < FailedAsks::kMost; ++i)
    asks.was_in_vain("a", KvLost(KvLossReason::expired, "now answers"), {"now"}, now);
  asks.was_in_vain("a", KvLost(KvLossReason::incompatible, "tp_size"), {"now"}, now, 2);
  CHECK(asks.knows("a", "now", 1));
  CHECK_FALSE(asks.refusal("a", "now", now, 1));
  CHECK(asks.refusal("a", "now", now, 2));
  asks.was_in_vain("a", KvLost(KvLossReason::expired, "next answers"), {"next"}, now);
  CHECK_FALSE(asks.knows("a", "now", 1));
  CHECK_FALSE(asks.refusal("a", "next", now, 2));
}

// Each would otherwise end the line over which others fetch, and begin one.
TEST_CASE("names of engines that there are not end no line of others", "[kv_transfer]") {
  Ends ends(600ms);
  Ends::Prefill prefill = ends.keep(1);
  KvSource wrong = prefill.source;
  int left_alone = 0;
  for (std::uint64_t id = 100; id < 140; ++id) {
    wrong.engine = "made up " + std::to_string(id);
    ends.reader().fetch(ends.fetch_of(id, wrong));
    const KvFetched fetched = ends.await();
    CHECK(fetched.loss == KvLossReason::expired);
    left_alone += fetched.detail.find("left alone") != std::string::npos ? 1 : 0;
  }
  CHECK(left_alone > 10);
  ends.reader().fetch(ends.fetch_of(1, prefill.source));
  const KvFetched fetched = ends.await();
  CHECK_FALSE(fetched.loss);
}

}  // namespace quire::test
