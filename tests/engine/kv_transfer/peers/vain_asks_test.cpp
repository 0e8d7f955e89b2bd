#include "engine/kv_transfer/peers/vain_asks.h"

#include <catch2/catch.hpp>

#include "tests/engine/kv_transfer/transfer_ends.h"

namespace quire::test {

TEST_CASE("a peer is asked in vain only so often, and for what it is at any time",
          "[kv_transfer]") {
  VainAsks vain;
  const KvLost other(KvLossReason::expired, "now answers");
  auto now = VainAsks::Clock::time_point(1h);
  for (int i = 0; i < VainAsks::kMost; ++i) {
    CHECK_FALSE(vain.refusal("a", "made up", now));
    vain.was_in_vain("a", other, {"now"}, now);
  }
  const auto refusal = vain.refusal("a", "made up", now);
  REQUIRE(refusal);
  CHECK(refusal->reason() == KvLossReason::expired);
  CHECK_THAT(refusal->what(), Catch::Contains("16 times") && Catch::Contains("now answers"));
  CHECK_FALSE(vain.refusal("a", "now", now));
  CHECK_FALSE(vain.refusal("b", "made up", now));
  now += VainAsks::kOneComesAgain;
  CHECK_FALSE(vain.refusal("a", "made up", now));
  vain.was_in_vain("a", KvLost(KvLossReason::incompatible, "heads"), {"now"}, now);
  CHECK(vain.refusal("a", "now", now));  // it is that one, and does not fit
  now += VainAsks::kMost * VainAsks::kOneComesAgain;
  vain.was_in_vain("b", other, {}, now);
  CHECK(vain.num_peers() == 1);  // what is full again is forgotten
}

TEST_CASE("many questions at once in vain are forgiven as soon as few", "[kv_transfer]") {
  VainAsks vain;
  const auto now = VainAsks::Clock::time_point(1h);
  for (int i = 0; i < 1000; ++i)
    vain.was_in_vain("a", KvLost(KvLossReason::expired, "now answers"), {"now"}, now);
  CHECK(vain.refusal("a", "made up", now));
  CHECK_FALSE(vain.refusal("a", "made up", now + VainAsks::kOneComesAgain));
}

TEST_CASE("a wrong number of ranks takes nothing from the right one", "[kv_transfer]") {
  VainAsks vain;
  const auto now = VainAsks::Clock::time_point(1h);
  for (int i = 0; i < VainAsks::kMost; ++i)
    vain.was_in_vain("a", KvLost(KvLossReason::expired, "now answers"), {"now"}, now);
  vain.was_in_vain("a", KvLost(KvLossReason::incompatible, "tp_size"), {"now"}, now, 2);
  CHECK(vain.knows("a", "now", 1));
  CHECK_FALSE(vain.refusal("a", "now", now, 1));
  CHECK(vain.refusal("a", "now", now, 2));
  vain.was_in_vain("a", KvLost(KvLossReason::expired, "next answers"), {"next"}, now);
  CHECK_FALSE(vain.knows("a", "now", 1));
  CHECK_FALSE(vain.refusal("a", "next", now, 2));
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
