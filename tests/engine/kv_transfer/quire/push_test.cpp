// Prefills that are sent while they are computed, whoever comes first: the right bytes or a loss
// with a reason, and all memory back.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <span>

#include "tests/engine/kv_transfer/faulty_relay.h"
#include "tests/engine/kv_transfer/transfer_ends.h"

namespace quire::test {
namespace {

bool holds(const KvFetched& fetched, const Ends::Prefill& prefill) {
  INFO(fetched.detail);
  REQUIRE_FALSE(fetched.loss);
  const auto bytes = fetched.range->bytes();
  return std::equal(bytes.begin(), bytes.end(), prefill.bytes.begin(), prefill.bytes.end());
}

// Computes all of it, a few tokens at a time.
void compute(Ends& ends, Ends::Pushing& pushing, std::mt19937_64& random) {
  const int all = pushing.kept.content.num_tokens;
  for (int until = 0; until < all;) {
    until = std::min(all, until + 1 + static_cast<int>(random() % 60));
    ends.computed(pushing, until);
    if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 4));
  }
}

// Looks at memory that the reader's thread is writing to, and nothing says when it has: not for
// TSan.
[[gnu::no_sanitize_thread]] bool has_arrived(std::span<const std::byte> memory,
                                             std::span<const std::byte> expected) {
  const volatile std::byte* const at = memory.data();
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (at[i] != expected[i]) return false;
  return true;
}

}  // namespace

TEST_CASE("what is computed bit by bit comes bit by bit", "[kv_transfer][push]") {
  Ends ends(2s);
  std::mt19937_64 random(1);
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    INFO("seed " << seed);
    const bool asks_first = seed % 2 == 0;
    if (asks_first) ends.reader().fetch(ends.fetch_of(seed, ends.pushed_source(seed)));
    if (asks_first) std::this_thread::sleep_for(5ms);
    Ends::Pushing pushing = ends.begin_push(seed);
    REQUIRE(ends.kept().begin(pushing.kept));
    if (!asks_first) ends.reader().fetch(ends.fetch_of(seed, ends.pushed_source(seed)));
    ends.reader().watch(RequestId{seed}, pushing.prefill.source);
    compute(ends, pushing, random);
    CHECK(holds(ends.await(), pushing.prefill));
    ends.reader().release(RequestId{seed});
  }
  ends.check_all_came_back();
}

TEST_CASE("pushes that wait for their prefill hold no room", "[kv_transfer][push]") {
  Ends ends({.silence = 2s, .lease = 300ms, .bytes = 32 << 10});
  const Ends::Prefill kept = ends.keep(1);
  const std::uint64_t waiting = 5;  // of which three would fill the reader's buffer
  for (std::uint64_t seed = 2; seed < 2 + waiting; ++seed)
    ends.reader().fetch(ends.fetch_of(seed, ends.pushed_source(seed)));
  ends.reader().watch(RequestId{1}, kept.source);
  ends.reader().fetch(ends.fetch_of(1, kept.source));
  CHECK(holds(ends.await(), kept));  // the first that ends
  ends.reader().release(RequestId{1});
  for (const KvFetched& fetched : ends.await(waiting)) {
    INFO(fetched.detail);
    CHECK(fetched.loss == KvLossReason::expired);
  }
  ends.check_all_came_back();
}

TEST_CASE("rows travel before the last of them is computed", "[kv_transfer][push]") {
  Ends ends(2s);
  Ends::Pushing pushing = ends.begin_push(1);
  REQUIRE(ends.kept().begin(pushing.kept));
  ends.reader().fetch(ends.fetch_of(1, pushing.prefill.source));
  ends.computed(pushing, 64);
  const auto has_come = [&] {
    // Rows of the first strip, in the reader's buffer.
    return has_arrived(ends.arriving().all(), std::span(pushing.prefill.bytes).first(64));
  };
  for (int i = 0; i < 2000 && !has_come(); ++i) std::this_thread::sleep_for(1ms);
  CHECK(has_come());
  CHECK(ends.reader().take().empty());
  ends.computed(pushing, 100);
  CHECK(holds(ends.await(), pushing.prefill));
  pushing.kept.range.reset();
  ends.check_all_came_back();
}

TEST_CASE("a push that comes to nothing is told at once", "[kv_transfer][push]") {
  Ends ends(2s);
  for (const auto why : {KvLossReason::no_room, KvLossReason::refused}) {
    Ends::Pushing pushing = ends.begin_push(1);
    const bool has_begun = why == KvLossReason::refused;
    if (has_begun) REQUIRE(ends.kept().begin(pushing.kept));
    ends.reader().fetch(ends.fetch_of(1, pushing.prefill.source));
    if (has_begun) ends.computed(pushing, 50);
    std::this_thread::sleep_for(10ms);
    ends.kept().fail(pushing.kept.key, has_begun ? pushing.kept.progress.get() : nullptr, why);
    CHECK(ends.await().loss == why);
    ends.kept().release(pushing.kept.key, 0);
  }
  ends.check_all_came_back();
}

TEST_CASE("a push that nobody computes ends with a lease", "[kv_transfer][push]") {
  Ends ends(Ends::Options{.silence = 200ms, .lease = 300ms});
  ends.reader().fetch(ends.fetch_of(7, ends.pushed_source(7)));
  const auto start = Clock::now();
  CHECK(ends.await().loss == KvLossReason::expired);
  CHECK(Clock::now() - start > 250ms);
  ends.check_all_came_back();
}

TEST_CASE("of two prefills of one name the first is sent", "[kv_transfer][push]") {
  Ends ends(2s);
  Ends::Pushing first = ends.begin_push(1), second = ends.begin_push(1);
  REQUIRE(ends.kept().begin(first.kept));
  CHECK_FALSE(ends.kept().begin(second.kept));
  ends.kept().fail(second.kept.key, nullptr, KvLossReason::refused);  // nothing of the first's
  CHECK_FALSE(ends.kept().finish(second.kept));
  ends.reader().fetch(ends.fetch_of(1, first.prefill.source));
  ends.computed(first, 100);
  CHECK(holds(ends.await(), first.prefill));
  second = {};
  first.kept.range.reset();
  ends.check_all_came_back();
}

TEST_CASE("what a push refuses has its reason", "[kv_transfer][push]") {
  Ends ends(2s);
  Ends::Pushing pushing = ends.begin_push(1);
  REQUIRE(ends.kept().begin(pushing.kept));
  ends.computed(pushing, 100);
  const auto loss_of = [&](auto change) {
    KvFetch fetch = ends.fetch_of(1, pushing.prefill.source);
    change(fetch);
    ends.reader().fetch(fetch);
    return ends.await().loss;
  };
  CHECK_FALSE(loss_of([](KvFetch&) {}));
  CHECK(loss_of([](KvFetch& f) { f.source.engine = "x"; }) == KvLossReason::expired);
  CHECK_FALSE(loss_of([](KvFetch& f) { f.source.engine = "owner"; }));
  CHECK(loss_of([](KvFetch& f) { f.prompt_hash = 2; }) == KvLossReason::prompt);
  CHECK(loss_of([](KvFetch& f) { f.num_tokens = 99; }) == KvLossReason::prompt);
  CHECK(loss_of([](KvFetch& f) { f.from = -1; }) == KvLossReason::refused);
  CHECK(loss_of([](KvFetch& f) { f.source.pushed = false; }) == KvLossReason::expired);
  pushing.kept.range.reset();
  ends.check_all_came_back();
}

TEST_CASE("only rows that are missing are pushed", "[kv_transfer][push]") {
  Ends ends(2s);
  Ends::Pushing pushing = ends.begin_push(1);
  REQUIRE(ends.kept().begin(pushing.kept));
  KvFetch fetch = ends.fetch_of(1, pushing.prefill.source);
  fetch.from = 37;
  ends.reader().fetch(fetch);
  std::mt19937_64 random(3);
  compute(ends, pushing, random);
  const KvFetched fetched = ends.await();
  REQUIRE_FALSE(fetched.loss);
  for (const KvPiece& piece : kv_pieces(pushing.kept.content, fetched.content))
    CHECK(std::equal(pushing.prefill.bytes.begin() + piece.source,
                     pushing.prefill.bytes.begin() + piece.source + piece.bytes,
                     fetched.range->bytes().begin() + piece.target));
}

TEST_CASE("pushes that wait take no connection from others", "[kv_transfer][push]") {
  Ends ends({.silence = 2s, .max_connections = 6});
  const std::uint64_t waiting = 200;
  for (std::uint64_t seed = 2; seed < 2 + waiting; ++seed)
    ends.reader().fetch(ends.fetch_of(seed, ends.pushed_source(seed)));
  const Ends::Prefill kept = ends.keep(1);
  ends.reader().watch(RequestId{1}, kept.source);
  ends.reader().fetch(ends.fetch_of(1, kept.source));
  CHECK(holds(ends.await(), kept));
  ends.reader().release(RequestId{1});
  std::mt19937_64 random(4);
  for (const std::uint64_t seed : {std::uint64_t{201}, std::uint64_t{7}}) {  // whichever begins
    Ends::Pushing pushing = ends.begin_push(seed);
    REQUIRE(ends.kept().begin(pushing.kept));
    ends.reader().watch(RequestId{seed}, pushing.prefill.source);
    compute(ends, pushing, random);
    CHECK(holds(ends.await(), pushing.prefill));
    ends.reader().release(RequestId{seed});
  }
  for (std::uint64_t seed = 2; seed < 2 + waiting; ++seed) {
    if (seed == 201 || seed == 7) continue;
    if (seed % 2 == 0) ends.reader().cancel(RequestId{seed});
    else ends.kept().fail(ends.pushed_source(seed).prefill.key, nullptr, KvLossReason::no_room);
  }
  for (const KvFetched& fetched : ends.await(waiting - 2))
    CHECK(fetched.loss == (fetched.request.value % 2 == 0 ? KvLossReason::refused : KvLossReason::no_room));
  ends.check_all_came_back();
}

TEST_CASE("a push of another engine is fetched there", "[kv_transfer][push]") {
  Ends ends(2s), other(2s);
  std::mt19937_64 random(2);
  for (const bool asks_first : {true, false}) {
    const std::uint64_t seed = asks_first ? 1 : 2;
    const auto tell = [&] {
      ends.kept().fail(ends.pushed_source(seed).prefill.key, nullptr, KvLossReason::refused,
                       other.owner_address().text());
    };
    if (!asks_first) tell();
    ends.reader().watch(RequestId{seed}, ends.pushed_source(seed));
    ends.reader().fetch(ends.fetch_of(seed, ends.pushed_source(seed)));
    if (asks_first) std::this_thread::sleep_for(5ms);
    if (asks_first) tell();
    Ends::Pushing pushing = other.begin_push(seed);
    REQUIRE(other.kept().begin(pushing.kept));
    compute(other, pushing, random);
    CHECK(holds(ends.await(), pushing.prefill));
    pushing.kept.range.reset();
    ends.reader().release(RequestId{seed});  // where it was fetched
    for (int i = 0; i < 2000 && other.kept().used_bytes() > 0; ++i) std::this_thread::sleep_for(1ms);
    CHECK(other.kept().used_bytes() == 0);
  }
  ends.check_all_came_back();
}

TEST_CASE("nobody is sent to an address that is no peer, nor twice", "[kv_transfer][push]") {
  Ends ends(2s), other(2s);
  std::uint64_t seed = 1;
  for (const std::string& elsewhere :
       {std::string("tcp://127.0.0.1:1"), std::string("x"), std::string(5000, 'y'),
        other.owner_address().text()}) {
    const std::string key = ends.pushed_source(++seed).prefill.key;
    other.kept().fail(key, nullptr, KvLossReason::refused, ends.owner_address().text());
    ends.kept().fail(key, nullptr, KvLossReason::refused, elsewhere);
    ends.reader().fetch(ends.fetch_of(seed, ends.pushed_source(seed)));
    const KvFetched fetched = ends.await();
    CHECK(fetched.loss == KvLossReason::refused);
    CHECK(fetched.detail.size() < 500);
  }
  ends.check_all_came_back();
}

TEST_CASE("a push of a peer that cannot be connected to is lost at once", "[kv_transfer][push]") {
  Ends ends(2s);
  KvSource source = ends.pushed_source(1);
  source.address = *parse_socket_address("unix:/nonexistent");
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    ends.reader().fetch(ends.fetch_of(seed, source));
    CHECK(ends.await().loss == KvLossReason::peer_lost);
  }
  ends.check_all_came_back();
}

TEST_CASE("a name that is too long is refused, and no other on its line", "[kv_transfer][push]") {
  Ends ends(2s);
  ends.reader().fetch(ends.fetch_of(1, ends.pushed_source(1)));
  std::this_thread::sleep_for(5ms);
  KvSource source = ends.pushed_source(2);
  source.prefill.key = std::string(1025, 'x');
  ends.reader().fetch(ends.fetch_of(2, source));
  const KvFetched refused = ends.await();
  CHECK(refused.request == RequestId{2});
  CHECK(refused.loss == KvLossReason::refused);
  CHECK(refused.detail.find("1024") != std::string::npos);
  Ends::Pushing pushing = ends.begin_push(1);
  REQUIRE(ends.kept().begin(pushing.kept));
  ends.computed(pushing, 100);
  CHECK(holds(ends.await(), pushing.prefill));
  pushing.kept.range.reset();
  ends.check_all_came_back();
}

TEST_CASE("silence is that of the engine that was asked", "[kv_transfer][push]") {
  Ends ends(200ms);
  const auto deaf = listen_at(address_of(0));
  REQUIRE(deaf.has_value());
  const std::string elsewhere = address_of(port_of(*deaf)).text();
  const auto loss_of_one_sent_on = [&](std::uint64_t seed) {
    const KvSource source = ends.pushed_source(seed);
    ends.kept().fail(source.prefill.key, nullptr, KvLossReason::refused, elsewhere);
    ends.reader().fetch(ends.fetch_of(seed, source));
    return ends.await();
  };
  CHECK(loss_of_one_sent_on(1).loss == KvLossReason::peer_lost);
  const KvFetched left_alone = loss_of_one_sent_on(2);
  CHECK(left_alone.loss == KvLossReason::peer_lost);
  CHECK(left_alone.detail.find("left alone") != std::string::npos);
  Ends::Pushing pushing = ends.begin_push(3);
  REQUIRE(ends.kept().begin(pushing.kept));
  ends.computed(pushing, 100);
  ends.reader().fetch(ends.fetch_of(3, pushing.prefill.source));
  CHECK(holds(ends.await(), pushing.prefill));
  pushing.kept.range.reset();
  ends.check_all_came_back();
}

TEST_CASE("whatever a line does to a push, the bytes are right or there are none",
          "[kv_transfer][push][faults]") {
  const char* asked = std::getenv("QUIRE_FAULT_RUNS");
  const std::uint64_t runs = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 300;
  std::map<KvLossReason, int> losses;
  int whole = 0, struck = 0;
  Ends ends;
  std::mt19937_64 random(5);
  for (std::uint64_t seed = 1; seed <= runs; ++seed) {
    INFO("seed " << seed);
    FaultyRelay relay(ends.owner_port(), any_fault(seed, 14));
    Ends::Pushing pushing = ends.begin_push(seed);
    KvSource source = pushing.prefill.source;
    source.address = address_of(relay.port());
    ends.reader().watch(RequestId{seed}, source);
    ends.reader().fetch(ends.fetch_of(seed, source));
    if (random() % 2 == 0) std::this_thread::sleep_for(1ms);
    REQUIRE(ends.kept().begin(pushing.kept));
    const bool dies = random() % 10 == 0;
    if (dies) {
      ends.computed(pushing, 40);
      ends.kept().fail(pushing.kept.key, pushing.kept.progress.get(), KvLossReason::refused);
    } else {
      compute(ends, pushing, random);
    }
    {
      const KvFetched fetched = ends.await();
      CHECK(fetched.request == RequestId{seed});
      if (fetched.loss) {
        ++losses[*fetched.loss];
        CHECK(fetched.range == nullptr);
      } else {
        ++whole;
        CHECK_FALSE(dies);
        CHECK(holds(fetched, pushing.prefill));
      }
    }
    ends.reader().release(RequestId{seed});
    pushing.kept.range.reset();
    ends.check_all_came_back();
    struck += relay.has_struck() ? 1 : 0;
  }
  CHECK(struck > static_cast<int>(runs) / 3);
  CHECK(whole > static_cast<int>(runs) / 10);
  CHECK(losses[KvLossReason::peer_lost] > 0);
  CHECK(losses[KvLossReason::corrupt] > 0);
}

}  // namespace quire::test
