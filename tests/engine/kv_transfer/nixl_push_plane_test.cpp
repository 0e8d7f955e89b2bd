// Writes over NIXL between two planes, and with a server that says and does what it should not.

#include "engine/kv_transfer/nixl_push_plane.h"

#include "tests/engine/kv_transfer/nixl_stranger.h"

namespace quire::test {
namespace {

bool has_library() {
  const bool has = std::getenv("QUIRE_NIXL_LIBRARY") != nullptr;
  if (!has) WARN("skipped: QUIRE_NIXL_LIBRARY does not name libnixl_capi.so");
  return has;
}

NixlPushPlaneOptions push_options(const KvGeometry& geometry, const char* engine) {
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

constexpr int kMoreThanHalf = 600;  // tokens: the blocks of two do not fit

class Ends {
 public:
  explicit Ends(std::chrono::nanoseconds aside = std::chrono::minutes(30))
      : kept(device_->allocate(4 << 20), std::chrono::seconds(30)),
        arriving(device_->allocate(4 << 20)) {
    owner = make_nixl_push_plane(push_options(geometry, "owner"), &kept, nullptr, nullptr);
    NixlPushPlaneOptions options = push_options(geometry, "reader");
    options.receiver.aside = aside;
    options.receiver.aside_of_lost = std::chrono::milliseconds(300);
    options.receiver.room_patience = std::chrono::milliseconds(300);
    options.receiver.prefill_patience = std::chrono::seconds(5);
    reader = make_nixl_push_plane(std::move(options), nullptr, &arriving, nullptr);
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
    source.engine = "owner";
    source.prefill.key = source.request = name;
    source.pushed = true;
    return source;
  }
  RequestId begin(const KvSource& source, int num_tokens) {
    KvFetch fetch;
    fetch.request = RequestId{++last_};
    fetch.source = source;
    fetch.num_tokens = num_tokens;
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
  const std::unique_ptr<Device> device_ = make_cpu_device();
  std::uint64_t last_ = 0;

 public:
  const KvGeometry geometry = nixl_geometry();
  KeptPrefills kept;
  StagingBuffer arriving;
  std::unique_ptr<DataPlane> owner, reader;
};

}  // namespace

TEST_CASE("what is written over NIXL is what was kept", "[nixl][push]") {
  if (!has_library()) return;
  Ends ends;
  for (const int num_tokens : {1, 16, 17, 100, 200})
    ends.check_works("of " + std::to_string(num_tokens), num_tokens);
  CHECK(ends.owner->sent().requests == 5);
  CHECK(ends.kept.used_bytes() == 0);  // what is written from holds nothing of a request
  CHECK(ends.arriving.used() == 0);    // nor do blocks that are lent to nobody
}

TEST_CASE("forged and damaged registrations are refused, and others still served", "[nixl][push]") {
  if (!has_library()) return;
  Ends ends;
  ends.check_works("before", 40);
  NixlStranger stranger(push_options(ends.geometry, "").thread.self);
  const auto owner = stranger.meet(ends.owner->port());
  ends.keep("secret", 40);
  NixlPushRegistration registration;
  registration.request = "secret-12345678";
  registration.decode_engine = "stranger";
  registration.decode_host = "127.0.0.1";
  registration.decode_port = stranger.port();
  registration.blocks = {{0}};
  registration.prefill_engine = "owner";
  registration.prefill_host = "127.0.0.1";
  registration.prefill_port = ends.owner->port();
  const auto say = [&](auto change) {
    NixlPushRegistration changed = registration;
    change(changed);
    stranger.say(owner, encode_push_registration(changed));
  };
  using R = NixlPushRegistration;
  say([](R& r) { r.prefill_engine = "another"; });
  say([](R& r) { r.decode_host = "127.0.0.2"; });                  // not allowed
  say([](R& r) { r.decode_engine = "another"; });                  // it answers with another name
  say([](R& r) { r.request += "1", r.blocks = {{1}}; });           // it has one block only
  say([](R& r) { r.request += "2", r.blocks = {{0}, {0}}; });      // groups
  say([](R& r) { r.request += "3", r.blocks = {{0, 0, 0, 0}}; });  // more than the prompt fills
  say([&](R& r) {  // of another server, which never asked
    r.request = "secret-00000001";
    r.decode_engine = "reader";
    r.decode_port = ends.reader->port();
    r.blocks = {{1, 2, 3}};
  });
  for (const char* notice : {"", ":", "PUSH_REG:", "PUSH_REG:\xc1", "HB:", "HB:,,", "x:1",
                             "QUIRE_LOST:", "QUIRE_LOST:no_room:x", "QUIRE_FORGOTTEN:nobody"})
    stranger.say(owner, notice);
  stranger.say(owner, "PUSH_REG:" + std::string(8000, '\x91'));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(ends.owner->sent().requests == 1);
  CHECK(ends.kept.find("secret", 0) != nullptr);
  ends.check_works("after", 40);
}

TEST_CASE("nobody but who was asked says that blocks are written", "[nixl][push]") {
  if (!has_library()) return;
  Ends ends;
  NixlStranger asked(push_options(ends.geometry, "").thread.self);
  NixlStranger other(push_options(ends.geometry, "").thread.self);
  ends.begin(asked.source("a prefill of another"), 40);
  const NixlPushRegistration registration = asked.registered();
  CHECK(base_request_name(registration.request) == "a prefill of another");
  const auto reader = other.meet(ends.reader->port());
  for (const std::string& notice :
       {registration.request + ":1", "QUIRE_LOST:expired:" + registration.request})
    other.say(reader, notice);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(ends.reader->take().empty());
  asked.write(asked.meet(ends.reader->port()), registration, std::byte{7},
              registration.request + ":1");
  const KvFetched fetched = ends.end();
  REQUIRE(!fetched.loss);
  CHECK(std::ranges::all_of(fetched.range->bytes(), [](std::byte b) { return b == std::byte{7}; }));
}

TEST_CASE("a write that comes late lands in nobody's blocks", "[nixl][push]") {
  if (!has_library()) return;
  Ends ends;
  NixlStranger stranger(push_options(ends.geometry, "").thread.self);
  const RequestId cancelled = ends.begin(stranger.source("late"), 100);
  const NixlPushRegistration late = stranger.registered();
  ends.reader->cancel(cancelled);
  CHECK(ends.end().loss == KvLossReason::refused);
  const auto reader = stranger.meet(ends.reader->port());
  // As many others as fit beside it: none gets its blocks before its notice has come.
  const std::vector<std::byte> bytes = ends.keep("other", 100);
  ends.begin(ends.source("other"), 100);
  stranger.write(reader, late, std::byte{9}, "");
  const KvFetched fetched = ends.end();
  REQUIRE(!fetched.loss);
  CHECK(std::ranges::equal(fetched.range->bytes(), bytes));
  for (int i = 0; i < 20; ++i) {
    stranger.write(reader, late, std::byte{9}, "");
    ends.check_works("more " + std::to_string(i), 150);
  }
  stranger.say(reader, late.request + ":1");
}

TEST_CASE("blocks that may be written yet are lent again once they are said to be written",
          "[nixl][push]") {
  if (!has_library()) return;
  Ends ends;
  NixlStranger stranger(push_options(ends.geometry, "").thread.self);
  const RequestId cancelled = ends.begin(stranger.source("held"), kMoreThanHalf);
  const NixlPushRegistration held = stranger.registered();
  ends.reader->cancel(cancelled);
  CHECK(ends.end().loss == KvLossReason::refused);
  CHECK(ends.fetch(ends.source("none"), kMoreThanHalf).loss == KvLossReason::no_room);
  stranger.say(stranger.meet(ends.reader->port()), held.request + ":1");
  ends.check_works_soon(kMoreThanHalf);
}

TEST_CASE("blocks that may be written yet are lent again when their time is over", "[nixl][push]") {
  if (!has_library()) return;
  Ends ends(std::chrono::milliseconds(300));
  NixlStranger stranger(push_options(ends.geometry, "").thread.self);
  const RequestId cancelled = ends.begin(stranger.source("held"), kMoreThanHalf);
  stranger.registered();
  ends.reader->cancel(cancelled);
  CHECK(ends.end().loss == KvLossReason::refused);
  ends.check_works_soon(kMoreThanHalf);
}

// Without sums a late write over another connection would not be seen.
TEST_CASE("blocks of a peer that is gone are lent again soon, if sums guard them", "[nixl][push]") {
  if (!has_library()) return;
  const bool is_quire = GENERATE(true, false), is_cancelled = GENERATE(true, false);
  CAPTURE(is_quire, is_cancelled);
  Ends ends;
  {
    NixlStranger stranger(push_options(ends.geometry, "").thread.self, is_quire);
    const RequestId held = ends.begin(stranger.source("held"), kMoreThanHalf);
    stranger.registered();
    if (is_cancelled) ends.reader->cancel(held);
    if (is_cancelled) CHECK(ends.end().loss == KvLossReason::refused);
  }
  if (!is_cancelled) CHECK(ends.end().loss == KvLossReason::peer_lost);
  if (is_quire) return ends.check_works_soon(kMoreThanHalf);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  ends.keep("later", kMoreThanHalf);
  CHECK(ends.fetch(ends.source("later"), kMoreThanHalf).loss == KvLossReason::no_room);
}

TEST_CASE("a prefill that nobody writes in time is a loss", "[nixl][push]") {
  if (!has_library()) return;
  NixlPushPlaneOptions options = push_options(nixl_geometry(), "reader");
  options.receiver.prefill_patience = std::chrono::milliseconds(200);
  const auto device = make_cpu_device();
  StagingBuffer arriving(device->allocate(4 << 20));
  NixlStranger stranger(options.thread.self);
  const auto reader = make_nixl_push_plane(std::move(options), nullptr, &arriving, nullptr);
  KvFetch fetch;
  fetch.request = RequestId{1};
  fetch.source = stranger.source("nothing");
  fetch.num_tokens = 40;
  reader->watch(fetch.request, fetch.source);
  reader->fetch(fetch);
  std::vector<KvFetched> taken;
  for (int i = 0; i < 5000 && taken.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    taken = reader->take();
  }
  REQUIRE(taken.size() == 1);
  CHECK(taken.front().loss == KvLossReason::expired);
}

}  // namespace quire::test
