// Whatever happens to a notice, a write, a call of the library or a server at any step: the right
// bytes or a loss with a reason, and all blocks back on both sides.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>

#include "tests/engine/kv_transfer/nixl/faulty_nixl.h"
#include "tests/engine/kv_transfer/nixl/push_ends.h"

namespace quire::test {
namespace {

constexpr int kAlmostAll = 976;  // tokens: 61 of the 62 blocks

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

template <class Condition>
bool comes_true(Condition condition, std::chrono::milliseconds patience = 5s) {
  for (const auto end = Clock::now() + patience; Clock::now() < end;) {
    if (condition()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return condition();
}

struct Case {
  explicit Case(std::uint64_t seed) : plan(any_nixl_fault(seed)) {
    std::mt19937_64 random(seed ^ 0x5eed);
    num_tokens = static_cast<int>(1 + random() % 250);
    if (random() % 3 == 0) from = static_cast<int>(random() % static_cast<unsigned>(num_tokens));
    const auto after = [&](unsigned one_in, unsigned most) {
      std::optional<std::chrono::microseconds> time;
      if (random() % one_in == 0) time = std::chrono::microseconds(random() % most);
      return time;
    };
    kept_after = after(3, 20'000);
    cancelled_after = after(8, 10'000);
    owner_gone_after = after(16, 10'000);
    reader_gone_after = after(16, 10'000);
  }

  NixlFaultPlan plan;
  int num_tokens = 0, from = 0;
  std::optional<std::chrono::microseconds> kept_after = {};  // both servers were asked at once
  std::optional<std::chrono::microseconds> cancelled_after = {}, owner_gone_after = {},
                                           reader_gone_after = {};
};

struct Outcome {
  std::vector<std::byte> bytes;  // what was kept
  std::optional<KvFetched> fetched;
};

Outcome run(NixlPushEnds& ends, const std::string& name, const Case& one) {
  Outcome outcome;
  if (!one.kept_after) outcome.bytes = ends.keep(name, one.num_tokens);
  const RequestId request = ends.begin(ends.source(name), one.num_tokens, one.from);
  if (one.kept_after) {
    std::this_thread::sleep_for(*one.kept_after);
    outcome.bytes = ends.keep(name, one.num_tokens);
  }
  if (one.cancelled_after) {
    std::this_thread::sleep_for(*one.cancelled_after);
    ends.reader->cancel(request);
  }
  if (one.reader_gone_after) {
    std::this_thread::sleep_for(*one.reader_gone_after);
    ends.reader.reset();
    ends.start_reader();
    return outcome;
  }
  if (one.owner_gone_after) {
    std::this_thread::sleep_for(*one.owner_gone_after);
    ends.owner.reset();
  }
  outcome.fetched = ends.end();
  if (one.owner_gone_after) ends.start_owner();
  return outcome;
}

std::vector<std::byte> wanted(const NixlPushEnds& ends, const Outcome& outcome, int num_tokens) {
  const KvContent whole = kv_content(ends.geometry, num_tokens);
  std::vector<std::byte> rows(static_cast<std::size_t>(outcome.fetched->content.bytes));
  for (const KvPiece& piece : kv_pieces(whole, outcome.fetched->content))
    std::copy_n(outcome.bytes.begin() + piece.source, piece.bytes, rows.begin() + piece.target);
  return rows;
}

}  // namespace

TEST_CASE("whatever happens to a push over NIXL, the bytes are right or there are none",
          "[nixl][push][faults]") {
  if (!has_nixl()) return;
  const std::uint64_t runs = number_of("QUIRE_FAULT_RUNS", 200);
  const std::uint64_t begin = number_of("QUIRE_FAULT_SEED", 1);
  FaultyNixl nixl;
  NixlPushEnds ends({.aside = 2s, .library = &nixl.library(), .silence = 250ms});
  std::map<KvLossReason, int> losses;
  int whole = 0, struck = 0;
  for (std::uint64_t seed = begin; seed < begin + runs; ++seed) {
    const Case one(seed);
    INFO("seed " << seed << ", fault " << static_cast<int>(one.plan.fault) << " of call "
                 << one.plan.call << (one.plan.always ? " and later ones" : ""));
    nixl.use(one.plan);
    const Outcome outcome = run(ends, "seed " + std::to_string(seed), one);
    struck += nixl.has_struck() ? 1 : 0;
    nixl.use({});
    if (outcome.fetched && outcome.fetched->loss) {
      INFO(outcome.fetched->detail);
      ++losses[*outcome.fetched->loss];
      CHECK(outcome.fetched->range == nullptr);
    } else if (outcome.fetched) {
      ++whole;
      CHECK(std::ranges::equal(outcome.fetched->range->bytes(),
                               wanted(ends, outcome, one.num_tokens)));
    }
    CHECK(ends.arriving.used() == (outcome.fetched && outcome.fetched->range
                                       ? (outcome.fetched->content.bytes + 63) / 64 * 64
                                       : 0));
    CHECK(comes_true([&] {
      ends.kept.expire(Clock::now() + 1h);
      return ends.kept.used_bytes() == 0;
    }));
  }
  // Peers that were lost are left alone for a while; blocks of lost requests come back.
  int last = 0;
  CHECK(comes_true(
      [&] {
        if (ends.kept.used_bytes() > 0) return false;  // the one before is still being written
        const std::string name = "afterwards " + std::to_string(++last);
        ends.keep(name, kAlmostAll);
        const auto loss = ends.fetch(ends.source(name), kAlmostAll).loss;
        ends.kept.release(name, 0);
        return !loss;
      },
      20s));
  CHECK(struck > static_cast<int>(runs) / 4);
  CHECK(whole > static_cast<int>(runs) / 5);
  CHECK(losses[KvLossReason::peer_lost] > 0);
  CHECK(losses[KvLossReason::corrupt] > 0);
}

TEST_CASE("what fails of one transfer over NIXL ends no other", "[nixl][push][faults]") {
  if (!has_nixl()) return;
  FaultyNixl nixl;
  NixlPushEnds ends({.library = &nixl.library()});
  ends.check_works("before", 100);
  for (const NixlFault fault : {NixlFault::fail_reading_notices, NixlFault::fail_write}) {
    INFO("fault " << static_cast<int>(fault));
    nixl.use({.fault = fault});
    ends.keep("it", 100);
    ends.fetch(ends.source("it"), 100);
    CHECK(comes_true([&] { return nixl.has_struck(); }));
    nixl.use({});
    ends.kept.release("it", 0);
    CHECK(comes_true([&] {
      ends.keep("after", 100);
      const auto loss = ends.fetch(ends.source("after"), 100).loss;
      ends.kept.release("after", 0);
      return !loss;
    }));
  }
}

}  // namespace quire::test
