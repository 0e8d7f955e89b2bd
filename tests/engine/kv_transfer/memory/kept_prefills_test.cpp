// What is kept is read whole or not at all, and its memory comes back.

#include <catch2/catch.hpp>
#include <random>
#include <thread>

#include "cpu/cpu_backend.h"
#include "engine/kv_transfer/memory/kept_prefills.h"

namespace quire::test {
namespace {

using namespace std::chrono_literals;

KeptPrefill prefill_of(KeptPrefills& kept, const std::string& key, std::int64_t bytes) {
  KeptPrefill prefill;
  prefill.key = key;
  prefill.generation = kept.next_generation();
  prefill.content.bytes = bytes;
  prefill.range = kept.make_room(bytes);
  return prefill;
}

}  // namespace

TEST_CASE("ranges of a buffer never overlap and all come back", "[kv_transfer]") {
  const auto device = make_cpu_device();
  StagingBuffer buffer(device->allocate(1 << 16));
  std::mt19937 random(3);
  std::vector<std::shared_ptr<StagedRange>> held;
  for (int round = 0; round < 5000; ++round) {
    if (random() % 2 == 0) {
      if (auto range = buffer.take(1 + random() % 5000)) held.push_back(std::move(range));
    } else if (!held.empty()) {
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(random() % held.size()));
    }
    std::vector<std::pair<std::byte*, std::byte*>> ranges;
    for (const auto& range : held)
      ranges.push_back({range->bytes().data(), range->bytes().data() + range->bytes().size()});
    std::sort(ranges.begin(), ranges.end());
    for (std::size_t i = 1; i < ranges.size(); ++i)
      REQUIRE(ranges[i - 1].second <= ranges[i].first);
  }
  held.clear();
  CHECK(buffer.used() == 0);
  CHECK(buffer.take(1 << 16) != nullptr);
  CHECK(buffer.take((1 << 16) + 1) == nullptr);
}

TEST_CASE("a kept prefill is found by key and generation, until it is released", "[kv_transfer]") {
  const auto device = make_cpu_device();
  KeptPrefills kept(device->allocate(4096), 30s);
  const KeptPrefill prefill = prefill_of(kept, "a", 1000);
  const std::uint64_t generation = prefill.generation;
  kept.keep(prefill);
  CHECK(kept.find("a", generation) != nullptr);
  CHECK(kept.find("a", generation + 1) == nullptr);
  CHECK(kept.find("b", generation) == nullptr);
  kept.release("a", generation + 1);
  CHECK(kept.find("a", generation) != nullptr);
  kept.release("a", generation);
  CHECK(kept.find("a", generation) == nullptr);
  CHECK(kept.counts().expired == 0);
}

TEST_CASE("a push that never began leaves what another keeps under its name", "[kv_transfer]") {
  const auto device = make_cpu_device();
  KeptPrefills kept(device->allocate(4096), 30s);
  const KeptPrefill prefill = prefill_of(kept, "a", 1000);
  const std::uint64_t generation = prefill.generation;
  kept.keep(prefill);
  kept.fail("a", nullptr, KvLossReason::no_room);
  CHECK(kept.find("a", generation) != nullptr);
}

TEST_CASE("a push that failed may begin again under its name", "[kv_transfer]") {
  const auto device = make_cpu_device();
  KeptPrefills kept(device->allocate(4096), 30s);
  kept.fail("a", nullptr, KvLossReason::no_room);
  KeptPrefill again = prefill_of(kept, "a", 1000);
  again.generation = 0;
  again.progress = std::make_shared<KvProgress>();
  REQUIRE(kept.begin(again));
  CHECK_FALSE(kept.begin(again));
  CHECK(kept.finish(again));
  const auto found = kept.find("a", 0);
  REQUIRE(found != nullptr);
  CHECK(found->range != nullptr);
}

TEST_CASE("failed pushes are told for a while, however many they are", "[kv_transfer]") {
  const auto device = make_cpu_device();
  KeptPrefills kept(device->allocate(4096), 30s);
  const KeptPrefill good = prefill_of(kept, "good", 100);
  kept.keep(good);
  constexpr int kMany = 20'000;
  for (int i = 0; i < kMany; ++i)
    kept.fail(std::to_string(i), nullptr, KvLossReason::no_room);
  CHECK(kept.find("0", 0) == nullptr);
  CHECK(kept.find(std::to_string(kMany - 1), 0) != nullptr);
  CHECK(kept.find(std::to_string(kMany - 10'000), 0) != nullptr);
  CHECK(kept.find("good", good.generation) != nullptr);
}

TEST_CASE("a lease ends, is renewed, and never takes bytes from a reader", "[kv_transfer]") {
  const auto device = make_cpu_device();
  KeptPrefills kept(device->allocate(2048), 30s);
  std::uint64_t generation = 0;
  {
    KeptPrefill prefill = prefill_of(kept, "a", 1024);
    generation = prefill.generation;
    kept.keep(std::move(prefill));
  }
  const auto now = KeptPrefills::Clock::now();
  const auto next = kept.expire(now);
  REQUIRE(next);
  CHECK(*next > now + 29s);
  auto reader = kept.find("a", generation);
  REQUIRE(reader != nullptr);
  CHECK_FALSE(kept.expire(now + 31s));
  CHECK(kept.find("a", generation) == nullptr);
  CHECK(kept.counts().expired == 1);
  CHECK(kept.used_bytes() == 1024);  // the reader's
  CHECK(kept.make_room(2048) == nullptr);
  reader.reset();
  CHECK(kept.used_bytes() == 0);
}

TEST_CASE("a sign of life lengthens a lease, never shortens it", "[kv_transfer]") {
  const auto device = make_cpu_device();
  KeptPrefills kept(device->allocate(2048), 300ms);
  KeptPrefill prefill = prefill_of(kept, "a", 64);
  const std::uint64_t generation = prefill.generation;
  kept.keep(std::move(prefill));
  const auto first = *kept.expire(KeptPrefills::Clock::now());
  kept.renew("a", generation);
  CHECK(*kept.expire(KeptPrefills::Clock::now()) == first);
  std::this_thread::sleep_for(200ms);
  kept.renew("a", generation);
  CHECK(*kept.expire(KeptPrefills::Clock::now()) > first);
  kept.renew("b", generation);  // unknown: nothing
}

}  // namespace quire::test
