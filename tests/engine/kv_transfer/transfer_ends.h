#pragma once
// One who keeps prefills and one who fetches them, each on a thread of its own.

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cpu/cpu_backend.h"
#include "engine/kv_transfer/quire/plane.h"

namespace quire::test {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

inline KvGeometry some_geometry() {
  KvGeometry geometry{.model_fingerprint = "f", .layers = {}};
  KvSpec full;
  full.num_kv_heads = 2;
  full.head_size = 16;
  for (const char* name : {"a", "b"}) geometry.layers.push_back(layer_geometry({name, full}, 16));
  return geometry;
}

inline SocketAddress address_of(std::uint16_t port) {
  SocketAddress address;
  address.host = "127.0.0.1";
  address.port = port;
  return address;
}

// One who keeps and one who fetches.
class Ends {
 public:
  struct Options {
    std::chrono::milliseconds silence = 60ms;
    std::chrono::milliseconds lease = 30s;
    std::size_t max_connections = 256;
    std::size_t bytes = 1 << 20;  // of each buffer
    std::int64_t line_bytes = 1 << 20;  // more are shared by several connections
  };
  explicit Ends(std::chrono::milliseconds silence = 60ms) : Ends(Options{silence}) {}
  explicit Ends(Options wanted)
      : options_(wanted),
        kept_(device_->allocate(wanted.bytes), wanted.lease),
        arriving_(device_->allocate(wanted.bytes)) {
    start_owner();
    QuirePlaneOptions options;
    options.receiver.geometry = some_geometry();
    options.receiver.silence = wanted.silence;
    options.receiver.renew_every = 20ms;
    options.receiver.line_bytes = wanted.line_bytes;
    options.receiver.may_ask = [](const SocketAddress& peer) { return peer.port > 1; };
    reader_ = make_quire_plane(std::move(options), nullptr, &arriving_, [] {});
  }

  void start_owner(const std::string& name = "owner", std::uint16_t port = 0) {
    QuirePlaneOptions options;
    options.listen = address_of(port);
    options.sender.engine = name;
    options.sender.geometry = some_geometry();
    options.sender.silence = options_.silence;
    options.sender.max_connections = options_.max_connections;
    owner_ = make_quire_plane(std::move(options), &kept_, nullptr, [] {});
  }
  void stop_owner() { owner_.reset(); }
  std::uint16_t owner_port() const { return owner_->port(); }

  SocketAddress owner_address() const { return address_of(owner_port()); }

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
    prefill.source.address = owner_address();
    for (std::byte& one : kept.range->bytes()) one = static_cast<std::byte>(random());
    prefill.bytes.assign(kept.range->bytes().begin(), kept.range->bytes().end());
    prefill.source.engine = "owner";
    prefill.source.prefill = {kept.key, kept.generation};
    kept_.keep(std::move(kept));
    return prefill;
  }

  // What somebody computes bit by bit, under a name that both sides were told.
  struct Pushing {
    Prefill prefill;
    KeptPrefill kept;
  };
  Pushing begin_push(std::uint64_t seed, int num_tokens = 100) {
    std::mt19937_64 random(seed);
    Pushing pushing;
    KeptPrefill& kept = pushing.kept;
    kept.key = "pushed-by-the-name-" + std::to_string(seed);
    kept.content = kv_content(some_geometry(), num_tokens);
    kept.prompt_hash = seed;
    kept.range = kept_.make_room(kept.content.bytes);
    kept.progress = std::make_shared<KvProgress>();
    REQUIRE(kept.range != nullptr);
    pushing.prefill.bytes.resize(static_cast<std::size_t>(kept.content.bytes));
    for (std::byte& one : pushing.prefill.bytes) one = static_cast<std::byte>(random());
    pushing.prefill.source = pushed_source(seed);
    return pushing;
  }
  KvSource pushed_source(std::uint64_t seed) {
    KvSource source;
    source.address = owner_address();
    source.prefill = {"pushed-by-the-name-" + std::to_string(seed), 0};
    source.pushed = true;
    return source;
  }
  // The rows of its tokens before `until` are there.
  void computed(Pushing& pushing, int until) {
    const int had = pushing.kept.progress->ready;
    for (const KvStrip& strip : kv_rows(pushing.kept.content, {had, until}).strips)
      std::copy_n(pushing.prefill.bytes.begin() + strip.offset, strip.bytes(),
                  pushing.kept.range->bytes().begin() + strip.offset);
    if (until < pushing.kept.content.num_tokens)
      kept_.progressed(pushing.kept, until);
    else
      kept_.finish(pushing.kept);
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

  // The requests whose fetches ended, in that order.
  std::vector<KvFetched> await(std::size_t count) {
    std::vector<KvFetched> all;
    const auto deadline = Clock::now() + 10s;
    while (all.size() < count && Clock::now() < deadline) {
      for (KvFetched& one : reader_->take()) all.push_back(std::move(one));
      std::this_thread::sleep_for(200us);
    }
    REQUIRE(all.size() == count);
    return all;
  }

  DataPlane& reader() { return *reader_; }
  KeptPrefills& kept() { return kept_; }
  StagingBuffer& arriving() { return arriving_; }

 private:
  const Options options_;
  const std::unique_ptr<Device> device_ = make_cpu_device();
  KeptPrefills kept_;
  StagingBuffer arriving_;
  std::unique_ptr<DataPlane> owner_, reader_;
};

}  // namespace quire::test
