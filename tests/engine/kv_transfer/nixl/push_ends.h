#pragma once
// One who prefills and one who decodes, to whom it writes over NIXL.

#include <string>
#include <utility>
#include <vector>

#include "engine/kv_transfer/nixl/push_plane.h"
#include "tests/engine/kv_transfer/nixl/ends.h"

namespace quire::test {

inline NixlPushPlaneOptions push_options(const KvGeometry& geometry, const std::string& engine) {
  NixlPushPlaneOptions options;
  options.thread = nixl_thread_options(geometry);
  options.thread.self.factors.pushes = true;
  options.thread.engine = engine;
  options.thread.listen.emplace();
  options.thread.listen->host = "127.0.0.1";
  options.sender.peers = PeerList({{"127.0.0.1"}});
  options.receiver.renew_every = std::chrono::milliseconds(50);
  return options;
}

inline constexpr int kMoreThanHalf = 600;  // tokens: the blocks of two do not fit

class NixlPushEnds {
 public:
  struct Options {
    std::chrono::nanoseconds aside = std::chrono::minutes(30);
    std::chrono::nanoseconds lease = std::chrono::seconds(30);
    std::vector<KvPeer> decodes = {{"127.0.0.1"}};  // to whom the owner writes
    const NixlLibrary* library = nullptr;           // null: the usual one
    std::chrono::nanoseconds silence = std::chrono::seconds(2);
  };
  NixlPushEnds() : NixlPushEnds(Options()) {}
  explicit NixlPushEnds(Options o)
      : options(std::move(o)),
        kept(device_->allocate(4 << 20), options.lease),
        arriving(device_->allocate(4 << 20)) {
    start_owner();
    start_reader();
  }

  void start_owner() {
    NixlPushPlaneOptions own =
        changed(push_options(geometry, "owner " + std::to_string(++starts_)));
    own.sender.peers = PeerList(options.decodes);
    owner_engine = own.thread.engine;
    owner = make_nixl_push_plane(std::move(own), &kept, nullptr, nullptr);
  }
  void start_reader(std::uint16_t port = 0) {
    NixlPushPlaneOptions own =
        changed(push_options(geometry, "reader " + std::to_string(++starts_)));
    own.thread.listen->port = port;
    own.receiver.aside = options.aside;
    own.receiver.aside_of_lost = std::chrono::milliseconds(300);
    own.receiver.room_patience = std::chrono::milliseconds(300);
    own.receiver.prefill_patience = std::chrono::seconds(5);
    reader = make_nixl_push_plane(std::move(own), nullptr, &arriving, nullptr);
  }

  std::vector<std::byte> keep(const std::string& name, int num_tokens) {
    KeptPrefill prefill;
    prefill.key = name;
    prefill.prompt_hash = 5;
    prefill.content = kv_content(geometry, num_tokens);
    prefill.range = kept.make_room(prefill.content.bytes);
    REQUIRE(prefill.range != nullptr);
    std::mt19937_64 random(static_cast<unsigned>(num_tokens));
    for (std::byte& byte : prefill.range->bytes()) byte = static_cast<std::byte>(random());
    std::vector<std::byte> bytes(prefill.range->bytes().begin(), prefill.range->bytes().end());
    kept.keep(std::move(prefill));
    return bytes;
  }
  KvSource source(const std::string& name) const {
    KvSource source;
    source.address.host = "127.0.0.1";
    source.address.port = owner->port();
    source.engine = owner_engine;
    source.prefill.key = source.request = name;
    source.pushed = true;
    return source;
  }
  RequestId begin(const KvSource& source, int num_tokens, int from = 0) {
    KvFetch fetch;
    fetch.request = RequestId{++last_};
    fetch.source = source;
    fetch.num_tokens = num_tokens;
    fetch.from = from;
    fetch.prompt_hash = 5;
    reader->watch(fetch.request, source);
    reader->fetch(fetch);
    return fetch.request;
  }
  KvFetched end() {
    for (int i = 0; i < 20'000; ++i) {
      auto taken = reader->take();
      if (!taken.empty()) {
        reader->release(taken.front().request);
        return std::move(taken.front());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    FAIL("nothing came");
    return {};
  }
  KvFetched fetch(const KvSource& source, int num_tokens) {
    begin(source, num_tokens);
    return end();
  }
  void check_works(const std::string& name, int num_tokens) {
    const std::vector<std::byte> bytes = keep(name, num_tokens);
    const KvFetched fetched = fetch(source(name), num_tokens);
    INFO(fetched.detail);
    REQUIRE(!fetched.loss);
    CHECK(std::ranges::equal(fetched.range->bytes(), bytes));
  }
  // Once there is room.
  void check_works_soon(int num_tokens) {
    for (int i = 0; i < 50; ++i) {
      const std::string name = "soon " + std::to_string(i);
      keep(name, num_tokens);
      const auto loss = fetch(source(name), num_tokens).loss;
      if (!loss) return;
      REQUIRE(*loss == KvLossReason::no_room);
      kept.release(name, 0);
    }
    FAIL("there is no room");
  }

 private:
  NixlPushPlaneOptions changed(NixlPushPlaneOptions own) const {
    if (options.library != nullptr) own.thread.library = options.library;
    own.thread.silence = options.silence;
    return own;
  }

  const std::unique_ptr<Device> device_ = make_cpu_device();
  std::uint64_t last_ = 0;
  int starts_ = 0;

 public:
  const Options options;
  std::string owner_engine;
  const KvGeometry geometry = nixl_geometry();
  KeptPrefills kept;
  StagingBuffer arriving;
  std::unique_ptr<DataPlane> owner, reader;
};

}  // namespace quire::test
