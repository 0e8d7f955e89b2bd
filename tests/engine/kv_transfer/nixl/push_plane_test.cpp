// Writes over NIXL between two planes, and with a server that says and does what it should not.

#include <cstdio>
#include <ctime>

#include "tests/engine/kv_transfer/nixl/push_ends.h"
#include "tests/engine/kv_transfer/nixl/stranger.h"

namespace quire::test {

TEST_CASE("what is written over NIXL is what was kept", "[nixl][push]") {
  if (!has_nixl()) return;
  NixlPushEnds ends;
  for (const int num_tokens : {1, 16, 17, 100, 200})
    ends.check_works("of " + std::to_string(num_tokens), num_tokens);
  CHECK(ends.owner->sent().requests == 5);
  CHECK(ends.kept.used_bytes() == 0);  // what is written from holds nothing of a request
  CHECK(ends.arriving.used() == 0);    // nor do blocks that are lent to nobody
}

TEST_CASE("forged and damaged registrations are refused, and others still served", "[nixl][push]") {
  if (!has_nixl()) return;
  NixlPushEnds ends;
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
  registration.prefill_engine = ends.owner_engine;
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
    r.decode_engine = "reader 2";
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
  if (!has_nixl()) return;
  NixlPushEnds ends;
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
  if (!has_nixl()) return;
  NixlPushEnds ends;
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
  if (!has_nixl()) return;
  NixlPushEnds ends;
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
  if (!has_nixl()) return;
  NixlPushEnds ends({.aside = std::chrono::milliseconds(300)});
  NixlStranger stranger(push_options(ends.geometry, "").thread.self);
  const RequestId cancelled = ends.begin(stranger.source("held"), kMoreThanHalf);
  stranger.registered();
  ends.reader->cancel(cancelled);
  CHECK(ends.end().loss == KvLossReason::refused);
  ends.check_works_soon(kMoreThanHalf);
}

// Without sums a late write over another connection would not be seen.
TEST_CASE("blocks of a peer that is gone are lent again soon, if sums guard them", "[nixl][push]") {
  if (!has_nixl()) return;
  const bool is_quire = GENERATE(true, false), is_cancelled = GENERATE(true, false);
  CAPTURE(is_quire, is_cancelled);
  NixlPushEnds ends;
  {
    NixlStranger stranger(push_options(ends.geometry, "").thread.self, {.is_quire = is_quire});
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
  if (!has_nixl()) return;
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

TEST_CASE("a registration for what was kept too long ago is a loss at once", "[nixl][push]") {
  if (!has_nixl()) return;
  NixlPushEnds ends({.lease = std::chrono::milliseconds(100)});
  ends.keep("late", 100);
  for (int i = 0; i < 5000 && ends.kept.used_bytes() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  REQUIRE(ends.kept.counts().expired == 1);
  const KvFetched fetched = ends.fetch(ends.source("late"), 100);
  CHECK(fetched.loss == KvLossReason::expired);
  CHECK(fetched.detail == "the peer does not write it");
}

// A client comes again with the same object.
TEST_CASE("a second registration for what was written or released is a loss at once",
          "[nixl][push]") {
  if (!has_nixl()) return;
  NixlPushEnds ends;
  ends.check_works("written", 100);
  CHECK(ends.fetch(ends.source("written"), 100).loss == KvLossReason::expired);
  ends.keep("released", 100);
  ends.reader->watch(RequestId{77}, ends.source("released"));
  ends.reader->release(RequestId{77});
  for (int i = 0; i < 5000 && ends.kept.used_bytes() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(ends.fetch(ends.source("released"), 100).loss == KvLossReason::expired);
  ends.check_works("released", 100);  // it is computed again
}

// Of another request with the same X-Request-Id: either side may be first.
TEST_CASE("a name that was written or failed may be another prefill's", "[nixl][push]") {
  if (!has_nixl()) return;
  NixlPushEnds ends;
  ends.check_works("written", 100);
  ends.kept.fail("failed", nullptr, KvLossReason::refused);
  for (const char* const name : {"written", "failed"}) {
    INFO(name);
    ends.begin(ends.source(name), 100);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ends.keep(name, 100);
    CHECK_FALSE(ends.end().loss);
  }
  ends.kept.fail("failed again", nullptr, KvLossReason::refused);
  CHECK(ends.fetch(ends.source("failed again"), 100).loss == KvLossReason::refused);
}

TEST_CASE("what never fits beside the blocks that are lent is refused by what there is",
          "[nixl][push]") {
  if (!has_nixl()) return;
  NixlPushEnds ends;
  const KvFetched fetched = ends.fetch(ends.source("none"), 3 * kMoreThanHalf);
  CHECK(fetched.loss == KvLossReason::no_room);
  CHECK_THAT(fetched.detail, Catch::Contains("bytes the 2097152 of its rest"));
}

TEST_CASE("a registration that is refused is seen at once", "[nixl][push]") {
  if (!has_nixl()) return;
  NixlPushEnds ends({.decodes = {{"127.0.0.2"}}});
  ends.keep("name", 40);
  const auto start = std::chrono::steady_clock::now();
  const KvFetched fetched = ends.fetch(ends.source("name"), 40);
  CHECK(fetched.loss == KvLossReason::refused);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(4));  // of the 5 without
  ends.reader->fetch({});  // what comes of nothing ends nobody
  CHECK(ends.end().loss);
}

TEST_CASE("who registers blocks of another server is refused at once", "[nixl][push]") {
  if (!has_nixl()) return;
  NixlPushEnds ends;
  NixlStranger stranger(push_options(ends.geometry, "").thread.self);
  NixlPushRegistration registration;
  registration.request = "nobody computes it-00000001";
  registration.decode_engine = "reader 2";
  registration.decode_host = registration.prefill_host = "127.0.0.1";
  registration.decode_port = ends.reader->port();
  registration.blocks = {{1, 2, 3}};
  registration.prefill_engine = ends.owner_engine;
  registration.prefill_port = ends.owner->port();
  stranger.say(stranger.meet(ends.owner->port()), encode_push_registration(registration));
  NixlPushStatus status;
  for (int i = 0; i < 100 && status.state != NixlPushState::lost; ++i) {
    status = NixlStranger::state_of(ends.owner->port(), registration.request);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(status.state == NixlPushState::lost);
  CHECK(status.reason == "refused");
}

TEST_CASE("one that registers without end leaves places to others", "[nixl][push]") {
  if (!has_nixl()) return;
  NixlPushEnds ends;
  NixlStranger stranger(push_options(ends.geometry, "").thread.self);
  const auto met = stranger.meet(ends.owner->port());
  NixlPushRegistration registration;
  registration.decode_engine = "stranger";
  registration.decode_host = registration.prefill_host = "127.0.0.1";
  registration.decode_port = stranger.port();
  registration.blocks = {{0}};
  registration.prefill_engine = ends.owner_engine;
  registration.prefill_port = ends.owner->port();
  constexpr std::size_t kPlaces = NixlPushSender::kMostRegistrations / NixlPushSender::kAgentsShare;
  for (std::size_t i = 0; i <= kPlaces; ++i) {
    registration.request = "nobody computes it " + std::to_string(i);
    stranger.say(met, encode_push_registration(registration));
  }
  NixlPushStatus status;
  for (int i = 0; i < 1000 && status.state != NixlPushState::lost; ++i) {
    status = NixlStranger::state_of(ends.owner->port(), registration.request);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(status.reason == "no_room");
  CHECK(NixlStranger::state_of(ends.owner->port(), "nobody computes it 0").state ==
        NixlPushState::held);
  ends.check_works("others", 100);
}

// A proxy that asks both sides at once does not know the name that the prefill is kept under.
TEST_CASE("signs of life and what is forgotten have the name of the registration", "[nixl][push]") {
  if (!has_nixl()) return;
  NixlPushEnds ends({.lease = std::chrono::seconds(2)});
  for (const std::string name : {"by X-Request-Id", "one that ends so-12345678"}) {
    INFO(name);
    ends.keep(name, 40);
    KvSource source = ends.source(name);
    source.prefill.key = "of a proxy";
    const RequestId request{77};
    ends.reader->watch(request, source);
    std::this_thread::sleep_for(std::chrono::seconds(4));
    CHECK(ends.kept.used_bytes() > 0);
    ends.reader->release(request);
    for (int i = 0; i < 300 && ends.kept.used_bytes() > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(ends.kept.used_bytes() == 0);
    CHECK(ends.kept.counts().expired == 0);
  }
}

TEST_CASE("starts of a server that have gone are forgotten", "[nixl][push]") {
  if (!has_nixl()) return;
  NixlPushEnds ends;
  const NixlSelf self = push_options(ends.geometry, "").thread.self;
  SideChannel channel;
  NixlAgent agent(nixl_library(), "who asks");
  NixlRemotes remotes(
      self, channel, [&]() -> NixlAgent& { return agent; }, std::chrono::seconds(5));
  KvSource source;
  source.address.host = "127.0.0.1";
  source.address.port = ends.reader->port();
  const auto greet = [&](const std::string& engine) {
    source.engine = engine;
    NixlRemote& remote = remotes.of(source);
    for (int i = 0; i < 5000 && !remote.is_ready(); ++i) {
      channel.wait(std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
      remotes.take_answers(std::chrono::steady_clock::now());
    }
    CHECK(remote.is_ready());
  };
  for (int start = 2; start < 6; ++start) {
    greet("reader " + std::to_string(start));
    remotes.forget_unused(std::chrono::steady_clock::now());
    CHECK(remotes.size() == 1);
    ends.reader.reset();
    ends.start_reader(source.address.port);
  }
  remotes.forget_unused(std::chrono::steady_clock::now() + std::chrono::hours(2));
  CHECK(remotes.size() == 0);
}

// Beside the library's own threads each plane looks ten times a second.
TEST_CASE("planes that push and have nothing to do take little time", "[nixl][push]") {
  if (!has_nixl()) return;
  NixlPushEnds ends;
  ends.check_works("it", 100);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const double used = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  std::printf("two planes that push: %.4f s of 2 s\n", used);
  CHECK(used < 0.1);
}

}  // namespace quire::test
