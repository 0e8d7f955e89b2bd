// Whatever happens to a line or a peer at any step of Mooncake's protocols: the right bytes or a
// loss with a reason, and all memory and all connections back on both sides. QUIRE_FAULT_RUNS says
// how many fetches (300), QUIRE_FAULT_SEED with which the first begins (1).

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <optional>

#include "tests/engine/kv_transfer/mooncake/ends.h"
#include "tests/engine/kv_transfer/mooncake/relay.h"

namespace quire::test {
namespace {

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Case {
  explicit Case(std::uint64_t seed) : fault(any_mooncake_fault(seed, kNumMooncakeLayers)) {
    std::mt19937_64 random(seed ^ 0x5eed);
    num_tokens = static_cast<int>(1 + random() % 200);
    if (random() % 3 == 0) from = static_cast<int>(random() % static_cast<unsigned>(num_tokens));
    if (random() % 4 == 0) kept_after = std::chrono::microseconds(random() % 20'000);
    if (random() % 8 == 0) cancelled_after = std::chrono::microseconds(random() % 10'000);
  }

  MooncakeFault fault;
  int num_tokens = 0, from = 0;
  std::optional<std::chrono::microseconds> kept_after = {};  // both servers were asked at once
  std::optional<std::chrono::microseconds> cancelled_after = {};
};

KvFetched run(MooncakeEnds& ends, std::uint64_t seed, const Case& one,
              const MooncakeEnds::Prefill& prefill) {
  if (!one.kept_after) ends.keep(seed, prefill);
  ends.reader().watch(RequestId{seed}, prefill.source);
  ends.reader().fetch(MooncakeEnds::fetch_of(seed, prefill, one.from));
  if (one.kept_after) {
    std::this_thread::sleep_for(*one.kept_after);
    ends.keep(seed, prefill);
  }
  if (one.cancelled_after) {
    std::this_thread::sleep_for(*one.cancelled_after);
    ends.reader().cancel(RequestId{seed});
  }
  KvFetched fetched = ends.await();
  ends.reader().release(RequestId{seed});
  return fetched;
}

}  // namespace

TEST_CASE("whatever a line does to Mooncake's protocols, the bytes are right or there are none",
          "[mooncake][faults]") {
  const std::uint64_t runs = number_of("QUIRE_FAULT_RUNS", 300);
  const std::uint64_t begin = number_of("QUIRE_FAULT_SEED", 1);
  MooncakeEnds ends;
  const std::size_t descriptors = num_descriptors();
  std::map<KvLossReason, int> losses;
  int whole = 0, struck = 0, untold = 0;
  for (std::uint64_t seed = begin; seed < begin + runs; ++seed) {
    const Case one(seed);
    INFO("seed " << seed << ", leg " << static_cast<int>(one.fault.leg) << ", fault "
                 << static_cast<int>(one.fault.plan.fault) << " of frame " << one.fault.plan.frame
                 << (one.fault.plan.towards_reader ? " back" : " there")
                 << (one.fault.plan.every_connection ? ", always" : ""));
    MooncakeEnds::Prefill prefill = ends.made(seed, one.num_tokens);
    {
      MooncakeRelay relay(ends.owner_port(), one.fault);
      prefill.source.address = here(relay.port());
      const KvFetched fetched = run(ends, seed, one, prefill);
      CHECK(fetched.request == RequestId{seed});
      if (fetched.loss) {
        INFO(fetched.detail);
        ++losses[*fetched.loss];
        CHECK(fetched.range == nullptr);
      } else {
        ++whole;
        CHECK(MooncakeEnds::is_right(fetched, prefill, one.from));
      }
      struck += relay.has_struck() ? 1 : 0;
      // Over lines that work whoever prefills hears that nobody wants it any more.
      if (!one.fault.plan.every_connection)
        untold += comes_true([&] { return ends.kept().used_bytes() == 0; }) ? 0 : 1;
    }
    CHECK(comes_true([&] {
      ends.kept().expire(Clock::now() + 1h);
      return ends.kept().used_bytes() == 0 && ends.arriving().used() == 0;
    }));
    CHECK(comes_true([&] { return num_descriptors() <= descriptors; }));
  }
  CHECK(untold <= static_cast<int>(runs) / 50);  // this machine may be slow for longer than silence
  CHECK(struck > static_cast<int>(runs) / 2);
  CHECK(whole > static_cast<int>(runs) / 10);
  CHECK(losses[KvLossReason::peer_lost] > 0);
  CHECK(losses[KvLossReason::corrupt] > 0);
}

TEST_CASE("a fetch may end while a write into its room is half way", "[mooncake][faults]") {
  MooncakeEnds ends({.silence = 2s});
  const std::size_t descriptors = num_descriptors();
  int num_held = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    MooncakeEnds::Prefill prefill = ends.made(seed, 200);
    {
      MooncakeFault fault{MooncakeLeg::data, {LineFault::pause_within}};
      fault.plan.towards_reader = false;
      fault.plan.frame = static_cast<int>(seed % kNumMooncakeLayers);
      fault.plan.seed = seed;
      MooncakeRelay relay(ends.owner_port(), fault);
      prefill.source.address = here(relay.port());
      ends.keep(seed, prefill);
      ends.reader().watch(RequestId{seed}, prefill.source);
      ends.reader().fetch(MooncakeEnds::fetch_of(seed, prefill));
      comes_true([&] { return relay.has_struck(); });
      std::this_thread::sleep_for(2ms);
      ends.reader().cancel(RequestId{seed});
      {
        const KvFetched fetched = ends.await();
        num_held += fetched.loss && ends.arriving().used() > 0 ? 1 : 0;
        if (!fetched.loss) CHECK(MooncakeEnds::is_right(fetched, prefill, 0));
      }
      ends.reader().release(RequestId{seed});
      if (seed % 4 == 0) {  // and so may whoever decodes
        ends.stop_reader();
        ends.start_reader();
      }
      CHECK(comes_true([&] { return ends.arriving().used() == 0; }));
    }
    ends.kept().expire(Clock::now() + 1h);
    CHECK(comes_true(
        [&] { return ends.kept().used_bytes() == 0 && num_descriptors() <= descriptors; }));
  }
  CHECK(num_held > 0);  // not used for something else before the last byte
}

TEST_CASE("whoever prefills hears over another line that nobody wants it", "[mooncake][faults]") {
  MooncakeEnds ends({.silence = 500ms});
  std::uint64_t seed = 0;
  for (const MooncakeLeg leg : {MooncakeLeg::bootstrap, MooncakeLeg::asks}) {
    for (const LineFault fault : {LineFault::drop, LineFault::cut, LineFault::stall}) {
      INFO("leg " << static_cast<int>(leg) << ", fault " << static_cast<int>(fault));
      MooncakeEnds::Prefill prefill = ends.made(++seed, 50);
      ends.keep(seed, prefill);
      MooncakeFault plan{leg, {fault}};
      plan.plan.towards_reader = false;
      MooncakeRelay relay(ends.owner_port(), plan);
      prefill.source.address = here(relay.port());
      ends.reader().watch(RequestId{seed}, prefill.source);
      ends.reader().release(RequestId{seed});
      CHECK(comes_true([&] { return ends.kept().used_bytes() == 0; }));
    }
  }
}

TEST_CASE("whoever prefills and fails to write what is cancelled hears that nobody wants it",
          "[mooncake][faults]") {
  MooncakeEnds ends({.silence = 500ms});
  MooncakeEnds::Prefill prefill = ends.made(1, 50);
  ends.keep(1, prefill);
  MooncakeRelay relay(ends.owner_port(), {MooncakeLeg::data, {LineFault::stall}});
  prefill.source.address = here(relay.port());
  ends.reader().watch(RequestId{1}, prefill.source);
  ends.reader().fetch(MooncakeEnds::fetch_of(1, prefill));
  REQUIRE(comes_true([&] { return relay.has_struck(); }));
  ends.reader().cancel(RequestId{1});
  CHECK(ends.await().detail == "cancelled");
  ends.reader().release(RequestId{1});
  CHECK(comes_true([&] { return ends.kept().used_bytes() == 0; }));
}

TEST_CASE("whoever prefills too late hears that nobody wants it", "[mooncake]") {
  MooncakeEnds ends({.patience = 200ms});
  const MooncakeEnds::Prefill prefill = ends.made(1, 50);
  CHECK(ends.fetched(1, prefill).loss == KvLossReason::expired);
  ends.reader().release(RequestId{1});
  std::this_thread::sleep_for(20ms);
  ends.keep(1, prefill);
  CHECK(comes_true([&] { return ends.kept().used_bytes() == 0; }));
}

TEST_CASE("a server that answers is silent no more, whatever it answers", "[mooncake]") {
  MooncakeEnds ends;
  MooncakeEnds::Prefill prefill = ends.made(1, 50);
  std::uint16_t port = 0;
  {
    const Descriptor silent = std::move(*listen_at(here(0)));
    port = port_of(silent);
    prefill.source.address = here(port);
    CHECK(ends.fetched(1, prefill).loss == KvLossReason::peer_lost);
    CHECK(ends.fetched(1, prefill).detail.find("left alone") != std::string::npos);
  }
  ends.stop_owner();
  ends.start_owner(port);
  ends.keep(1, prefill);
  std::this_thread::sleep_for(1100ms);  // its first rest
  KvFetch wrong = MooncakeEnds::fetch_of(1, prefill);
  wrong.prompt_hash = 2;
  ends.reader().fetch(wrong);
  CHECK(ends.await().loss == KvLossReason::prompt);
  CHECK_FALSE(ends.fetched(1, prefill).loss);
}

}  // namespace quire::test
