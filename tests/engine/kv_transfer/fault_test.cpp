// Whatever happens to the line or the peer at any step: the right bytes or a loss with a reason,
// and all memory back.

#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <map>

#include "cpu/cpu_backend.h"
#include "engine/kv_transfer/transfer_thread.h"
#include "tests/engine/kv_transfer/faulty_relay.h"

namespace quire::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

KvGeometry some_geometry() {
  KvGeometry geometry{.model_fingerprint = "f", .layers = {}};
  KvSpec full;
  full.num_kv_heads = 2;
  full.head_size = 16;
  for (const char* name : {"a", "b"}) geometry.layers.push_back(layer_geometry({name, full}, 16));
  return geometry;
}

SocketAddress address_of(std::uint16_t port) {
  SocketAddress address;
  address.host = "127.0.0.1";
  address.port = port;
  return address;
}

// One who keeps and one who fetches.
class Ends {
 public:
  explicit Ends(std::chrono::milliseconds silence = 60ms)
      : silence_(silence),
        kept_(device_->allocate(1 << 20), 30s),
        arriving_(device_->allocate(1 << 20)) {
    start_owner();
    TransferThreadOptions options;
    options.receiver.geometry = some_geometry();
    options.receiver.silence = silence;
    options.receiver.renew_every = 20ms;
    reader_ = std::make_unique<TransferThread>(std::move(options), nullptr, &arriving_, [] {});
  }

  void start_owner() {
    TransferThreadOptions options;
    options.listen = address_of(0);
    options.sender.engine = "owner";
    options.sender.geometry = some_geometry();
    options.sender.silence = silence_;
    owner_ = std::make_unique<TransferThread>(std::move(options), &kept_, nullptr, [] {});
  }
  void stop_owner() { owner_.reset(); }
  std::uint16_t owner_port() const { return owner_->port(); }

  struct Prefill {
    KvSource source;
    std::vector<std::byte> bytes;
  };
  Prefill keep(std::uint64_t seed, int num_tokens = 100) {
    std::mt19937_64 random(seed);
    KeptPrefill kept;
    kept.key = "key-" + std::to_string(seed);
    kept.generation = kept_.next_generation();
    kept.content = kv_content(some_geometry(), num_tokens);
    kept.prompt_hash = seed;
    kept.range = kept_.make_room(kept.content.bytes);
    REQUIRE(kept.range != nullptr);
    Prefill prefill;
    for (std::byte& one : kept.range->bytes()) one = static_cast<std::byte>(random());
    prefill.bytes.assign(kept.range->bytes().begin(), kept.range->bytes().end());
    prefill.source.engine = "owner";
    prefill.source.prefill = {kept.key, kept.generation};
    kept_.keep(std::move(kept));
    return prefill;
  }

  KvFetch fetch_of(std::uint64_t seed, const KvSource& source) {
    KvFetch fetch;
    fetch.request = RequestId{seed};
    fetch.source = source;
    fetch.num_tokens = 100;
    fetch.prompt_hash = seed;
    return fetch;
  }

  KvFetched await() {
    const auto deadline = Clock::now() + 5s;
    while (Clock::now() < deadline) {
      auto fetched = reader_->take();
      if (!fetched.empty()) {
        REQUIRE(fetched.size() == 1);
        return std::move(fetched.front());
      }
      std::this_thread::sleep_for(200us);
    }
    FAIL("a fetch did not end");
    return {};
  }

  void check_all_came_back() {
    const auto deadline = Clock::now() + 2s;
    while ((arriving_.used() > 0 || kept_.used_bytes() > 0) && Clock::now() < deadline) {
      kept_.expire(Clock::now() + 1h);  // a release may have been lost
      std::this_thread::sleep_for(1ms);
    }
    CHECK(arriving_.used() == 0);
    CHECK(kept_.used_bytes() == 0);
  }

  TransferThread& reader() { return *reader_; }
  StagingBuffer& arriving() { return arriving_; }

 private:
  const std::chrono::milliseconds silence_;
  const std::unique_ptr<Device> device_ = make_cpu_device();
  KeptPrefills kept_;
  StagingBuffer arriving_;
  std::unique_ptr<TransferThread> owner_, reader_;
};

FaultPlan plan_of(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  FaultPlan plan;
  plan.fault = static_cast<LineFault>(random() % kNumLineFaults);
  plan.towards_reader = random() % 3 != 0;
  plan.frame = static_cast<int>(random() % (plan.towards_reader ? 6 : 2));
  plan.every_connection = random() % 2 == 0;
  plan.seed = random();
  return plan;
}

}  // namespace

TEST_CASE("whatever a line does, the bytes are right or there are none", "[kv_transfer][faults]") {
  const char* asked = std::getenv("QUIRE_FAULT_RUNS");
  const std::uint64_t runs = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 300;
  std::map<KvLossReason, int> losses;
  int whole = 0, struck = 0;
  Ends ends;
  for (std::uint64_t seed = 1; seed <= runs; ++seed) {
    INFO("seed " << seed);
    FaultyRelay relay(ends.owner_port(), plan_of(seed));
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
