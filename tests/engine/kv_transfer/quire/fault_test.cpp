// Whatever happens to the line or the peer at any step: the right bytes or a loss with a reason,
// and all memory back.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>

#include "tests/engine/kv_transfer/faulty_relay.h"
#include "tests/engine/kv_transfer/transfer_ends.h"

namespace quire::test {
namespace {

void strike(Ends& ends, int num_frames) {
  const char* asked = std::getenv("QUIRE_FAULT_RUNS");
  const std::uint64_t runs = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 300;
  std::map<KvLossReason, int> losses;
  int whole = 0, struck = 0;
  for (std::uint64_t seed = 1; seed <= runs; ++seed) {
    INFO("seed " << seed);
    FaultyRelay relay(ends.owner_port(), any_fault(seed, num_frames));
    Ends::Prefill prefill = ends.keep(seed);
    prefill.source.address = address_of(relay.port());
    ends.reader().watch(RequestId{seed}, prefill.source);
    ends.reader().fetch(ends.fetch_of(seed, prefill.source));
    {
      const KvFetched fetched = ends.await();
      CHECK(fetched.request == RequestId{seed});
      if (fetched.loss) {
        ++losses[*fetched.loss];
        CHECK(fetched.range == nullptr);
      } else {
        ++whole;
        const auto bytes = fetched.range->bytes();
        CHECK(std::equal(bytes.begin(), bytes.end(), prefill.bytes.begin(), prefill.bytes.end()));
      }
    }
    ends.reader().release(RequestId{seed});
    ends.check_all_came_back();
    struck += relay.has_struck() ? 1 : 0;
  }
  CHECK(struck > static_cast<int>(runs) / 2);
  CHECK(whole > static_cast<int>(runs) / 10);
  CHECK(losses[KvLossReason::peer_lost] > 0);
  CHECK(losses[KvLossReason::corrupt] > 0);
}

}  // namespace

TEST_CASE("whatever a line does, the bytes are right or there are none", "[kv_transfer][faults]") {
  Ends ends;
  strike(ends, 6);
}

TEST_CASE("whatever one of several lines does, the bytes are right or there are none",
          "[kv_transfer][faults]") {
  Ends ends({.line_bytes = 6000});  // four of them, a strip each
  strike(ends, 3);
}

TEST_CASE("lines that a peer has no place for are done without", "[kv_transfer]") {
  Ends ends({.silence = 300ms, .max_connections = 2, .line_bytes = 6000});
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const Ends::Prefill prefill = ends.keep(seed);
    ends.reader().watch(RequestId{seed}, prefill.source);
    ends.reader().fetch(ends.fetch_of(seed, prefill.source));
    const KvFetched fetched = ends.await();
    INFO(fetched.detail);
    REQUIRE_FALSE(fetched.loss);
    CHECK(std::equal(prefill.bytes.begin(), prefill.bytes.end(), fetched.range->bytes().begin()));
    ends.reader().release(RequestId{seed});
  }
  ends.check_all_came_back();
}

TEST_CASE("a peer that dies and comes back is found again", "[kv_transfer][faults]") {
  Ends ends;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Ends::Prefill prefill = ends.keep(seed);
    prefill.source.address = address_of(ends.owner_port());
    if (seed % 3 == 0) ends.stop_owner();
    ends.reader().fetch(ends.fetch_of(seed, prefill.source));
    const KvFetched fetched = ends.await();
    CHECK(fetched.loss.has_value() == (seed % 3 == 0));
    if (seed % 3 == 0) ends.start_owner();
  }
  ends.check_all_came_back();
}

TEST_CASE("what a peer refuses has its reason", "[kv_transfer][faults]") {
  Ends ends;
  const auto loss_of = [&](auto change) {
    Ends::Prefill prefill = ends.keep(1);
    prefill.source.address = address_of(ends.owner_port());
    KvFetch fetch = ends.fetch_of(1, prefill.source);
    change(fetch);
    ends.reader().fetch(fetch);
    return ends.await().loss;
  };
  CHECK_FALSE(loss_of([](KvFetch&) {}));
  CHECK(loss_of([](KvFetch& f) { f.source.engine = "x"; }) == KvLossReason::expired);
  CHECK(loss_of([](KvFetch& f) { f.source.prefill.key = "x"; }) == KvLossReason::expired);
  CHECK(loss_of([](KvFetch& f) { ++f.source.prefill.generation; }) == KvLossReason::expired);
  CHECK(loss_of([](KvFetch& f) { f.prompt_hash = 2; }) == KvLossReason::prompt);
  CHECK(loss_of([](KvFetch& f) { f.num_tokens = 99; }) == KvLossReason::prompt);
  CHECK(loss_of([](KvFetch& f) { f.from = -1; }) == KvLossReason::refused);
  CHECK(loss_of([](KvFetch& f) { f.source.address.port = 1; }) == KvLossReason::peer_lost);
  ends.check_all_came_back();
}

TEST_CASE("a buffer that is full is waited for, one that is too small is not",
          "[kv_transfer][faults]") {
  Ends ends(2s);
  Ends::Prefill prefill = ends.keep(1);
  prefill.source.address = address_of(ends.owner_port());
  KvFetch fetch = ends.fetch_of(1, prefill.source);
  {
    const auto all = ends.arriving().take(1 << 20);
    REQUIRE(all != nullptr);
    ends.reader().fetch(fetch);
    std::this_thread::sleep_for(50ms);
    CHECK(ends.reader().take().empty());
  }
  ends.reader().room_came();
  CHECK_FALSE(ends.await().loss);
  fetch.num_tokens = 100'000;
  ends.reader().fetch(fetch);
  CHECK(ends.await().loss == KvLossReason::no_room);
  ends.check_all_came_back();
}

}  // namespace quire::test
